// One formula per schedule. Contract: optim/schedule.h.
#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::optim {
namespace {

using std::numbers::pi;

constexpr std::array<std::pair<std::string_view, ScheduleKind>, 11> kKinds{{
    {"constant", ScheduleKind::kConstant},
    {"constant_with_warmup", ScheduleKind::kConstant},
    {"linear", ScheduleKind::kLinear},
    {"cosine", ScheduleKind::kCosine},
    {"cosine_with_restarts", ScheduleKind::kCosineWithRestarts},
    {"polynomial", ScheduleKind::kPolynomial},
    {"inverse_sqrt", ScheduleKind::kInverseSqrt},
    {"warmup_stable_decay", ScheduleKind::kWarmupStableDecay},
    {"cosine_with_min_lr", ScheduleKind::kCosineWithMinLr},
    {"cosine_warmup_with_min_lr", ScheduleKind::kCosineWarmupWithMinLr},
    {"fairseq_polynomial_decay", ScheduleKind::kFairseqPolynomialDecay},
}};

double ratio(int64_t a, int64_t b) {
  return static_cast<double>(a) / static_cast<double>(std::max<int64_t>(1, b));
}

// (1 + cos) / 2 after `waves` whole waves: 1, down to 0, and up again if waves > 1/2.
double half_wave(double waves) { return std::max(0.0, 0.5 * (1 + std::cos(2 * pi * waves))); }

// The schedules below return the share of the peak at update s, after a linear warm-up.

// [Note: the cosine rises again] after `total`, as Hugging Face's does: its wave goes on.
double cosine(const Schedule& c, int64_t s) {
  return half_wave((c.cycles > 0 ? c.cycles : 0.5) * ratio(s - c.warmup, c.total - c.warmup));
}

double cosine_with_restarts(const Schedule& c, int64_t s) {
  const double progress = ratio(s - c.warmup, c.total - c.warmup);
  if (progress >= 1) return 0;
  const double descents = (c.cycles > 0 ? c.cycles : 1) * progress;
  return half_wave(0.5 * (descents - std::floor(descents)));
}

// From 1 down to floor = min_lr / peak.
double above_floor(double share, double floor) { return share * (1 - floor) + floor; }

// Also at s == total with warmup == total, where Hugging Face divides by zero: the end value.
double polynomial(const Schedule& c, int64_t s) {
  if (s >= c.total) return c.min_lr / c.peak;
  const double left = 1 - ratio(s - c.warmup, c.total - c.warmup);
  return ((c.peak - c.min_lr) * std::pow(left, c.power) + c.min_lr) / c.peak;
}

double inverse_sqrt(const Schedule& c, int64_t s) {
  const int64_t timescale = c.timescale > 0 ? c.timescale : c.warmup > 0 ? c.warmup : 10'000;
  return 1 / std::sqrt(ratio(s + timescale - c.warmup, timescale));
}

// progress 0 to 1 of a rise from 0 to 1.
double rise(Ramp ramp, double progress) {
  switch (ramp) {
    case Ramp::kLinear:
      return progress;
    case Ramp::kCosine:
      return 0.5 * (1 - std::cos(pi * progress));
    case Ramp::kOneMinusSqrt:
      return 1 - std::sqrt(1 - progress);
  }
  fail("[schedule] ramp: {}", static_cast<int>(ramp));
}

double fall(const Schedule& c, double progress) {
  switch (c.decay_ramp) {
    case Ramp::kLinear:
      return 1 - progress;
    case Ramp::kCosine:
      return half_wave((c.cycles > 0 ? c.cycles : 0.5) * progress);
    case Ramp::kOneMinusSqrt:
      return 1 - std::sqrt(progress);
  }
  fail("[schedule] ramp: {}", static_cast<int>(c.decay_ramp));
}

// The warm-up starts at min_lr, not at 0.
double warmup_stable_decay(const Schedule& c, int64_t s) {
  const double floor = c.min_lr / c.peak;
  const int64_t decay_begins = std::max(c.warmup, c.total - c.decay_updates);
  if (s < c.warmup) return above_floor(rise(c.warmup_ramp, ratio(s, c.warmup)), floor);
  if (s < decay_begins) return 1;
  if (s >= decay_begins + c.decay_updates) return floor;
  return above_floor(fall(c, ratio(s - decay_begins, c.decay_updates)), floor);
}

// Every update takes the value of the next one, so the first is not 0 and the last is min_lr.
double cosine_warmup_with_min_lr(const Schedule& c, int64_t s) {
  if (s < c.warmup) return ratio(s + 1, c.warmup);
  return above_floor(cosine(c, s + 1), c.min_lr / c.peak);
}

// The rate that fairseq sets after `s` updates and uses for the next.
double fairseq_polynomial_decay(const Schedule& c, int64_t s) {
  const int64_t before = c.zero_warmup + c.warmup;
  if (c.zero_warmup > 0 && s <= c.zero_warmup) return 0;
  if (c.warmup > 0 && s <= before) return ratio(s - c.zero_warmup, c.warmup);
  if (s >= c.total) return c.min_lr / c.peak;
  const double left = 1 - ratio(s - before, c.total - before);
  return ((c.peak - c.min_lr) * std::pow(left, c.power) + c.min_lr) / c.peak;
}

double share_of_peak(const Schedule& c, int64_t s) {
  if (c.kind == ScheduleKind::kWarmupStableDecay) return warmup_stable_decay(c, s);
  if (c.kind == ScheduleKind::kCosineWarmupWithMinLr) return cosine_warmup_with_min_lr(c, s);
  if (c.kind == ScheduleKind::kFairseqPolynomialDecay) return fairseq_polynomial_decay(c, s);
  if (s < c.warmup) return ratio(s, c.warmup);
  switch (c.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kLinear:
      return std::max(0.0, ratio(c.total - s, c.total - c.warmup));
    case ScheduleKind::kCosine:
      return cosine(c, s);
    case ScheduleKind::kCosineWithRestarts:
      return cosine_with_restarts(c, s);
    case ScheduleKind::kPolynomial:
      return polynomial(c, s);
    case ScheduleKind::kInverseSqrt:
      return inverse_sqrt(c, s);
    case ScheduleKind::kCosineWithMinLr:
      return above_floor(cosine(c, s), c.min_lr / c.peak);
    default:
      fail("[schedule] kind: {}", static_cast<int>(c.kind));
  }
}

}  // namespace

std::string_view name_of(ScheduleKind kind) {
  return std::find_if(kKinds.begin(), kKinds.end(),
                      [&](const auto& entry) { return entry.second == kind; })
      ->first;
}
ScheduleKind parse_schedule_kind(std::string_view name) {
  for (const auto& [known, kind] : kKinds) {
    if (known == name) return kind;
  }
  fail("[schedule] unknown name \"{}\"; expected one of {}", name,
       fmt::join(schedule_names(), ", "));
}
std::vector<std::string_view> schedule_names() {
  std::vector<std::string_view> out;
  for (const auto& [name, kind] : kKinds) out.push_back(name);
  return out;
}

std::string_view name_of(Ramp ramp) {
  switch (ramp) {
    case Ramp::kLinear:
      return "linear";
    case Ramp::kCosine:
      return "cosine";
    case Ramp::kOneMinusSqrt:
      return "1-sqrt";
  }
  fail("[schedule] ramp: {}", static_cast<int>(ramp));
}

double Schedule::rate(int64_t update) const {
  return peak == 0 ? 0 : peak * share_of_peak(*this, update);
}

}  // namespace fsdp::optim
