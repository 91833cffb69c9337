// Graphs of operations for cuDNN's fusing engines, and plans that run them: owners of the library's
// descriptors and nothing of attention. A tensor has four dimensions; one that is only `between`
// operations never reaches memory. Made through the library's C interface: why not cudnn-frontend
// says [Note: attention for cuDNN] in cudnn_attention_graph.h.
// Read next: cudnn_attention_graph.cpp, which builds graphs of these.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cudnn.h"

namespace fsdp::cuda::dnn {

// Throws "[cuDNN] call: status (what the library says)".
void check(Status status, const char* call);

template <typename T>
constexpr AttributeType kTypeOf = AttributeType(-1);
template <>
inline constexpr AttributeType kTypeOf<Handle> = kTypeHandle;
template <>
inline constexpr AttributeType kTypeOf<DataType> = kTypeDataType;
template <>
inline constexpr AttributeType kTypeOf<bool> = kTypeBoolean;
template <>
inline constexpr AttributeType kTypeOf<int64_t> = kTypeInt64;
template <>
inline constexpr AttributeType kTypeOf<void*> = kTypePointer;
template <>
inline constexpr AttributeType kTypeOf<HeuristicMode> = kTypeHeuristicMode;
template <>
inline constexpr AttributeType kTypeOf<NumericalNote> = kTypeNumericalNote;
template <>
inline constexpr AttributeType kTypeOf<PointwiseMode> = kTypePointwiseMode;
template <>
inline constexpr AttributeType kTypeOf<Descriptor> = kTypeDescriptor;
template <>
inline constexpr AttributeType kTypeOf<ReductionOperator> = kTypeReductionOperator;
template <>
inline constexpr AttributeType kTypeOf<char> = kTypeChar;

// One descriptor, owned: attributes are set, it is finalized, then it is only read.
class Object {
 public:
  explicit Object(DescriptorType type);
  Object(Object&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Object();

  Descriptor get() const { return descriptor_; }

  template <typename T>
  void set(Attribute attribute, const T* values, size_t count) {
    static_assert(kTypeOf<T> != AttributeType(-1));
    set_values(attribute, kTypeOf<T>, count, values);
  }
  template <typename T>
  void set(Attribute attribute, const T& value) {
    set(attribute, &value, 1);
  }
  Status try_finalize();
  void finalize(const char* what);  // what: for the error

  // How many values there are; up to `room` of them are read.
  template <typename T>
  int64_t get(Attribute attribute, T* values, int64_t room) const {
    return get_values(attribute, kTypeOf<T>, room, values);
  }

 private:
  void set_values(Attribute attribute, AttributeType type, size_t count, const void* values);
  int64_t get_values(Attribute attribute, AttributeType type, int64_t room, void* values) const;

  Descriptor descriptor_ = nullptr;
};

using Extents = std::array<int64_t, 4>;
Extents packed_strides(const Extents& dimensions);  // row-major

struct GraphTensor {
  Descriptor descriptor;
  Extents dimensions;
  Extents strides;
};

// Operations in the order in which they are added: engines recognise graphs by it. Operands of
// fewer elements are repeated, as in NumPy.
class Graph {
 public:
  // Memory that a run names by `id` (below kFirstOwnId), at 16 bytes.
  GraphTensor memory(int64_t id, DataType type, const Extents& dimensions, const Extents& strides);
  // One number, that a run gives by address in host memory.
  GraphTensor scalar(int64_t id, DataType type);
  GraphTensor between(DataType type, const Extents& dimensions);
  GraphTensor between(DataType type, const Extents& dimensions, const Extents& strides);

  struct Pointwise {
    PointwiseMode mode;
    const GraphTensor& x;
    const GraphTensor* b = nullptr;  // second operand
    const GraphTensor* t = nullptr;  // of a selection: where x is taken, else b
    DataType precision = kFloat;
    int64_t axis = -1;  // of indices
  };
  void pointwise(const Pointwise& operation, const GraphTensor& y);
  void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c);
  // Over the dimensions that y has 1 of, or fewer than x: heads that share one.
  void reduce(ReductionOperator operation, const GraphTensor& x, const GraphTensor& y);
  void reshape(const GraphTensor& x, const GraphTensor& y);  // other strides, dimensions exchanged

  std::vector<Descriptor> operations() const { return operations_; }

 private:
  static constexpr int64_t kFirstOwnId = 1000;

  GraphTensor tensor(int64_t id, DataType type, const Extents& dimensions, const Extents& strides,
                     bool is_virtual, bool by_value);
  void add(Object&& operation, const char* what);

  int64_t next_id_ = kFirstOwnId;
  std::vector<Object> objects_;  // of all that the operations name
  std::vector<Descriptor> operations_;
};

// What a plan is made for: a handle's device, or one that is only described (kDeviceProperties), to
// see whether a graph is supported there.
struct Target {
  Handle handle = nullptr;
  Descriptor device = nullptr;
};

// Where the tensors of a run are.
struct Binding {
  int64_t id;
  void* address;
};

class Plan {
 public:
  struct Choice {
    std::unique_ptr<Plan> plan;  // null: there is none
    std::string why;
    bool too_large = false;  // there would be one with more workspace
  };
  // Engines are ordered by speed. kBest: one that needs too much workspace is the answer, since a
  // smaller problem may fit it. kAnyThatFits: a slower one, with other bits, will do.
  enum class Engines : uint8_t { kBest, kAnyThatFits };
  struct Terms {
    int64_t workspace_limit = 0;  // bytes
    Engines engines = Engines::kBest;
    bool same_bits = true;  // without engines that say of themselves that they give others
  };
  // The first that the heuristic names, that keeps the terms and can be compiled (about a second).
  static Choice make(Graph graph, const Target& target, const Terms& terms);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  int64_t engine() const { return engine_; }  // its number, for reports
  Status run(Handle handle, const std::vector<Binding>& bindings, void* workspace) const;

 private:
  Plan(Graph&& graph, Object&& operation_graph, Object&& config, Object&& plan)
      : graph_(std::move(graph)),
        operation_graph_(std::move(operation_graph)),
        config_(std::move(config)),
        plan_(std::move(plan)) {}

  Graph graph_;
  Object operation_graph_, config_, plan_;
  int64_t workspace_bytes_ = 0, engine_ = 0;
};

}  // namespace fsdp::cuda::dnn
