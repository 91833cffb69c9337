// cuBLASLt as far as the project calls it, on the CPU: matrices by columns, sums in double,
// epilogues. Its algorithms differ in name alone, and in the time that a test says they take
// (emulator.h, product_ns). Read next: kernels/cuda/matmul_plan.cpp.
//
// [Note: what cuBLASLt supports] As strict as the library's table of types and its header say, and
// a little stricter, so that the ways around are tested too: no epilogue for results whose rows are
// no multiple of 4, none with a vector that begins at less than 16 bytes (an algorithm that reads
// it in packets faults there), GELU for 16-bit results only.
#include "kernels/cuda/cublaslt.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/scheduler.h"

namespace fsdp::cuda::lt {

struct HandleContent {};
struct PreferenceContent {
  uint32_t reduction_scheme = 7;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_d = 256;
};
struct MatmulDescContent {
  ComputeType compute;
  cudaDataType scale;
  int transpose_a = kOpN, transpose_b = kOpN, epilogue = kEpilogueDefault;
  cudaDataType bias_type = CUDA_R_32F;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0;
  int32_t multiprocessors = 0;  // 0: all
};
struct MatrixLayoutContent {
  cudaDataType type;
  uint64_t rows, columns;
  int64_t ld;
};

namespace {

constexpr Status kNotInitialized = static_cast<Status>(1), kInvalidValue = static_cast<Status>(7);
constexpr size_t kWorkspaceBytes = 4096;
constexpr int kAlgorithms = 4;

// [Note: what cuBLASLt supports]: operands, result and bias by the kind of arithmetic.
struct Types {
  ComputeType compute;
  cudaDataType operand, result;
};
constexpr Types kTypes[] = {
    {kCompute32F, CUDA_R_32F, CUDA_R_32F},   {kCompute32FFastTF32, CUDA_R_32F, CUDA_R_32F},
    {kCompute32F, CUDA_R_16BF, CUDA_R_16BF}, {kCompute32F, CUDA_R_16BF, CUDA_R_32F},
    {kCompute32F, CUDA_R_16F, CUDA_R_16F},   {kCompute32F, CUDA_R_16F, CUDA_R_32F}};

bool has_types(const MatmulDescContent& desc, MatrixLayout a, MatrixLayout b, MatrixLayout d) {
  return desc.scale == CUDA_R_32F && a->type == b->type &&
         std::any_of(std::begin(kTypes), std::end(kTypes), [&](const Types& types) {
           return types.compute == desc.compute && types.operand == a->type &&
                  types.result == d->type;
         });
}

// The lowest bit of where a vector lies; of none that was named, as far as the library knows.
uint64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return bits & -bits;
}

bool has_epilogue(const MatmulDescContent& desc, MatrixLayout d) {
  constexpr uint64_t kPacket = 16;  // bytes
  if (desc.epilogue == kEpilogueDefault) return true;
  const bool bias = desc.epilogue & kEpilogueBias, gelu = desc.epilogue & kEpilogueGeluAux;
  if (bias && (desc.bias_type != d->type || alignment_of(desc.bias) < kPacket)) return false;
  if (gelu && (d->type == CUDA_R_32F || desc.aux_ld % 8 != 0 ||
               desc.aux_ld < static_cast<int64_t>(d->rows) || alignment_of(desc.aux) < kPacket)) {
    return false;
  }
  return d->rows % 4 == 0;
}

// Which algorithm, and of which product: one of another product's is refused. `alignments`: what
// was promised of the matrices, and seen of bias and aux.
Algo algorithm(int place, uint64_t alignments, const MatmulDescContent& desc, MatrixLayout a,
               MatrixLayout b, MatrixLayout d) {
  const auto word = [](auto value) { return static_cast<uint64_t>(value); };
  return {{word(place), alignments, d->rows, d->columns,
           word(desc.epilogue) | word(desc.multiprocessors) << 32, word(a->ld), word(b->ld),
           word(d->ld)}};
}

constexpr int kAlignmentBits = 9;  // 256 at most
uint64_t promised(const PreferenceContent& p, const MatmulDescContent& desc) {
  uint64_t out = 0;
  for (const uint64_t alignment :
       {uint64_t{p.alignment_a}, uint64_t{p.alignment_b}, uint64_t{p.alignment_d},
        alignment_of(desc.bias), alignment_of(desc.aux)}) {
    out = out << kAlignmentBits | alignment;
  }
  return out;
}

bool keeps_promise(uint64_t alignments, const MatmulDescContent& desc, const void* a, const void* b,
                   const void* d) {
  for (const void* pointer :
       {static_cast<const void*>(desc.aux), desc.bias, static_cast<const void*>(d), b, a}) {
    const uint64_t alignment = alignments & ((1 << kAlignmentBits) - 1);
    if (alignment == 0 || reinterpret_cast<uintptr_t>(pointer) % alignment != 0) return false;
    alignments >>= kAlignmentBits;
  }
  return true;
}

double read(const void* data, cudaDataType type, int64_t index) {
  switch (type) {
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[index]);
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(data)[index]);
    default:
      return static_cast<const float*>(data)[index];
  }
}

