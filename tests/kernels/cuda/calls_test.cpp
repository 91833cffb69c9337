// Calls on a GPU against the same calls on the CPU backend (which is tested against plain loops,
// the C library and finite differences): kernels whose cases are only sizes, dtypes and alignment.
// Kernels with a story of their own have tests of their own here.
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

constexpr DType kWideTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
constexpr Activation kOwnKernels[] = {Activation::kGeluTanh, Activation::kGeluErf,
                                      Activation::kGeluBloom, Activation::kRelu};
// Of one kernel, which asks for the activation when it runs.
constexpr Activation kChosen[] = {
    Activation::kGeluFast,    Activation::kGeluClipped, Activation::kQuickGelu, Activation::kSilu,
    Activation::kReluSquared, Activation::kRelu6,       Activation::kLeakyRelu, Activation::kTanh,
    Activation::kSigmoid,     Activation::kMish,        Activation::kLaplace};

TEST_CASE("add of all dtypes, and in place, gives the bits of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType a : kWideTypes) {
      for (const DType b : kWideTypes) {
        for (const DType out : kWideTypes) {
          for (const int64_t n : {int64_t{1}, int64_t{300}}) {
            CpuTensors t;
            check_call(gpu, AddArgs{t.of({n}, a, -9, 9), t.of({n}, b, -9, 9), t.of({n}, out)},
                       {.bits = true});
          }
        }
      }
    }
    for (const DType dtype : kGpuTypes) {
      for (const int64_t n : kGpuSizes) {
        CpuTensors t;
        Tensor& a = t.of({n}, dtype);
        check_call(gpu, AddArgs{a, t.of({n}, dtype), a}, {.bits = true, .offsets = {0, 1, 3}});
      }
    }
  });
}

TEST_CASE("cast between all pairs gives the bits of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType from : kWideTypes) {
      for (const DType to : kWideTypes) {
        for (const int64_t n : kGpuSizes) {
          for (const double range : {1e5, 1e-6}) {  // beyond f16; a subnormal one
            CpuTensors t;
            check_call(gpu, CastArgs{t.of({n}, from, -range, range), t.of({n}, to)},
                       {.bits = true, .offsets = {0}});
          }
        }
      }
    }
  });
}

TEST_CASE("divide gives the bits of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kWideTypes) {
      for (const int64_t n : kGpuSizes) {
        CpuTensors t;
        check_call(gpu, DivideArgs{t.of({n}, dtype), 1.7}, {.bits = true});
      }
    }
  });
}

TEST_CASE("fill_normal draws the numbers of the CPU, whatever the first index") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      CpuTensors t;
      for (const int64_t first : {0, 1, 12345}) {
        check_call(gpu,
                   FillNormalArgs{t.of({1001}, dtype), 0.5, 0.02, 42, hash_name("h.0.w"), first});
      }
      check_call(gpu, FillNormalArgs{t.of({7}, dtype), 1, 0, 42, 0, 0});
    }
  });
}

TEST_CASE("dropout gives the bits of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const double probability : {0.0, 0.3, 1.0}) {
        for (const int64_t size : {1, 6, 8, 33, 4104}) {
          CpuTensors t;
          const Tensor& samples = t.holding<int64_t>({7, 0, (int64_t{1} << 33) + 5});
          Tensor& x = t.of({3, size}, dtype);
          check_call(gpu, DropoutArgs{{probability, {42, 3, 1, 2, 5}, &samples}, x, x},
                     {.bits = true});
        }
      }
    }
  });
}

void check_activation(cuda::CudaBackend& gpu, DType dtype, Activation kind, int64_t n) {
  CpuTensors t;
  const Tensor& x = t.of({n}, dtype, -12, 12);
  Tensor& dy = t.of({n}, dtype);
  check_call(gpu, ActivationForwardArgs{kind, x, t.of({n}, dtype)});
  check_call(gpu, ActivationBackwardArgs{kind, x, dy, t.of({n}, dtype)});
  check_call(gpu, ActivationBackwardArgs{kind, x, dy, dy});  // in place
}

