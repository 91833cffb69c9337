// Matrix products through cuBLASLt: f32 accumulation, bias and tanh-GELU in the same kernel where
// cuBLASLt has that, an f32 result of 16-bit operands for gradients. Read next: matmul_plan.h.
//
// [Note: no epilogue in backward] cuBLASLt could multiply by GELU's derivative (DGELU) and sum the
// bias's gradient (BGRAD) in the product that makes dx. Neither is used. The derivative belongs to
// the layer below (its x W + b), while the product is that of the layer above, which sees an input
// like any other; the two would have to know of each other across the tape. BGRAD stores its sum,
// and gradients accumulate. What it would save, a read and a write of the activations per MLP, has
// not been measured.
#include "core/layer_args.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/matmul_plan.h"

namespace fsdp::cuda {
namespace {

// mapping: a thread per eight elements where rows lie a multiple of them apart, else per element
// bytes:   those of x, of out, and the bias once a row
// in f32:  the sum; rounded once
// source:  core/kernel_args.h, MatmulArgs
struct AddBias {
  AnyElements x;     // (M, N or more)
  AnyElements bias;  // (N)
  AnyElements out;   // shape of x, may be x
  int64_t n;
  int64_t row_length;  // in memory

  template <int V>
  __device__ void at(int64_t i) const {
    const int64_t column = i % row_length;  // a run lies within a row
    if (column + V > n) {                   // in part or wholly behind its end
      if constexpr (V > 1) {
        for (int j = 0; column + j < n; ++j) at<1>(i + j);
      }
      return;
    }
    float values[V], biases[V];
    x.load<V>(i, values);
    bias.load<V>(column, biases);
#pragma unroll
    for (int j = 0; j < V; ++j) values[j] += biases[j];
    out.store<V>(i, values);
  }
};

void add_bias(const Op& op, const Tensor& x, const Tensor& bias, Tensor& out) {
  const int64_t row_length = out.shape().last();
  const AddBias body{AnyElements(x), AnyElements(bias), AnyElements(out), bias.numel(), row_length};
  if (row_length % 8 == 0) {
    for_each_element<8>(op, out.numel(), body, {x.data(), bias.data(), out.data()});
  } else {
    for_each_element<1>(op, out.numel(), body, {});
  }
}

uint32_t alignment_of(const Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data()) | 256;
  return static_cast<uint32_t>(address & -address);
}

MatmulKind kind_of(const MatmulArgs& args, const Tensor& target, const CudaBackend& backend) {
  const Shape b = args.b.shape();
  const int left = backend.options().products_leave;
  return {.m = target.shape().rows(),
          .n = args.transpose_b ? b.rows() : b.last(),
          .k = args.transpose_b ? b.last() : b.rows(),
          .lda = args.a.shape().last(),
          .ldc = target.shape().last(),
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .tf32 = backend.options().tf32 && args.a.dtype() == DType::kF32,
          .multiprocessors = left > 0 ? backend.device().multiprocessors - left : 0,
          .operand = args.a.dtype(),
          .result = target.dtype(),
          .alignment_a = alignment_of(args.a),
          .alignment_b = alignment_of(args.b),
          .alignment_c = alignment_of(target)};
}

// False when there is no algorithm for it.
bool multiply(const Op& op, MatmulPlans& plans, const MatmulKind& kind,
              const MatmulPointers& pointers) {
  MatmulPlan* plan = plans.find(op, kind);
  if (!plan) return false;
  CudaBackend& backend = op.backend();
  const size_t bytes = plan->workspace_bytes();
  void* workspace = backend.allocate(op.cuda_stream(), bytes, MemoryCategory::kWorkspace);
  const lt::Status status = plan->run(plans.handle(), pointers, workspace, op.stream());
  backend.release(op.cuda_stream(), workspace, bytes, MemoryCategory::kWorkspace);
  op.started(status == lt::kSuccess ? cudaSuccess : fault(), "cublasLtMatmul");
  FSDP_CHECK(status == lt::kSuccess, "[{}] cublasLtMatmul: status {}", op.describe(),
             static_cast<int>(status));
  return true;
}

[[noreturn]] void fail_kind(const Op& op, const MatmulKind& kind) {
  fail("[{}] cuBLASLt has no algorithm for ({} x {}) x ({} x {})", op.describe(), kind.m, kind.k,
       kind.k, kind.n);
}

// product + bias; the bias in a second pass where cuBLASLt cannot add it.
void multiply_add_bias(const Op& op, MatmulPlans& plans, MatmulKind kind, const MatmulArgs& args,
                       Tensor& target) {
  const MatmulPointers pointers{args.a.data(), args.b.data(), target.data(), args.bias->data()};
  kind.epilogue = lt::kEpilogueBias;
  kind.alignment_bias = alignment_of(*args.bias);
  if (multiply(op, plans, kind, pointers)) return;
  kind.alignment_bias = MatmulKind{}.alignment_bias;
  kind.epilogue = lt::kEpilogueDefault;
  Tensor product =
      target.dtype() == DType::kF32
          ? target
          : Tensor::empty(op.backend(), target.shape(), DType::kF32, MemoryCategory::kWorkspace);
  kind.result = DType::kF32;
  kind.alignment_c = alignment_of(product);
  if (!multiply(op, plans, kind, {args.a.data(), args.b.data(), product.data()})) {
    fail_kind(op, kind);
  }
  add_bias(op, product, *args.bias, target);
}

// The whole of it in one kernel, where the activation is cuBLASLt's GELU. Its second result must
// have rows of a multiple of eight elements.
bool multiply_gelu(const Op& op, MatmulPlans& plans, MatmulKind kind, const MatmulArgs& args) {
  if (args.activation != Activation::kGeluTanh || kind.operand == DType::kF32 ||
      args.c.dtype() != kind.operand || kind.n % 8 != 0) {
    return false;
  }
  kind.epilogue = args.bias ? lt::kEpilogueGeluAuxBias : lt::kEpilogueGeluAux;
  kind.alignment_c = std::min(alignment_of(args.c), kind.alignment_c);
  if (args.bias) kind.alignment_bias = alignment_of(*args.bias);
  return multiply(op, plans, kind,
                  {args.a.data(), args.b.data(), args.c.data(),
                   args.bias ? args.bias->data() : nullptr, args.pre_activation->data()});
}

}  // namespace

