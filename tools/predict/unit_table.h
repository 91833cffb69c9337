// What sharding will make, from the shapes alone: which units there are, and how many bytes each
// takes sharded and unsharded. No values are allocated and no ranks are needed, so any number of
// ranks can be asked about. Not here: when they are gathered and reduced (unit_timeline.h), memory
// as formulas (memory_formula.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/fsdp/options.h"
#include "tools/predict/memory_formula.h"

namespace fsdp::tools {

struct UnitRow {
  std::string name;
  std::vector<Shape> shapes = {};  // of its parameters
  std::vector<const Parameter*> trained = {};
  int64_t parameters = 0;               // elements, without padding
  int depth = 0;                        // how many units are around it
  std::vector<SegmentExtent> segments;  // trainable, frozen: as they are flattened and sharded
  int64_t norm_blocks = 0;              // of the trainable ones, with fixed_order
  int64_t place = 0;                    // in the order of use
  bool is_table = false;                // of an embedding
  bool backward_comes = true;           // something in it or before it is trained
  bool input_has_gradient = true;       // something before it is
  // The place of the block that it is or lies in, if backward runs that one's forward again.
  std::optional<int64_t> recomputed_block = std::nullopt;
  comm::UnitPolicy policy = {};
  int64_t shard_numel() const;
};

// Root first.
std::vector<UnitRow> unit_rows(Module& root, const comm::WrapPolicy& wrap,
                               const comm::FsdpOptions& options, comm::GroupSizes groups);
// `positions`: of a forward of a rank, rows x length.
MemoryPlan memory_plan(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                       int shards, const models::ModelConfig& model,
                       const optim::OptimizerOptions& optimizer, int64_t positions);

// Of a number of elements; and of a number of bytes, as text.
int64_t bytes_of(int64_t numel, DType dtype);
std::string mib(int64_t bytes);

// Texts of several lines. Units in a row that are alike become one line, which ends with what they
// do otherwise than `options` say.
std::string format_units(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                         comm::GroupSizes groups);
// Elements per rank as PyTorch's FSDP1 or FSDP2 would have them, beside ours.
enum class PyTorchLayout : uint8_t { kFsdp1, kFsdp2 };
std::string format_layout(const std::vector<UnitRow>& units, PyTorchLayout layout, int shards,
                          DType dtype);

}  // namespace fsdp::tools
