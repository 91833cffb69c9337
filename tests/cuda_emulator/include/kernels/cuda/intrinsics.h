// The emulator's side of kernels/cuda/intrinsics.h: the same functions, on the CPU. The build of
// the emulated kernels finds this file first. What is not here is a compile error there.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/cuda_emulator/builtins.h"
#include "tests/cuda_emulator/tensor_core.h"
#include "tests/cuda_emulator/warp.h"

#define __shared__ static_assert(false, "use FSDP_SHARED or dynamic_shared");
// Every use has a closure type of its own, in every instantiation of a template.
#define FSDP_SHARED(name, ...) \
  auto& name = ::fsdp::emulator::shared_as<std::type_identity_t<__VA_ARGS__>>([] {})

namespace fsdp::emulator {

template <typename T, typename Unique>
T& shared_as(Unique) {
  static const char identity = 0;
  return *static_cast<T*>(shared_variable(&identity, sizeof(T)));
}

}  // namespace fsdp::emulator

namespace fsdp::cuda {

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(emulator::dynamic_shared_memory());
}

inline void cp_async_16(void* shared, const void* global, bool valid = true) {
  emulator::copy_async(shared, valid ? global : nullptr, 16);
}
inline void cp_async_commit() { emulator::commit_copies(); }
template <int kPending>
void cp_async_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emulator::wait_copies({file, line, "cp_async_wait"}, kPending);
}

inline void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  emulator::load_matrices(r, row, false);
}
inline void ldmatrix_x4_transposed(uint32_t (&r)[4], const void* row) {
  emulator::load_matrices(r, row, true);
}
template <typename T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static_assert(std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, __half>);
  emulator::multiply_16_8_16<T>(d, a, b);
}

template <typename... Parameters>
cudaError_t find_static_shared(void (*kernel)(Parameters...), size_t& bytes) {
  return emulator::find_static_shared(reinterpret_cast<const void*>(kernel), bytes);
}
template <typename... Parameters>
cudaError_t allow_shared(void (*kernel)(Parameters...), size_t bytes) {
  return emulator::allow_shared(reinterpret_cast<const void*>(kernel), bytes);
}

template <typename... Parameters, typename... Arguments>
cudaError_t start_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                         cudaStream_t stream, Arguments&&... arguments) {
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  return emulator::enqueue_grid(
      stream, grid, block, shared_bytes, [kernel, values] { std::apply(kernel, values); },
      reinterpret_cast<const void*>(kernel));
}

}  // namespace fsdp::cuda
