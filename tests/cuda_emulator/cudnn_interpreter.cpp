// Contract: cudnn_interpreter.h.
#include "tests/cuda_emulator/cudnn_interpreter.h"

#include <cmath>
#include <limits>
#include <set>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace fsdp::emulator {

using namespace cuda::dnn;

namespace {

int64_t offset_of(const CudnnTensor& tensor, const FourExtents& index) {
  int64_t offset = 0;
  for (size_t i = 0; i < 4; ++i) offset += index[i] * tensor.strides[i];
  return offset;
}

int64_t span_of(const CudnnTensor& tensor) {  // elements from the first to the last
  FourExtents last = tensor.dimensions;
  for (int64_t& extent : last) --extent;
  return 1 + offset_of(tensor, last);
}

template <typename F>
void for_each(const FourExtents& extents, F f) {
  FourExtents i{};
  for (i[0] = 0; i[0] < extents[0]; ++i[0]) {
    for (i[1] = 0; i[1] < extents[1]; ++i[1]) {
      for (i[2] = 0; i[2] < extents[2]; ++i[2]) {
        for (i[3] = 0; i[3] < extents[3]; ++i[3]) f(i);
      }
    }
  }
}

// Where an element of larger extents lies in smaller ones: several neighbours share one.
FourExtents shared_index(const FourExtents& index, const FourExtents& larger,
                         const FourExtents& smaller) {
  FourExtents out;
  for (size_t i = 0; i < 4; ++i) out[i] = index[i] / (larger[i] / smaller[i]);
  return out;
}

bool divides(const FourExtents& smaller, const FourExtents& larger) {
  for (size_t i = 0; i < 4; ++i) {
    if (smaller[i] < 1 || larger[i] % smaller[i] != 0) return false;
  }
  return true;
}

bool repeats(const FourExtents& smaller, const FourExtents& larger) {  // extents of 1 only
  for (size_t i = 0; i < 4; ++i) {
    if (smaller[i] != larger[i] && smaller[i] != 1) return false;
  }
  return true;
}

float rounded(float value, DataType type) {
  switch (type) {
    case kBFloat16:
      return __bfloat162float(__float2bfloat16_rn(value));
    case kHalf:
      return __half2float(__float2half_rn(value));
    case kInt32:
      return std::trunc(value);
    case kBoolean:
      return value != 0 ? 1.0f : 0.0f;
    default:
      return value;
  }
}

float read(const void* data, DataType type, int64_t index) {
  switch (type) {
    case kBFloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
    case kHalf:
      return __half2float(static_cast<const __half*>(data)[index]);
    case kInt32:
      return static_cast<float>(static_cast<const int32_t*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

void write(void* data, DataType type, int64_t index, float value) {
  switch (type) {
    case kBFloat16:
      static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(value);
      break;
    case kHalf:
      static_cast<__half*>(data)[index] = __float2half_rn(value);
      break;
    default:
      static_cast<float*>(data)[index] = value;
  }
}

// A graph in the middle of a run. Virtual tensors have the gaps of their strides, for reshapes.
class Machine {
 public:
  explicit Machine(const CudnnRun& run) : run_(run) {}

  float at(const CudnnTensor& tensor, int64_t offset) const {
    if (tensor.by_value) return run_.numbers.at(tensor.id);
    if (!tensor.is_virtual) return read(run_.memory.at(tensor.id), tensor.type, offset);
    return between_.at(tensor.id).at(static_cast<size_t>(offset));
  }
  float at(const CudnnTensor& tensor, const FourExtents& index) const {
    return at(tensor, offset_of(tensor, index));
  }
  float shared(const CudnnTensor& tensor, const FourExtents& index,
               const FourExtents& larger) const {
    return at(tensor, shared_index(index, larger, tensor.dimensions));
  }

  void execute(const CudnnOperation& o) {
    const FourExtents extents = o.y.dimensions;
    if (o.y.is_virtual) {  // poisoned: what is not written shows
      between_[o.y.id].assign(static_cast<size_t>(span_of(o.y)),
                              std::numeric_limits<float>::quiet_NaN());
    }
    if (o.kind == kReductionOperation) return reduce(o);
    for_each(extents, [&](const FourExtents& i) {
      switch (o.kind) {
        case kMatmulOperation:
          return put(o.y, i, product(o, i) + (o.adds_to_memory() ? at(o.y, i) : 0.0f));
        case kReshapeOperation:
          return put(o.y, i, at(o.x, offset_of(o.y, i)));
        default:
          return put(o.y, i, pointwise(o, i));
      }
    });
  }

 private:
  void put(const CudnnTensor& tensor, const FourExtents& index, float value) {
    const int64_t offset = offset_of(tensor, index);
    if (!tensor.is_virtual) {
      return write(run_.memory.at(tensor.id), tensor.type, offset, value);
    }
    between_.at(tensor.id).at(static_cast<size_t>(offset)) = rounded(value, tensor.type);
  }

  float product(const CudnnOperation& o, const FourExtents& i) const {
    const FourExtents& c = o.y.dimensions;
    FourExtents a = shared_index({i[0], i[1], 0, 0}, {c[0], c[1], 1, 1},
                                 {o.x.dimensions[0], o.x.dimensions[1], 1, 1});
    FourExtents b = shared_index({i[0], i[1], 0, 0}, {c[0], c[1], 1, 1},
                                 {o.b->dimensions[0], o.b->dimensions[1], 1, 1});
    a[2] = i[2];
    b[3] = i[3];
    double sum = 0;
    for (int64_t l = 0; l < o.x.dimensions[3]; ++l) {
      a[3] = b[2] = l;
      sum += double{at(o.x, a)} * at(*o.b, b);
    }
    return static_cast<float>(sum);
  }

  float pointwise(const CudnnOperation& o, const FourExtents& i) const {
    const FourExtents& extents = o.y.dimensions;
    if (o.mode == kGenerateIndex) {
      return static_cast<float>(i[static_cast<size_t>(o.axis)]);
    }
    const float x = shared(o.x, i, extents);
    const float b = o.b ? shared(*o.b, i, extents) : 0.0f;
    switch (o.mode) {
      case kAdd:
        return x + b;
      case kMultiply:
        return x * b;
      case kDivide:
        return x / b;
      case kSubtract:
        return x - b;
      case kExp:
        return std::exp(x);
      case kLog:
        return std::log(x);
      case kIdentity:
        return x;
      case kCompareGreater:
        return x > b ? 1.0f : 0.0f;
      case kCompareGreaterEqual:
        return x >= b ? 1.0f : 0.0f;
      default:  // kBinarySelect
        return shared(*o.t, i, extents) != 0 ? x : b;
    }
  }

  void reduce(const CudnnOperation& o) {
    const bool add = o.reduction == kReduceAdd;
    std::map<int64_t, double> totals;  // by offset
    for_each(o.x.dimensions, [&](const FourExtents& i) {
      const int64_t to = offset_of(o.y, shared_index(i, o.x.dimensions, o.y.dimensions));
      const double value = at(o.x, i);
      const auto [place, fresh] = totals.try_emplace(to, value);
      if (!fresh) place->second = add ? place->second + value : std::fmax(place->second, value);
    });
    for_each(o.y.dimensions, [&](const FourExtents& i) {
      put(o.y, i, static_cast<float>(totals.at(offset_of(o.y, i))));
    });
  }

  const CudnnRun& run_;
  std::map<int64_t, std::vector<float>> between_;
};

std::string product_problem(const CudnnOperation& o) {
  if (!o.b) return "a product of one operand";
  const FourExtents &a = o.x.dimensions, &b = o.b->dimensions, &c = o.y.dimensions;
  const bool fits = a[2] == c[2] && b[3] == c[3] && a[3] == b[2];
  const bool batches = divides({a[0], a[1], 1, 1}, {c[0], c[1], 1, 1}) &&
                       divides({b[0], b[1], 1, 1}, {c[0], c[1], 1, 1});
  return fits && batches ? "" : "the extents of a product do not fit";
}

std::string pointwise_problem(const CudnnOperation& o) {
  const FourExtents& y = o.y.dimensions;
  const bool unary =
      o.mode == kExp || o.mode == kLog || o.mode == kIdentity || o.mode == kGenerateIndex;
  const bool select = o.mode == kBinarySelect;
  const bool compares = o.mode == kCompareGreater || o.mode == kCompareGreaterEqual;
  if (unary == o.b.has_value() || select != o.t.has_value()) return "operands of a pointwise";
  if ((o.mode == kGenerateIndex) != (o.axis >= 0) || o.axis > 3) return "the axis of indices";
  if (!repeats(o.x.dimensions, y) || (o.b && !repeats(o.b->dimensions, y)) ||
      (o.t && o.t->dimensions != y)) {
    return "the extents of a pointwise operation do not fit";
  }
  if (select && o.t->type != kBoolean) return "a selection by numbers";
  if (compares != (o.y.type == kBoolean)) return "a comparison gives booleans, nothing else does";
  return "";
}

}  // namespace

int64_t CudnnTensor::elements() const {
  return dimensions[0] * dimensions[1] * dimensions[2] * dimensions[3];
}

std::string problem_of(const CudnnOperation& o) {
  if (o.y.by_value) return "a result by value";
  switch (o.kind) {
    case kMatmulOperation:
      return product_problem(o);
    case kReductionOperation:
      return divides(o.y.dimensions, o.x.dimensions) ? "" : "the extents of a reduction";
    case kReshapeOperation:
      return o.x.elements() == o.y.elements() ? "" : "a reshape has as many elements";
    default:
      return pointwise_problem(o);
  }
}

std::string problem_of(const std::vector<CudnnOperation>& graph) {
  std::map<int64_t, CudnnTensor> tensors;
  std::set<int64_t> written;
  for (const CudnnOperation& o : graph) {
    for (const CudnnTensor* input : {&o.x, o.b ? &*o.b : nullptr, o.t ? &*o.t : nullptr}) {
      if (!input) continue;
      if (tensors.try_emplace(input->id, *input).first->second != *input) return "an id twice";
      if (input->is_virtual && !written.contains(input->id)) return "a virtual tensor is missing";
    }
    if (tensors.try_emplace(o.y.id, o.y).first->second != o.y) return "an id twice";
    if (!written.insert(o.y.id).second) return "a tensor is written twice";
  }
  return "";
}

void CudnnRun::run() const {
  Machine machine(*this);
  for (const CudnnOperation& operation : graph) machine.execute(operation);
}

}  // namespace fsdp::emulator