TEST_CASE("activations backward with the sums over rows of every dtype, size and alignment") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Shape& shape : {Shape{1, 1}, Shape{0, 9}, Shape{70, 7}, Shape{2, 264},
                                 Shape{261, 40}, Shape{20, 261}}) {
        for (const DType to : {dtype, DType::kF32}) {
          CpuTensors t;
          const Tensor& x = t.of(shape, dtype, -12, 12);
          Tensor &dy = t.of(shape, dtype), &sums = t.of({shape[1]}, to);
          for (const bool accumulate : {false, true}) {
            check_call(gpu,
                       ActivationBackwardArgs{.kind = Activation::kGeluTanh,
                                              .x = x,
                                              .dy = dy,
                                              .dx = dy,
                                              .dbias = &sums,
                                              .accumulate_bias = accumulate},
                       {.roundings = 4});
          }
        }
      }
    }
  });
}

TEST_CASE("activations forward and backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Activation kind : kOwnKernels) {
        for (const int64_t n : kGpuSizes) check_activation(gpu, dtype, kind, n);
      }
      for (const Activation kind : kChosen) check_activation(gpu, dtype, kind, 2049);
    }
  });
}

void check_glu(cuda::CudaBackend& gpu, DType dtype, Activation kind, int64_t n) {
  CpuTensors t;
  Tensor &gate = t.of({n}, dtype, -8, 8), &up = t.of({n}, dtype), &dy = t.of({n}, dtype);
  check_call(gpu, GluForwardArgs{kind, gate, &up, t.of({n}, dtype)});
  check_call(gpu, GluBackwardArgs{kind, gate, &up, dy, gate, &dy});  // over its operands
}

void check_glu_of_halves(cuda::CudaBackend& gpu, DType dtype, int64_t rows, int64_t width) {
  CpuTensors t;
  constexpr Activation kKind = Activation::kSilu;
  Tensor &both = t.of({rows, 2 * width}, dtype, -8, 8), &dy = t.of({rows, width}, dtype);
  check_call(gpu, GluForwardArgs{kKind, both, nullptr, t.of({rows, width}, dtype)});
  check_call(gpu,
             GluBackwardArgs{kKind, both, nullptr, dy, t.of({rows, 2 * width}, dtype), nullptr});
  check_call(gpu, GluBackwardArgs{kKind, both, nullptr, dy, both, nullptr});  // over its operand
}

TEST_CASE("gated linear units forward and backward") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t n : kGpuSizes) check_glu(gpu, dtype, Activation::kSilu, n);
      for (const Activation kind : kOwnKernels) check_glu(gpu, dtype, kind, 257);
      for (const Activation kind : kChosen) check_glu(gpu, dtype, kind, 257);
      check_glu(gpu, dtype, Activation::kNone, 257);
      for (const int64_t width : {1, 8, 257, 1024}) check_glu_of_halves(gpu, dtype, 5, width);
    }
  });
}

TEST_CASE("sum_rows of every dtype, size and alignment, of padded rows, into another dtype") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Shape& shape : {Shape{1, 1}, Shape{0, 9}, Shape{3, 0}, Shape{70, 7}, Shape{2, 264},
                                 Shape{261, 40}, Shape{20, 261}}) {
        CpuTensors t;
        const Tensor& x = t.of(shape, dtype);
        Tensor& sums = t.of({shape[1]}, dtype);
        for (const bool accumulate : {false, true}) {
          check_call(gpu, SumRowsArgs{.x = x, .out = sums, .accumulate = accumulate});
        }
        // rows of whole runs, of which the last column may be in the midst, and others
        for (const int64_t padding : {16 - shape[1] % 8, int64_t{11}}) {
          const Tensor padded = padded_tensor(t.cpu(), shape[1], padding, dtype, x.to_doubles());
          check_call(gpu, SumRowsArgs{.x = padded, .out = sums}, {.offsets = {0}});
        }
      }
      for (const DType to : kGpuTypes) {
        CpuTensors t;
        check_call(gpu, SumRowsArgs{t.of({33, 24}, dtype), t.of({24}, to), true});
      }
    }
  });
}

