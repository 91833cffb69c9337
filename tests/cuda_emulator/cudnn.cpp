// cuDNN's backend API as far as the project calls it, on the CPU. Descriptors are checked as the
// library checks them (attributes by type, finalized before they are used); a plan runs whatever
// graph it was made from, operation by operation (cudnn_interpreter.h), so that a test of attention
// is a test of the graph. The first engine says that it is not deterministic: it runs such graphs
// only as add to memory. The second cannot be compiled. The last needs less workspace than the
// third.
#include "kernels/cuda/cudnn.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "tests/cuda_emulator/cudnn_interpreter.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/scheduler.h"

namespace fsdp::cuda::dnn {

using emulator::CudnnOperation;
using emulator::CudnnRun;
using emulator::CudnnTensor;
using emulator::FourExtents;

struct HandleContent {
  cudaStream_t stream = nullptr;
};

struct DescriptorContent {
  struct Value {
    AttributeType type;
    int64_t count;
    std::vector<std::byte> bytes;
  };

  DescriptorType type;
  bool finalized = false;
  std::map<Attribute, Value> values = {};
  // of what is finalized, by type
  CudnnTensor tensor = {};
  CudnnOperation operation = {};
  std::vector<CudnnOperation> graph = {};
  int64_t engine = 0;

  bool has(Attribute attribute) const { return values.contains(attribute); }
  template <typename T>
  std::vector<T> all(Attribute attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> out(static_cast<size_t>(found->second.count));
    if constexpr (std::is_same_v<T, bool>) {
      for (size_t i = 0; i < out.size(); ++i) out[i] = found->second.bytes[i] != std::byte{0};
    } else {
      std::memcpy(out.data(), found->second.bytes.data(), out.size() * sizeof(T));
    }
    return out;
  }
  template <typename T>
  T one(Attribute attribute, T otherwise = {}) const {
    const std::vector<T> found = all<T>(attribute);
    return found.empty() ? otherwise : found[0];
  }
  // Of a finalized descriptor of the right type, else null.
  Descriptor other(Attribute attribute, DescriptorType wanted) const {
    const Descriptor found = one<Descriptor>(attribute);
    return found && found->finalized && found->type == wanted ? found : nullptr;
  }
};

namespace {

thread_local std::string last_message;

Status refuse(Status status, std::string message) {
  last_message = std::move(message);
  return status;
}

constexpr int64_t kNondeterministicEngine = 1, kBrokenEngine = 2, kGoodEngine = 3,
                  kLesserEngine = 4;

// ---- attributes: of which descriptor, of which type ----

struct Rule {
  DescriptorType descriptor;
  AttributeType type;
  int64_t count;  // 0: any
  bool needed;
};

const std::map<Attribute, Rule> kRules = {
    {kPointwiseModeOf, {kPointwise, kTypePointwiseMode, 1, true}},
    {kPointwisePrecision, {kPointwise, kTypeDataType, 1, true}},
    {kPointwiseAxis, {kPointwise, kTypeInt64, 1, false}},
    {kHeuristicModeOf, {kEngineHeuristic, kTypeHeuristicMode, 1, true}},
    {kHeuristicGraph, {kEngineHeuristic, kTypeDescriptor, 1, true}},
    {kPlanHandle, {kExecutionPlan, kTypeHandle, 1, true}},
    {kPlanConfig, {kExecutionPlan, kTypeDescriptor, 1, true}},
    {kPointwiseDescriptor, {kPointwiseOperation, kTypeDescriptor, 1, true}},
    {kPointwiseX, {kPointwiseOperation, kTypeDescriptor, 1, true}},
    {kPointwiseB, {kPointwiseOperation, kTypeDescriptor, 1, false}},
    {kPointwiseY, {kPointwiseOperation, kTypeDescriptor, 1, true}},
    {kPointwiseT, {kPointwiseOperation, kTypeDescriptor, 1, false}},
    {kGraphHandle, {kOperationGraph, kTypeHandle, 1, true}},
    {kGraphOperations, {kOperationGraph, kTypeDescriptor, 0, true}},
    {kTensorAlignment, {kTensor, kTypeInt64, 1, true}},
    {kTensorDataType, {kTensor, kTypeDataType, 1, true}},
    {kTensorDimensions, {kTensor, kTypeInt64, 4, true}},
    {kTensorStrides, {kTensor, kTypeInt64, 4, true}},
    {kTensorId, {kTensor, kTypeInt64, 1, true}},
    {kTensorIsVirtual, {kTensor, kTypeBoolean, 1, false}},
    {kTensorIsByValue, {kTensor, kTypeBoolean, 1, false}},
    {kPackIds, {kVariantPack, kTypeInt64, 0, true}},
    {kPackPointers, {kVariantPack, kTypePointer, 0, true}},
    {kPackWorkspace, {kVariantPack, kTypePointer, 1, false}},
    {kMatmulPrecision, {kMatmul, kTypeDataType, 1, true}},
    {kMatmulA, {kMatmulOperation, kTypeDescriptor, 1, true}},
    {kMatmulB, {kMatmulOperation, kTypeDescriptor, 1, true}},
    {kMatmulC, {kMatmulOperation, kTypeDescriptor, 1, true}},
    {kMatmulDescriptor, {kMatmulOperation, kTypeDescriptor, 1, true}},
    {kReductionOperatorOf, {kReduction, kTypeReductionOperator, 1, true}},
    {kReductionPrecision, {kReduction, kTypeDataType, 1, true}},
    {kReductionX, {kReductionOperation, kTypeDescriptor, 1, true}},
    {kReductionY, {kReductionOperation, kTypeDescriptor, 1, true}},
    {kReductionDescriptor, {kReductionOperation, kTypeDescriptor, 1, true}},
    {kReshapeX, {kReshapeOperation, kTypeDescriptor, 1, true}},
    {kReshapeY, {kReshapeOperation, kTypeDescriptor, 1, true}},
};

size_t bytes_of(AttributeType type) {
  switch (type) {
    case kTypeBoolean:
      return sizeof(bool);
    case kTypeInt64:
    case kTypePointer:
    case kTypeHandle:
    case kTypeDescriptor:
      return 8;
    default:
      return 4;
  }
}

Status set(Descriptor descriptor, Attribute attribute, AttributeType type, int64_t count,
           const void* values) {
  const auto rule = kRules.find(attribute);
  if (rule == kRules.end() || rule->second.descriptor != descriptor->type ||
      rule->second.type != type || count < 1 ||
      (rule->second.count != 0 && rule->second.count != count)) {
    return refuse(kBadParameter, "not an attribute of it");
  }
  if (descriptor->finalized) return refuse(kBadParameter, "it is finalized");
  DescriptorContent::Value value = {type, count, {}};
  value.bytes.resize(static_cast<size_t>(count) * bytes_of(type));
  std::memcpy(value.bytes.data(), values, value.bytes.size());
  descriptor->values[attribute] = std::move(value);
  return kSuccess;
}

// ---- what finalizing checks ----

Status finalize_tensor(DescriptorContent& d) {
  CudnnTensor& tensor = d.tensor;
  tensor.id = d.one<int64_t>(kTensorId);
  tensor.alignment = d.one<int64_t>(kTensorAlignment);
  tensor.type = d.one<DataType>(kTensorDataType);
  tensor.is_virtual = d.one<bool>(kTensorIsVirtual);
  tensor.by_value = d.one<bool>(kTensorIsByValue);
  const std::vector<int64_t> dimensions = d.all<int64_t>(kTensorDimensions);
  const std::vector<int64_t> strides = d.all<int64_t>(kTensorStrides);
  for (size_t i = 0; i < 4; ++i) {
    tensor.dimensions[i] = dimensions[i];
    tensor.strides[i] = strides[i];
    if (dimensions[i] < 1 || strides[i] < 1) return refuse(kBadParameter, "extents of a tensor");
  }
  if (tensor.is_virtual && tensor.by_value) return refuse(kBadParameter, "virtual and by value");
  if (tensor.by_value && tensor.elements() != 1) return refuse(kBadParameter, "not one number");
  return kSuccess;
}

Status finalize_operation(DescriptorContent& d, Attribute kind_attribute, DescriptorType kind_type,
                          std::array<Attribute, 2> ends) {
  CudnnOperation& o = d.operation;
  o.kind = d.type;
  if (d.type != kReshapeOperation) {
    const Descriptor kind = d.other(kind_attribute, kind_type);
    if (!kind) return refuse(kBadParameter, "an operation without its kind");
    o.mode = kind->one(kPointwiseModeOf, kAdd);
    o.axis = kind->one<int64_t>(kPointwiseAxis, -1);
    o.reduction = kind->one(kReductionOperatorOf, kReduceAdd);
  }
  const Descriptor x = d.other(ends[0], kTensor), y = d.other(ends[1], kTensor);
  if (!x || !y) return refuse(kBadParameter, "tensors that are not finalized");
  o.x = x->tensor;
  o.y = y->tensor;
  for (const auto& [attribute, to] :
       {std::pair{kMatmulB, &o.b}, {kPointwiseB, &o.b}, {kPointwiseT, &o.t}}) {
    if (!d.has(attribute)) continue;
    const Descriptor operand = d.other(attribute, kTensor);
    if (!operand) return refuse(kBadParameter, "tensors that are not finalized");
    *to = operand->tensor;
  }
  const std::string problem = problem_of(o);
  return problem.empty() ? kSuccess : refuse(kBadParameter, problem);
}

Status finalize_graph(DescriptorContent& d) {
  for (const Descriptor operation : d.all<Descriptor>(kGraphOperations)) {
    if (!operation->finalized) return refuse(kBadParameter, "an operation is not finalized");
    d.graph.push_back(operation->operation);
  }
  const std::string problem = problem_of(d.graph);
  return problem.empty() ? kSuccess : refuse(kBadParameter, problem);
}

bool adds_to_memory(const std::vector<CudnnOperation>& graph) {
  return std::ranges::any_of(graph, &CudnnOperation::adds_to_memory);
}

// Operands and results of products in memory: 16 bits wide (or sums in f32), rows of 16 bytes.
bool supported(const std::vector<CudnnOperation>& graph) {
  for (const CudnnOperation& o : graph) {
    if (o.kind != kMatmulOperation) continue;
    for (const CudnnTensor* tensor : {&o.x, &*o.b, &o.y}) {
      if (!tensor->in_memory() || (tensor == &o.y && o.adds_to_memory())) continue;
      if (tensor->type != kHalf && tensor->type != kBFloat16) return false;
      const size_t inner = tensor->strides[3] == 1 ? 3 : 2;
      if (tensor->dimensions[inner] % 8 != 0 || tensor->strides[inner] != 1) return false;
    }
  }
  return true;
}

// As much as a GPU's engines take: some bytes always, products that a reduction adds up, and what a
// product takes from another operation in f32, in 16 bits and whole tiles. A product that adds to
// memory has sums of its own in its place. The lesser engine keeps a number of a row.
int64_t workspace_bytes(const std::vector<CudnnOperation>& graph, int64_t engine) {
  const auto whole_tiles = [](int64_t n) { return (n + 63) / 64 * 64; };
  const bool lesser = engine == kLesserEngine;
  int64_t bytes = lesser ? 0 : 256;
  for (const CudnnOperation& o : graph) {
    if (o.kind == kReductionOperation && o.x.type != kFloat && !lesser) bytes += 2 * o.x.elements();
    if (o.kind != kMatmulOperation || !o.x.is_virtual || o.x.type != kFloat) continue;
    if (o.adds_to_memory()) {
      const FourExtents& y = o.y.dimensions;
      if (!lesser) bytes += 4 * y[0] * y[1] * ((y[2] + 7) / 8 * 8) * y[3];
      continue;
    }
    const int64_t heads = o.x.dimensions[0] * o.x.dimensions[1];
    const int64_t rows = whole_tiles(o.x.dimensions[2]), columns = whole_tiles(o.x.dimensions[3]);
    bytes += heads * rows * (lesser ? 4 : 2 * columns);
  }
  return bytes;
}

Status finalize_others(DescriptorContent& d) {
  switch (d.type) {
    case kEngineHeuristic: {
      const Descriptor graph = d.other(kHeuristicGraph, kOperationGraph);
      if (!graph || d.one(kHeuristicModeOf, HeuristicMode{}) != kHeuristicA) {
        return refuse(kBadParameter, "a heuristic without its graph");
      }
      if (supported(graph->graph)) d.graph = graph->graph;
      return kSuccess;
    }
    case kExecutionPlan: {
      emulator::wait_for_streams();  // it loads kernels
      const Descriptor config = d.one<Descriptor>(kPlanConfig);
      if (config->type != kEngineConfig || config->engine == 0) {
        return refuse(kBadParameter, "a plan without an engine");
      }
      if (emulator::context_lost()) return refuse(kExecutionFailed, "");
      if (config->engine == kBrokenEngine) return refuse(kNotSupported, "compilation failed");
      d.graph = config->graph;
      d.engine = config->engine;
      return kSuccess;
    }
    case kVariantPack:
      return d.all<int64_t>(kPackIds).size() == d.all<void*>(kPackPointers).size()
                 ? kSuccess
                 : refuse(kBadParameter, "as many pointers as ids");
    default:
      return kSuccess;
  }
}

Status finalize(Descriptor d) {
  if (d->finalized) return refuse(kBadParameter, "finalized twice");
  for (const auto& [attribute, rule] : kRules) {
    if (rule.descriptor == d->type && rule.needed && !d->has(attribute)) {
      return refuse(kBadParameter,
                    fmt::format("attribute {} is missing", static_cast<int>(attribute)));
    }
  }
  Status status = kSuccess;
  switch (d->type) {
    case kTensor:
      status = finalize_tensor(*d);
      break;
    case kPointwiseOperation:
      status = finalize_operation(*d, kPointwiseDescriptor, kPointwise, {kPointwiseX, kPointwiseY});
      break;
    case kMatmulOperation:
      status = finalize_operation(*d, kMatmulDescriptor, kMatmul, {kMatmulA, kMatmulC});
      break;
    case kReductionOperation:
      status = finalize_operation(*d, kReductionDescriptor, kReduction, {kReductionX, kReductionY});
      break;
    case kReshapeOperation:
      status = finalize_operation(*d, {}, {}, {kReshapeX, kReshapeY});
      break;
    case kOperationGraph:
      status = finalize_graph(*d);
      break;
    default:
      status = finalize_others(*d);
  }
  d->finalized = status == kSuccess;
  return status;
}

// ---- what is read ----

template <typename T>
Status answer(T value, int64_t room, int64_t* count, void* values) {
  *count = 1;
  if (room >= 1) std::memcpy(values, &value, sizeof value);
  return kSuccess;
}

Status heuristic_results(Descriptor d, int64_t room, int64_t* count, void* values) {
  *count = d->graph.empty() ? 0 : emulator::settings().cudnn_engines;
  auto* configs = static_cast<Descriptor*>(values);
  for (int64_t i = 0; i < std::min(room, *count); ++i) {
    if (configs[i]->type != kEngineConfig) return refuse(kBadParameter, "not a configuration");
    configs[i]->graph = d->graph;
    configs[i]->engine = kNondeterministicEngine + i;
    configs[i]->finalized = true;
  }
  return kSuccess;
}

Status get(const Descriptor d, Attribute attribute, AttributeType, int64_t room, int64_t* count,
           void* values) {
  if (attribute != kEngineIndex && attribute != kEngineNumericalNote && !d->finalized) {
    return refuse(kBadParameter, "it is not finalized");
  }
  switch (attribute) {
    case kHeuristicResults:
      return heuristic_results(d, room, count, values);
    case kConfigEngine: {
      Descriptor* engine = static_cast<Descriptor*>(values);
      *count = 1;
      (*engine)->engine = d->engine;
      return kSuccess;
    }
    case kConfigWorkspaceBytes:
    case kPlanWorkspaceBytes:
      return answer(workspace_bytes(d->graph, d->engine), room, count, values);
    case kEngineIndex:
      return answer(d->engine, room, count, values);
    case kEngineNumericalNote:
      answer(kNondeterministic, d->engine == kNondeterministicEngine ? room : 0, count, values);
      if (d->engine != kNondeterministicEngine) *count = 0;
      return kSuccess;
    default:
      return refuse(kBadParameter, "not an attribute of it");
  }
}

// ---- runs ----

Status execute(Handle handle, Descriptor plan, Descriptor pack) {
  if (emulator::context_lost()) return refuse(kExecutionFailed, "");
  if (!plan->finalized || !pack->finalized) return refuse(kBadParameter, "it is not finalized");
  if (plan->engine < kGoodEngine && !adds_to_memory(plan->graph)) {
    return refuse(kBadParameter, "not a deterministic engine");
  }
  const std::vector<int64_t> ids = pack->all<int64_t>(kPackIds);
  const std::vector<void*> pointers = pack->all<void*>(kPackPointers);
  std::map<int64_t, void*> given;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!given.emplace(ids[i], pointers[i]).second) return refuse(kBadParameter, "an id twice");
  }
  auto run = std::make_shared<CudnnRun>(CudnnRun{plan->graph, {}, {}});
  for (const CudnnOperation& o : plan->graph) {
    for (const CudnnTensor* tensor : {&o.x, &o.y, o.b ? &*o.b : nullptr, o.t ? &*o.t : nullptr}) {
      if (!tensor || tensor->is_virtual) continue;
      const auto found = given.find(tensor->id);
      if (found == given.end() || !found->second) return refuse(kBadParameter, "a null pointer");
      if (tensor->by_value) {  // read now
        run->numbers[tensor->id] = *static_cast<const float*>(found->second);
        continue;
      }
      if (reinterpret_cast<uintptr_t>(found->second) % static_cast<uintptr_t>(tensor->alignment)) {
        return refuse(kBadParameter, "a misaligned pointer");
      }
      run->memory[tensor->id] = found->second;
    }
  }
  if (run->memory.size() + run->numbers.size() != given.size()) {
    return refuse(kBadParameter, "an id that no tensor has");
  }
  const auto bytes = static_cast<size_t>(workspace_bytes(plan->graph, plan->engine));
  void* workspace = pack->one<void*>(kPackWorkspace);
  if (bytes > 0 && !workspace) return refuse(kBadParameter, "no workspace");
  // As a grid of one thread, so that it stands in the order and the delays of kernels.
  const cudaError_t error =
      emulator::enqueue_grid(handle->stream, dim3(1), dim3(1), 0, [run, workspace, bytes] {
        if (bytes > 0) std::memset(workspace, 0x5a, bytes);
        run->run();
      });
  return error == cudaSuccess ? kSuccess : kExecutionFailed;
}

}  // namespace