template <>
void CudaBackend::compute(Stream& stream, const ActivationForwardArgs& args);

template <>
void CudaBackend::compute(Stream& stream, const MatmulArgs& args) {
  const Op op(*this, stream, args);
  const DType result = args.c.dtype();
  FSDP_CHECK(result == args.a.dtype() || result == accumulation_dtype(args.a.dtype()),
             "[matmul] result: expected {} or {} for operands of {}, got {}",
             name_of(args.a.dtype()), name_of(accumulation_dtype(args.a.dtype())),
             name_of(args.a.dtype()), name_of(result));
  dispatch_device(args.a.dtype(), op.name(), [](auto) {});  // refuses f64
  if (!matmul_plans_) matmul_plans_ = std::make_unique<MatmulPlans>(*this);
  Tensor& target = args.pre_activation ? *args.pre_activation : args.c;
  const MatmulKind kind = kind_of(args, target, *this);
  if (kind.m == 0 || kind.n == 0) return;
  if (kind.k == 0) {  // the sum over no terms
    if (!args.accumulate) fill_zero(stream, target.data(), target.bytes());
    if (args.bias) add_bias(op, target, *args.bias, target);
  } else if (args.activation != Activation::kNone &&
             multiply_gelu(op, *matmul_plans_, kind, args)) {
    return;
  } else if (args.bias) {
    multiply_add_bias(op, *matmul_plans_, kind, args, target);
  } else if (!multiply(op, *matmul_plans_, kind, {args.a.data(), args.b.data(), target.data()})) {
    fail_kind(op, kind);
  }
  if (args.activation != Activation::kNone) {
    compute(stream, ActivationForwardArgs{args.activation, *args.pre_activation, args.c});
  }
}

}  // namespace fsdp::cuda
