// Every schedule against the rates that Hugging Face's get_scheduler gives, and fairseq's rule.
// Source of the values: tests/fixtures/schedules.json.
// Requirements: S0.6, S2.15, S4.7.
#include "optim/schedule.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

Ramp ramp_named(const std::string& name) {
  const auto found =
      std::find_if(kRamps.begin(), kRamps.end(), [&](Ramp ramp) { return name_of(ramp) == name; });
  REQUIRE(found != kRamps.end());
  return *found;
}

Schedule schedule_of(const Json& entry, const std::string& kind) {
  const Json options = entry.value("options", Json::object());
  Schedule s;
  s.kind = parse_schedule_kind(kind);
  s.peak = entry["lr"];
  s.warmup = entry["warmup"];
  s.total = entry["total"];
  s.power = options.value("power", entry.value("power", 1.0));
  s.cycles = options.value("num_cycles", 0.0);
  s.decay_updates = options.value("num_decay_steps", 0);
  s.warmup_ramp = ramp_named(options.value("warmup_type", "linear"));
  s.decay_ramp = ramp_named(options.value("decay_type", "cosine"));
  s.zero_warmup = entry.value("zero_lr_warmup", 0);
  for (const char* key : {"lr_end", "min_lr"}) s.min_lr = options.value(key, s.min_lr);
  for (const char* key : {"min_lr_ratio", "min_lr_rate"}) {
    if (options.contains(key)) s.min_lr = options[key].get<double>() * s.peak;
  }
  s.min_lr = entry.value("end_lr", s.min_lr);
  return s;
}

// Largest relative difference over the entry's updates.
double worst_difference(const Json& entry, const std::string& kind) {
  const Schedule schedule = schedule_of(entry, kind);
  double worst = 0;
  int64_t update = 0;
  for (const double expected : entry["rates"]) {
    const double difference = std::abs(schedule.rate(update++) - expected);
    worst = std::max(worst, difference / std::max(std::abs(expected), 1e-300));
  }
  return worst;
}

TEST_CASE("every schedule has Hugging Face's rates") {
  const Json fixture = read_json_file(test::fixture_path("schedules.json"));
  REQUIRE(fixture["huggingface"].size() == 61);
  for (const Json& entry : fixture["huggingface"]) {
    CAPTURE(entry.dump());
    CHECK(worst_difference(entry, entry["name"]) < 1e-12);
  }
}

TEST_CASE("fairseq's polynomial decay") {
  const Json fixture = read_json_file(test::fixture_path("schedules.json"));
  REQUIRE(fixture["fairseq_polynomial_decay"].size() == 5);
  for (const Json& entry : fixture["fairseq_polynomial_decay"]) {
    CAPTURE(entry.dump());
    CHECK(worst_difference(entry, "fairseq_polynomial_decay") < 1e-12);
  }
}

TEST_CASE("polynomial with warm-up up to the end stays at the end value") {
  const Schedule s{
      .kind = ScheduleKind::kPolynomial, .peak = 1e-4, .warmup = 10, .total = 10, .min_lr = 1e-7};
  for (int64_t update = 10; update < 14; ++update) {
    CHECK(s.rate(update) == doctest::Approx(1e-7).epsilon(1e-12));
  }
}

TEST_CASE("a peak of 0 is a rate of 0 and not a division") {
  for (const std::string_view name : schedule_names()) {
    const Schedule s{.kind = parse_schedule_kind(name), .peak = 0, .warmup = 2, .total = 5};
    for (int64_t update = 0; update < 7; ++update) CHECK(s.rate(update) == 0);
  }
}

TEST_CASE("names") {
  for (const std::string_view name : schedule_names()) {
    if (name != "constant_with_warmup") CHECK(name_of(parse_schedule_kind(name)) == name);
  }
  const std::string message = [] {
    try {
      parse_schedule_kind("cosin");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  }();
  CHECK(message.find("unknown name \"cosin\"; expected one of ") != std::string::npos);
  CHECK(message.find("cosine_with_min_lr") != std::string::npos);
}

}  // namespace
}  // namespace fsdp::optim