void write(void* data, cudaDataType type, int64_t index, double value) {
  const auto rounded = static_cast<float>(value);
  switch (type) {
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(data)[index] = __float2bfloat16_rn(rounded);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(data)[index] = __float2half_rn(rounded);
      break;
    default:
      static_cast<float*>(data)[index] = rounded;
  }
}

// To the nearest with 10 bits behind the point, as tensor cores read f32 for TF32.
double as_tf32(double value) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu);
}

struct Matrix {
  MatrixLayoutContent layout;
  const void* data;
  bool transposed;
  bool tf32;

  std::vector<double> values(int64_t rows, int64_t columns) const {  // by rows of op(matrix)
    std::vector<double> out;
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        const int64_t at = transposed ? j + i * layout.ld : i + j * layout.ld;
        const double value = read(data, layout.type, at);
        out.push_back(tf32 ? as_tf32(value) : value);
      }
    }
    return out;
  }
};

struct Product {
  MatmulDescContent desc;
  Matrix a, b;
  double alpha, beta;
  const void* c;
  MatrixLayoutContent d_layout;
  void* d;

  void run() const {
    const auto m = static_cast<int64_t>(d_layout.rows), n = static_cast<int64_t>(d_layout.columns);
    const auto k = static_cast<int64_t>(a.transposed ? a.layout.rows : a.layout.columns);
    const std::vector<double> left = a.values(m, k), right = b.values(k, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (int64_t l = 0; l < k; ++l) {
          sum += left[static_cast<size_t>(i * k + l)] * right[static_cast<size_t>(l * n + j)];
        }
        store(i, j, alpha * sum);
      }
    }
  }

  void store(int64_t i, int64_t j, double value) const {
    const int64_t at = i + j * d_layout.ld;
    if (beta != 0) value += beta * read(c, d_layout.type, at);
    if (desc.epilogue & kEpilogueBias) value += read(desc.bias, desc.bias_type, i);
    if (desc.epilogue & kEpilogueGeluAux) {
      write(desc.aux, d_layout.type, i + j * desc.aux_ld, value);
      value *=
          0.5 * (1 + std::tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)));
    }
    write(d, d_layout.type, at, value);
  }
};

// ---- the functions of the table ----

template <typename T, typename... Values>
Status make(T** out, Values... values) {
  *out = new T{values...};
  return kSuccess;
}

template <typename T>
Status destroy(T* object) {
  delete object;
  return kSuccess;
}

template <typename T>
Status copy_value(T& to, const void* from, size_t bytes) {
  if (bytes != sizeof to) return kInvalidValue;
  std::memcpy(&to, from, bytes);
  return kSuccess;
}

Status desc_set(MatmulDesc desc, DescAttribute attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case kTransA:
      return copy_value(desc->transpose_a, value, bytes);
    case kTransB:
      return copy_value(desc->transpose_b, value, bytes);
    case kEpilogue:
      return copy_value(desc->epilogue, value, bytes);
    case kBiasPointer:
      return copy_value(desc->bias, value, bytes);
    case kBiasDataType:
      return copy_value(desc->bias_type, value, bytes);
    case kEpilogueAuxPointer:
      return copy_value(desc->aux, value, bytes);
    case kEpilogueAuxLd:
      return copy_value(desc->aux_ld, value, bytes);
    case kSmCountTarget:
      return copy_value(desc->multiprocessors, value, bytes);
  }
  return kInvalidValue;
}

Status preference_set(Preference preference, PreferenceAttribute attribute, const void* value,
                      size_t bytes) {
  switch (attribute) {
    case kReductionSchemeMask:
      return copy_value(preference->reduction_scheme, value, bytes);
    case kMinAlignmentA:
      return copy_value(preference->alignment_a, value, bytes);
    case kMinAlignmentB:
      return copy_value(preference->alignment_b, value, bytes);
    case kMinAlignmentC:  // c is d
    case kMinAlignmentD:
      return copy_value(preference->alignment_d, value, bytes);
    case kMaxWorkspaceBytes:
      return bytes == sizeof(uint64_t) ? kSuccess : kInvalidValue;
  }
  return kInvalidValue;
}

