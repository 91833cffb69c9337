// Descriptors, and the choice among engines. Contract: cudnn_graph.h.
#include "kernels/cuda/cudnn_graph.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::cuda::dnn {
namespace {

std::string explanation(Status status) {
  std::array<char, 512> text{};
  library().last_error(text.data(), text.size() - 1);
  std::string out = library().error_string(status);
  if (text[0] != '\0') out += fmt::format(" ({})", text.data());
  return out;
}

}  // namespace

void check(Status status, const char* call) {
  if (status != kSuccess) fail("[cuDNN] {}: {}", call, explanation(status));
}

// ---- descriptors ----

Object::Object(DescriptorType type) {
  check(library().descriptor_create(type, &descriptor_), "BackendCreateDescriptor");
}

Object::~Object() {
  if (descriptor_) library().descriptor_destroy(descriptor_);
}

void Object::set_values(Attribute attribute, AttributeType type, size_t count, const void* values) {
  const Status status =
      library().descriptor_set(descriptor_, attribute, type, static_cast<int64_t>(count), values);
  if (status == kSuccess) return;
  fail("[cuDNN] BackendSetAttribute {}: {}", static_cast<int>(attribute), explanation(status));
}

int64_t Object::get_values(Attribute attribute, AttributeType type, int64_t room,
                           void* values) const {
  int64_t count = 0;
  const Status status =
      library().descriptor_get(descriptor_, attribute, type, room, &count, values);
  if (status == kSuccess) return count;
  fail("[cuDNN] BackendGetAttribute {}: {}", static_cast<int>(attribute), explanation(status));
}

Status Object::try_finalize() { return library().descriptor_finalize(descriptor_); }

void Object::finalize(const char* what) { check(try_finalize(), what); }

// ---- graphs ----

Extents packed_strides(const Extents& dimensions) {
  Extents strides = {0, 0, 0, 1};
  for (size_t i = 3; i > 0; --i) strides[i - 1] = strides[i] * dimensions[i];
  return strides;
}

GraphTensor Graph::tensor(int64_t id, DataType type, const Extents& dimensions,
                          const Extents& strides, bool is_virtual, bool by_value) {
  Object made(kTensor);
  made.set(kTensorId, id);
  made.set(kTensorDataType, type);
  made.set(kTensorDimensions, dimensions.data(), dimensions.size());
  made.set(kTensorStrides, strides.data(), strides.size());
  made.set(kTensorAlignment, int64_t{16});
  made.set(kTensorIsVirtual, is_virtual);
  made.set(kTensorIsByValue, by_value);
  made.finalize("tensor");
  const Descriptor descriptor = made.get();
  objects_.push_back(std::move(made));
  return {descriptor, dimensions, strides};
}

GraphTensor Graph::memory(int64_t id, DataType type, const Extents& dimensions,
                          const Extents& strides) {
  return tensor(id, type, dimensions, strides, false, false);
}

GraphTensor Graph::scalar(int64_t id, DataType type) {
  return tensor(id, type, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}

GraphTensor Graph::between(DataType type, const Extents& dimensions) {
  return between(type, dimensions, packed_strides(dimensions));
}

GraphTensor Graph::between(DataType type, const Extents& dimensions, const Extents& strides) {
  return tensor(next_id_++, type, dimensions, strides, true, false);
}

void Graph::add(Object&& operation, const char* what) {
  operation.finalize(what);
  operations_.push_back(operation.get());
  objects_.push_back(std::move(operation));
}

void Graph::pointwise(const Pointwise& operation, const GraphTensor& y) {
  Object kind(kPointwise);
  kind.set(kPointwiseModeOf, operation.mode);
  kind.set(kPointwisePrecision, operation.precision);
  if (operation.axis >= 0) kind.set(kPointwiseAxis, operation.axis);
  kind.finalize("pointwise");
  Object made(kPointwiseOperation);
  made.set(kPointwiseDescriptor, kind.get());
  made.set(kPointwiseX, operation.x.descriptor);
  if (operation.b) made.set(kPointwiseB, operation.b->descriptor);
  if (operation.t) made.set(kPointwiseT, operation.t->descriptor);
  made.set(kPointwiseY, y.descriptor);
  objects_.push_back(std::move(kind));
  add(std::move(made), "pointwise operation");
}

void Graph::matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c) {
  Object kind(kMatmul);
  kind.set(kMatmulPrecision, kFloat);
  kind.finalize("matmul");
  Object made(kMatmulOperation);
  made.set(kMatmulA, a.descriptor);
  made.set(kMatmulB, b.descriptor);
  made.set(kMatmulC, c.descriptor);
  made.set(kMatmulDescriptor, kind.get());
  objects_.push_back(std::move(kind));
  add(std::move(made), "matmul operation");
}

