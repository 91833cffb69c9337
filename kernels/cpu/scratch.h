// Scratch memory of the CPU's kernels: what a call wants, from its arguments alone. It lies outside
// the heaps, belongs to the threads of a stream and only grows (ThreadTeam::scratch, MatmulCache).
// Not here: Eigen's packed blocks, which malloc holds during a product (below 4 MiB a thread).
//
// [Note: scratch is counted when work is issued] A worker allocates scratch when the first task
// runs that wants more. The host counts it when it issues that task, as all memory is counted, so
// that a run without bytes counts the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cpu/matmul.h"

namespace fsdp {
struct ActivationBackwardArgs;
struct AttentionBackwardArgs;
struct AttentionForwardArgs;
struct CrossEntropyArgs;
struct NormBackwardArgs;
struct SumRowsArgs;
}  // namespace fsdp

namespace fsdp::cpu {

struct ScratchNeed {
  size_t bytes = 0;           // of ThreadTeam::scratch of each thread that takes part
  bool by_all = false;        // all threads of the team may; else the first alone does
  ProductNeed products = {};  // of MatmulCache
};

ScratchNeed scratch_of(const SumRowsArgs& args);
ScratchNeed scratch_of(const NormBackwardArgs& args);
ScratchNeed scratch_of(const ActivationBackwardArgs& args);
ScratchNeed scratch_of(const CrossEntropyArgs& args);
ScratchNeed scratch_of(const AttentionForwardArgs& args);
ScratchNeed scratch_of(const AttentionBackwardArgs& args);

// What one stream's threads hold after the tasks that were issued.
class PlannedScratch {
 public:
  explicit PlannedScratch(int threads)
      : of_thread_(static_cast<size_t>(threads)), products_(of_thread_), copies_(of_thread_) {}
  size_t plan(const ScratchNeed& need);  // by how much they will hold more
  int threads() const { return static_cast<int>(of_thread_.size()); }

 private:
  std::vector<size_t> of_thread_, products_, copies_;
};

// Of matrix products. Remembers what oneDNN said of a product; used from the host's thread.
class ProductScratch {
 public:
  explicit ProductScratch(bool fixed_tiles = false) : fixed_tiles_(fixed_tiles) {}
  ScratchNeed of(const MatmulArgs& args, int threads);  // of the team

 private:
  ProductNeed of_native(const Product& product, int threads);
  bool fixed_tiles_;
  std::map<Product, ProductNeed> known_;
};

}  // namespace fsdp::cpu