struct RopeCase {
  int64_t batch, length, heads, half, offset, head_stride, row_width, first_position;
};
constexpr RopeCase kRopeCases[] = {
    {1, 1, 1, 1, 0, 2, 2, 0},       {2, 5, 3, 3, 0, 6, 18, 0},
    {2, 7, 3, 3, 4, 12, 45, 2},      // a part of each head, an offset, gaps, a later position
    {1, 3, 2, 32, 128, 64, 384, 0},  // inside packed rows
    {2, 4, 5, 8, 16, 48, 256, 9},    // packets of 16 bytes, part of a head
    {1, 2, 2, 8, 3, 16, 64, 0},      // as wide, but not aligned
};

TEST_CASE("rope forward and inverse, in place; what lies between stays") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const RopeCase& c : kRopeCases) {
        CpuTensors t;
        const Shape table = {c.length + c.first_position, c.half};
        const HeadView x = {&t.of({c.batch, c.length, c.row_width}, dtype), c.heads, 2 * c.half,
                            c.offset, c.head_stride};
        const Tensor &cos = t.of(table, DType::kF32), &sin = t.of(table, DType::kF32);
        for (const bool inverse : {false, true}) {
          check_call(gpu, RopeArgs{x, cos, sin, c.first_position, inverse});
        }
      }
    }
  });
}

TEST_CASE("heads join a longer sequence, and nothing else moves") {
  on_gpu([](cuda::CudaBackend& gpu) {
    constexpr int64_t kBatch = 2, kTokens = 5, kRoom = 9, kFirst = 3, kHeads = 3;
    for (const DType dtype : kGpuTypes) {
      for (const int64_t width : {5, 8, 40}) {
        CpuTensors t;
        // the keys of rows [head, (q, k, v), width], into rows with one head before them
        const Tensor& from = t.of({kBatch, kTokens, kHeads * 3 * width}, dtype);
        const Tensor& to = t.of({kBatch, kRoom, (kHeads + 1) * width}, dtype);
        check_call(gpu,
                   CopyHeadsArgs{{&from, kHeads, width, width, 3 * width},
                                 {&to, kHeads, width, width, width},
                                 kFirst},
                   {.bits = true});
      }
    }
  });
}

constexpr int64_t kVocabulary = 23;

TEST_CASE("embedding forward, with and without positions; the gradient of positions") {
  on_gpu([](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const int64_t columns : {1, 7, 40, 64, 264}) {
        CpuTensors t;
        const Tensor &tokens = t.tokens({3, 5}, kVocabulary),
                     &table = t.of({kVocabulary, columns}, dtype),
                     &positions = t.of({9, columns}, dtype);
        Tensor& y = t.of({3, 5, columns}, dtype);
        check_call(gpu, EmbeddingForwardArgs{tokens, table, nullptr, 0, y});
        check_call(gpu, EmbeddingForwardArgs{tokens, table, &positions, 3, y});
        const Tensor& dy = t.of({5, 6, columns}, dtype);  // and zeros beyond its rows
        check_call(gpu, PositionBackwardArgs{dy, t.of({9, columns}, dtype), false});
        check_call(gpu, PositionBackwardArgs{dy, t.of({9, columns}, DType::kF32), true});
      }
    }
  });
}

TEST_CASE("embedding backward: runs of every length, all dtypes") {
  // Of the tokens that occur: all one; few, in runs across many chunks; about as many as tokens.
  struct Case {
    int64_t tokens, below, columns, offset;
  };
  constexpr Case kCases[] = {{1, 1, 1, 0},    {33, 1, 8, 0},    {97, 2, 40, 0}, {300, 23, 8, 0},
                             {600, 7, 16, 1}, {1100, 23, 7, 0}, {2, 23, 520, 0}};
  on_gpu([&](cuda::CudaBackend& gpu) {
    for (const DType dtype : kGpuTypes) {
      for (const Case& c : kCases) {
        for (const DType out : {DType::kF32, dtype}) {
          for (const bool accumulate : {false, true}) {
            CpuTensors t;
            const Tensor& tokens = t.tokens({1, c.tokens}, c.below);
            const Tensor& dy = t.of({1, c.tokens, c.columns}, dtype);
            // Up to 600 terms in f32, in another order.
            check_call(
                gpu,
                EmbeddingBackwardArgs{tokens, dy, t.of({kVocabulary, c.columns}, out), accumulate},
                {.roundings = dtype == DType::kF32 ? 8.0 : 1, .offsets = {c.offset}});
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace fsdp::test
