// Compiles a piece of arithmetic twice, for the build's x86-64-v3 and for AVX-512, and runs the one
// this machine has. Plain loops inside are then vectorised to full width: `GCC ivdep` where the
// compiler cannot prove independence (`omp simd` would put 16-bit values into memory and give up),
// `omp simd reduction` where it has to reorder a sum; no intrinsics.
#pragma once

#include <string_view>

namespace fsdp::cpu {

struct BaseVectors {  // 16 registers
  static constexpr int kBytes = 32;
  static constexpr int kTileRows = 6;  // rows of a register tile that is two vectors wide
};
struct WideVectors {  // 32 registers
  static constexpr int kBytes = 64;
  static constexpr int kTileRows = 8;
};

template <typename F>
__attribute__((flatten, noinline)) void run_base(F& f) {
  f(BaseVectors{});
}

// FSDP_BASE_VECTORS: a test build for the narrow code on a machine that has the wide one.
#if defined(__x86_64__) && !defined(FSDP_BASE_VECTORS)

// `flatten` pulls all of f into this function, and so into its instruction set. Code that cannot be
// inlined (the C library, calls through pointers) stays what it is.
template <typename F>
__attribute__((target("arch=x86-64-v4"), flatten, noinline)) void run_wide(F& f) {
  f(WideVectors{});
}

inline bool has_wide_vectors() {
  static const bool has = __builtin_cpu_supports("x86-64-v4");
  return has;
}

#else

template <typename F>
void run_wide(F& f) {
  run_base(f);
}

inline bool has_wide_vectors() { return false; }

#endif

// The instruction set of wide_loop's code on this machine.
inline std::string_view instruction_set() {
#if defined(__AVX2__)
  return has_wide_vectors() ? "AVX-512" : "AVX2";
#else
  return "the build's";
#endif
}

// f(vectors) with BaseVectors or WideVectors. Copy what f needs into locals or arguments of an
// inline function: a loop that reads its pointers through the closure may not vectorise.
template <typename F>
void wide_loop(F&& f) {
  if (has_wide_vectors()) {
    run_wide(f);
  } else {
    run_base(f);
  }
}

}  // namespace fsdp::cpu