const Library& library() {
  static const Library table = {
      .version = [] { return kOldest; },
      .cudart_version = [] { return size_t{CUDART_VERSION}; },
      .error_string = [](Status) { return "emulated"; },
      .last_error = [](char* message,
                       size_t room) { std::strncpy(message, last_message.c_str(), room); },
      .create =
          [](Handle* handle) {
            if (emulator::settings().without_cudnn) return refuse(kNotSupported, "left out");
            if (emulator::context_lost()) return refuse(kExecutionFailed, "");
            *handle = new HandleContent;
            return kSuccess;
          },
      .destroy =
          [](Handle handle) {
            delete handle;
            return kSuccess;
          },
      .set_stream =
          [](Handle handle, cudaStream_t stream) {
            handle->stream = stream;
            return kSuccess;
          },
      .descriptor_create =
          [](DescriptorType type, Descriptor* descriptor) {
            *descriptor = new DescriptorContent{type};
            return kSuccess;
          },
      .descriptor_destroy =
          [](Descriptor descriptor) {
            delete descriptor;
            return kSuccess;
          },
      .descriptor_finalize = finalize,
      .descriptor_set = set,
      .descriptor_get = get,
      .execute = execute,
  };
  return table;
}

const std::string& missing() {
  static const std::string nothing;
  return nothing;
}

}  // namespace fsdp::cuda::dnn
