// Runs a graph of cuDNN's operations one by one, on the CPU: it knows products, elementwise
// operations, reductions and reshapes, and nothing of attention. Numbers are f32, rounded to the
// type of each tensor that they are stored in. A product that ends in memory in f32 is added to
// what is there, as the library's engines do it. Read next: cudnn.cpp, which makes these of
// descriptors.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn.h"

namespace fsdp::emulator {

using FourExtents = std::array<int64_t, 4>;

struct CudnnTensor {
  int64_t id = 0, alignment = 0;
  cuda::dnn::DataType type = cuda::dnn::kFloat;
  FourExtents dimensions{}, strides{};
  bool is_virtual = false, by_value = false;

  bool operator==(const CudnnTensor&) const = default;
  int64_t elements() const;
  bool in_memory() const { return !is_virtual && !by_value; }
};

struct CudnnOperation {
  cuda::dnn::DescriptorType kind = cuda::dnn::kPointwiseOperation;
  cuda::dnn::PointwiseMode mode = cuda::dnn::kAdd;
  cuda::dnn::ReductionOperator reduction = cuda::dnn::kReduceAdd;
  int64_t axis = -1;
  CudnnTensor x, y;  // of a product: y = x b
  std::optional<CudnnTensor> b, t;

  bool adds_to_memory() const {
    return kind == cuda::dnn::kMatmulOperation && y.in_memory() && y.type == cuda::dnn::kFloat;
  }
};

// What is wrong with it by itself; empty: nothing.
std::string problem_of(const CudnnOperation& operation);
// What is wrong with them together.
std::string problem_of(const std::vector<CudnnOperation>& graph);

struct CudnnRun {
  std::vector<CudnnOperation> graph;
  std::map<int64_t, void*> memory;
  std::map<int64_t, float> numbers;

  void run() const;
};

}  // namespace fsdp::emulator