void Graph::reduce(ReductionOperator operation, const GraphTensor& x, const GraphTensor& y) {
  Object kind(kReduction);
  kind.set(kReductionOperatorOf, operation);
  kind.set(kReductionPrecision, kFloat);
  kind.finalize("reduction");
  Object made(kReductionOperation);
  made.set(kReductionX, x.descriptor);
  made.set(kReductionY, y.descriptor);
  made.set(kReductionDescriptor, kind.get());
  objects_.push_back(std::move(kind));
  add(std::move(made), "reduction operation");
}

void Graph::reshape(const GraphTensor& x, const GraphTensor& y) {
  Object made(kReshapeOperation);
  made.set(kReshapeX, x.descriptor);
  made.set(kReshapeY, y.descriptor);
  add(std::move(made), "reshape operation");
}

// ---- plans ----

namespace {

std::vector<Object> engine_configs(const Object& operation_graph, const Target& target) {
  Object heuristic(kEngineHeuristic);
  heuristic.set(kHeuristicGraph, operation_graph.get());
  heuristic.set(kHeuristicModeOf, kHeuristicA);
  if (target.device) heuristic.set(kHeuristicDevice, target.device);
  if (heuristic.try_finalize() != kSuccess) return {};  // no engine knows such a graph
  const int64_t count = heuristic.get<Descriptor>(kHeuristicResults, nullptr, 0);
  std::vector<Object> configs;
  std::vector<Descriptor> places;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(kEngineConfig);
    places.push_back(configs.back().get());
  }
  const int64_t found = heuristic.get(kHeuristicResults, places.data(), count);
  configs.erase(configs.begin() + std::min(found, count), configs.end());
  return configs;
}

struct Engine {
  int64_t index = 0;
  bool deterministic = true;
};

Engine engine_of(const Object& config) {
  Object engine(kEngine);
  Descriptor place = engine.get();
  config.get(kConfigEngine, &place, 1);
  Engine out;
  engine.get(kEngineIndex, &out.index, 1);
  std::array<NumericalNote, kNumericalNotes> notes{};
  const int64_t count = engine.get(kEngineNumericalNote, notes.data(), kNumericalNotes);
  out.deterministic =
      std::count(notes.begin(), notes.begin() + std::min<int64_t>(count, kNumericalNotes),
                 kNondeterministic) == 0;
  return out;
}

int64_t workspace_of(const Object& object, Attribute attribute) {
  int64_t bytes = 0;
  object.get(attribute, &bytes, 1);
  return bytes;
}

}  // namespace

Plan::Choice Plan::make(Graph graph, const Target& target, const Terms& terms) {
  const std::vector<Descriptor> operations = graph.operations();
  Object operation_graph(kOperationGraph);
  operation_graph.set(kGraphOperations, operations.data(), operations.size());
  if (target.handle) operation_graph.set(kGraphHandle, target.handle);
  operation_graph.finalize("operation graph");
  Choice choice = {.plan = nullptr, .why = "cuDNN has no engine for it on this GPU"};
  for (Object& config : engine_configs(operation_graph, target)) {
    const Engine engine = engine_of(config);
    const int64_t bytes = workspace_of(config, kConfigWorkspaceBytes);
    if (terms.same_bits && !engine.deterministic) {
      choice.why = fmt::format("cuDNN's engine {} gives other bits every time", engine.index);
      continue;
    }
    if (bytes > terms.workspace_limit) {
      choice.too_large = true;
      choice.why = fmt::format("cuDNN's engine {} needs {} bytes of workspace: expected at most {}",
                               engine.index, bytes, terms.workspace_limit);
      if (terms.engines == Engines::kBest) return choice;
      continue;
    }
    Object plan(kExecutionPlan);
    if (target.handle) plan.set(kPlanHandle, target.handle);
    if (target.device) plan.set(kPlanDevice, target.device);
    plan.set(kPlanConfig, config.get());
    if (const Status status = plan.try_finalize(); status != kSuccess) {
      choice.why = fmt::format("cuDNN's engine {}: {}", engine.index, explanation(status));
      continue;
    }
    choice.plan.reset(
        new Plan(std::move(graph), std::move(operation_graph), std::move(config), std::move(plan)));
    choice.plan->workspace_bytes_ = workspace_of(choice.plan->plan_, kPlanWorkspaceBytes);
    choice.plan->engine_ = engine.index;
    return choice;
  }
  return choice;
}

Status Plan::run(Handle handle, const std::vector<Binding>& bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> addresses;
  for (const Binding& binding : bindings) {
    ids.push_back(binding.id);
    addresses.push_back(binding.address);
  }
  Object pack(kVariantPack);
  pack.set(kPackIds, ids.data(), ids.size());
  pack.set(kPackPointers, addresses.data(), addresses.size());
  pack.set(kPackWorkspace, workspace);
  pack.finalize("variant pack");
  return library().execute(handle, plan_.get(), pack.get());
}

}  // namespace fsdp::cuda::dnn