Status heuristic(Handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout,
                 MatrixLayout d, Preference preference, int wanted, HeuristicResult* results,
                 int* found) {
  if (emulator::context_lost()) return kNotInitialized;
  const uint64_t m = desc->transpose_a ? a->columns : a->rows;
  const uint64_t k = desc->transpose_a ? a->rows : a->columns;
  const uint64_t n = desc->transpose_b ? b->rows : b->columns;
  const bool fits =
      m == d->rows && n == d->columns && k == (desc->transpose_b ? b->columns : b->rows) &&
      static_cast<uint64_t>(a->ld) >= a->rows && static_cast<uint64_t>(b->ld) >= b->rows &&
      static_cast<uint64_t>(d->ld) >= d->rows && (preference->reduction_scheme & 1) == 0;
  if (!fits) return kInvalidValue;
  const bool supported = has_types(*desc, a, b, d) && has_epilogue(*desc, d);
  *found = supported ? std::min(wanted, kAlgorithms) : 0;
  if (!supported) return kNotSupported;
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo = algorithm(i, promised(*preference, *desc), *desc, a, b, d);
    results[i].workspace_bytes = kWorkspaceBytes;
  }
  return kSuccess;
}

Status matmul(Handle, MatmulDesc desc, const void* alpha, const void* a, MatrixLayout a_layout,
              const void* b, MatrixLayout b_layout, const void* beta, const void* c, MatrixLayout,
              void* d, MatrixLayout d_layout, const Algo* algo, void* workspace,
              size_t workspace_bytes, cudaStream_t stream) {
  if (emulator::context_lost()) return kExecutionFailed;  // its own runtime is told, and not ours
  const int place = static_cast<int>(algo->data[0]);
  const uint64_t alignments = algo->data[1];
  const Algo expected = algorithm(place, alignments, *desc, a_layout, b_layout, d_layout);
  if (workspace_bytes < kWorkspaceBytes || place >= kAlgorithms ||
      std::memcmp(algo, &expected, sizeof expected) != 0 ||
      !keeps_promise(alignments, *desc, a, b, d)) {
    return kInvalidValue;
  }
  const bool tf32 = desc->compute == kCompute32FFastTF32;
  const Product product = {*desc,
                           {*a_layout, a, desc->transpose_a == kOpT, tf32},
                           {*b_layout, b, desc->transpose_b == kOpT, tf32},
                           double{*static_cast<const float*>(alpha)},
                           double{*static_cast<const float*>(beta)},
                           c,
                           *d_layout,
                           d};
  const auto& product_ns = emulator::settings().product_ns;
  const int64_t ns = product_ns ? product_ns(place) : 0;
  if (ns < 0) return kNotSupported;
  // As a grid of one thread, so that it stands in the order and the delays of kernels.
  const cudaError_t error =
      emulator::enqueue_grid(stream, dim3(1), dim3(1), 0, [product, workspace, ns] {
        emulator::spend(ns);
        std::memset(workspace, 0x5a, kWorkspaceBytes);
        product.run();
      });
  return error == cudaSuccess ? kSuccess : kExecutionFailed;
}

}  // namespace

const Library& library() {
  static const Library table = {
      .version = [] { return size_t{130000}; },
      .create =
          [](Handle* handle) {
            emulator::wait_for_streams();  // it takes memory of the device
            if (emulator::context_lost()) return kNotInitialized;
            return make(handle);
          },
      .destroy = destroy<HandleContent>,
      .desc_create = [](MatmulDesc* desc, ComputeType compute,
                        cudaDataType scale) { return make(desc, compute, scale); },
      .desc_destroy = destroy<MatmulDescContent>,
      .desc_set = desc_set,
      .layout_create = [](MatrixLayout* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                          int64_t ld) { return make(layout, type, rows, columns, ld); },
      .layout_destroy = destroy<MatrixLayoutContent>,
      .preference_create = [](Preference* preference) { return make(preference); },
      .preference_destroy = destroy<PreferenceContent>,
      .preference_set = preference_set,
      .heuristic = heuristic,
      .matmul = matmul,
  };
  return table;
}

}  // namespace fsdp::cuda::lt
