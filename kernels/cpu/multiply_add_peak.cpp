// Twelve chains: of AVX2's 16 registers 12 hold sums and 2 the factors.
#include "kernels/cpu/multiply_add_peak.h"

#include <chrono>
#include <vector>

#include "core/error.h"
#include "kernels/cpu/wide_loop.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fsdp::cpu {
namespace {

constexpr int kChains = 12;
constexpr int64_t kRounds = 1 << 14;  // of all chains: some 50 us

// FLOPs of one burst.
template <typename T>
double burst() {
  double flops = 0;
  wide_loop([&](auto vectors) {
    constexpr int kBytes = decltype(vectors)::kBytes;
    using V [[gnu::vector_size(kBytes)]] = T;
    V sums[kChains] = {};
    V factor = V{} + T(0.999), term = V{} + T(0.001);  // sums stay near 1
    // The compiler knows no values, or it would compute one chain for all, and needs every sum.
    asm volatile("" : "+v"(factor), "+v"(term));
    for (V& sum : sums) asm volatile("" : "+v"(sum));
    for (int64_t round = 0; round < kRounds; ++round) {
      for (V& sum : sums) sum = sum * factor + term;
    }
    for (V& sum : sums) asm volatile("" : "+v"(sum));
    flops = 2.0 * kChains * kRounds * (kBytes / sizeof(T));
  });
  return flops;
}

#if defined(__x86_64__) && !defined(FSDP_BASE_VECTORS)

bool has_bf16_products() { return __builtin_cpu_supports("avx512bf16"); }
bool has_tiles() { return __builtin_cpu_supports("amx-bf16"); }

// A pair of products and its sum in each f32.
__attribute__((target("avx512f,avx512bf16"))) double burst_bf16() {
  __m512 sums[kChains] = {};
  __m512i ones = _mm512_set1_epi16(0x3f80);
  asm volatile("" : "+v"(ones));
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  const auto factors = reinterpret_cast<__m512bh>(ones);
  for (int64_t round = 0; round < kRounds; ++round) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factors, factors);
  }
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  return 2.0 * 2 * 16 * kChains * kRounds;
}

#else

bool has_bf16_products() { return false; }
bool has_tiles() { return false; }
double burst_bf16() { return 0; }

#endif

double burst_of(DType operand) {
  switch (operand) {
    case DType::kF64:
      return burst<double>();
    case DType::kBF16:
      return has_bf16_products() ? burst_bf16() : burst<float>();
    case DType::kF16:
    case DType::kF32:
      return burst<float>();
    default:
      fail("[multiply_add_peak] operand: expected a floating dtype, got {}", name_of(operand));
  }
}

}  // namespace

std::optional<double> multiply_add_peak(ThreadTeam& team, DType operand, double seconds) {
  using Clock = std::chrono::steady_clock;
  if (operand == DType::kBF16 && has_tiles()) return std::nullopt;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const auto first = Clock::now();
  burst_of(operand);
  const auto bursts = static_cast<int64_t>(seconds / seconds_since(first)) + 1;
  std::vector<double> flops(static_cast<size_t>(team.threads()));
  const auto start = Clock::now();
  team.run(team.threads(), [&](int64_t task, int) {
    for (int64_t i = 0; i < bursts; ++i) flops[static_cast<size_t>(task)] += burst_of(operand);
  });
  double sum = 0;
  for (const double each : flops) sum += each;
  return sum / seconds_since(start);
}

}  // namespace fsdp::cpu
