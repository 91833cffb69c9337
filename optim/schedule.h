// The learning rate of every update, as a pure function of its number: nothing to save or resume.
// Formulas and names are those of Hugging Face's get_scheduler, and of fairseq for the last one.
// Not here: how the rate reaches the optimizer (optim/optimizer.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdp::optim {

enum class ScheduleKind : uint8_t {
  kConstant,
  kLinear,
  kCosine,
  kCosineWithRestarts,
  kPolynomial,
  kInverseSqrt,
  kWarmupStableDecay,
  kCosineWithMinLr,
  kCosineWarmupWithMinLr,
  kFairseqPolynomialDecay,
};
std::string_view name_of(ScheduleKind kind);              // "constant", "linear", ...
ScheduleKind parse_schedule_kind(std::string_view name);  // also "constant_with_warmup"
std::vector<std::string_view> schedule_names();

// How a warm-up rises or a decay falls (warmup_stable_decay only).
enum class Ramp : uint8_t { kLinear, kCosine, kOneMinusSqrt };
inline constexpr std::array kRamps = {Ramp::kLinear, Ramp::kCosine, Ramp::kOneMinusSqrt};
std::string_view name_of(Ramp ramp);  // "linear", "cosine", "1-sqrt"

struct Schedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 0;     // learning rate at the end of the warm-up
  int64_t warmup = 0;  // updates; the first of them runs with rate 0 where the warm-up is linear
  int64_t total = 0;   // updates until the end value; constant and inverse_sqrt do not use it

  double min_lr = 0;      // end value of polynomial, *_min_lr, warmup_stable_decay, fairseq
  double power = 1;       // polynomial, fairseq
  double cycles = 0;      // cosine: waves (0: half a wave); restarts: number of descents (0: one)
  int64_t timescale = 0;  // inverse_sqrt: 0 is `warmup`, or 10,000 without one
  int64_t decay_updates = 0;  // warmup_stable_decay: length of the last part
  Ramp warmup_ramp = Ramp::kLinear;
  Ramp decay_ramp = Ramp::kCosine;
  int64_t zero_warmup = 0;  // fairseq: updates with rate 0 before the warm-up

  // Rate of update number `update`, counted from 0. Goes on beyond `total`; see the cosine's note.
  double rate(int64_t update) const;
};

}  // namespace fsdp::optim
