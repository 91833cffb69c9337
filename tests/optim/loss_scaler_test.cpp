// The loss scale against torch.amp.GradScaler's own sequences and fairseq's published rule.
// Requirements: S4.5.
#include "optim/loss_scaler.h"

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp::optim {
namespace {

// [[value, count], ...] or [value, ...]
std::vector<double> run_lengths(const Json& runs) {
  std::vector<double> out;
  for (const Json& run : runs) out.insert(out.end(), run[1].get<size_t>(), run[0].get<double>());
  return out;
}

// The scale after every step, until it reached its minimum.
struct Replay {
  std::vector<double> scales;
  int64_t aborted_at = -1;
  double clean_steps = 0;
};

Replay replay(const LossScalerOptions& options, const std::vector<double>& flags) {
  cpu::CpuBackend backend;
  LossScaler scaler(backend, options);
  Tensor overflow = Tensor::zeros(backend, {}, DType::kI32);
  Replay out;
  for (size_t i = 0; i < flags.size(); ++i) {
    const auto flag = static_cast<int32_t>(flags[i]);
    overflow.write(&flag);
    scaler.update(overflow);
    out.scales.push_back(scaler.scale().item());
    if (scaler.aborted().item() == 0) continue;
    out.aborted_at = static_cast<int64_t>(i);
    break;
  }
  out.clean_steps = scaler.counters().to_doubles()[0];
  return out;
}

void check_scales(const Replay& got, const Json& sequence) {
  const std::vector<double> expected = run_lengths(sequence.at("scale_after"));
  REQUIRE(got.scales.size() <= expected.size());
  size_t wrong = 0;
  for (size_t i = 0; i < got.scales.size(); ++i) wrong += got.scales[i] != expected[i];
  CHECK(wrong == 0);
}

Json sequences(const std::string& name) {
  return read_json_file(test::fixture_path("scaler/" + name)).at("sequences");
}

TEST_CASE("loss scale: PyTorch's sequences") {
  const Json all = sequences("torch.json");
  CHECK(all.size() == 14);
  for (const Json& sequence : all) {
    CAPTURE(sequence.at("name").get<std::string>());
    const Json& given = sequence.at("options");
    LossScalerOptions options = LossScalerOptions::torch();
    options.initial = given.value("init_scale", options.initial);
    options.rule.growth = given.value("growth_factor", options.rule.growth);
    options.rule.backoff = given.value("backoff_factor", options.rule.backoff);
    options.rule.interval = given.value("growth_interval", options.rule.interval);
    options.rule.minimum = -1;  // PyTorch has none
    const Replay got = replay(options, run_lengths(sequence.at("flags")));
    CHECK(got.scales.size() == sequence.at("steps").get<size_t>());
    check_scales(got, sequence);
    CHECK(got.clean_steps == sequence.at("final").at("growth_tracker").get<double>());
  }
}

TEST_CASE("loss scale: fairseq's sequences, with its end at the minimum") {
  const Json all = sequences("fairseq.json");
  CHECK(all.size() == 13);
  for (const Json& sequence : all) {
    CAPTURE(sequence.at("name").get<std::string>());
    const Json& given = sequence.at("options");
    LossScalerOptions options;
    if (!given.at("world").is_null()) {
      options = LossScalerOptions::fairseq(given.at("world"), given.at("update_freq"));
      CHECK(options.rule.interval == sequence.at("scale_window").get<int64_t>());
    }
    options.initial = given.at("init_scale");
    options.rule.growth = given.at("scale_factor");
    options.rule.backoff = 1 / options.rule.growth;
    options.rule.interval = sequence.at("scale_window");
    options.rule.tolerance = given.at("tolerance");
    options.rule.floor = given.at("threshold").is_null() ? 0 : given.at("threshold").get<double>();
    options.rule.minimum = given.at("min_loss_scale");
    const Replay got = replay(options, run_lengths(sequence.at("flags")));
    check_scales(got, sequence);
    const Json& aborted = sequence.at("aborted_at_step");
    CHECK(got.aborted_at == (aborted.is_null() ? -1 : aborted.get<int64_t>()));
  }
}

TEST_CASE("loss scale: impossible options") {
  cpu::CpuBackend backend;
  CHECK_THROWS_AS(LossScaler(backend, {.initial = 0}), Error);
  CHECK_THROWS_AS(LossScaler(backend, {.initial = 1, .rule = {.growth = 0.5}}), Error);
  CHECK_THROWS_AS(LossScaler(backend, {.initial = 1, .rule = {.backoff = 2}}), Error);
  CHECK_THROWS_AS(LossScaler(backend, {.initial = 1, .rule = {.interval = 0}}), Error);
}

TEST_CASE("loss scale: a scaler that is given the state of another one goes on as that one") {
  cpu::CpuBackend backend;
  const LossScalerOptions options = {.initial = 64, .rule = {.growth = 2, .interval = 3}};
  LossScaler whole(backend, options), rest(backend, options);
  Tensor overflow = Tensor::zeros(backend, {}, DType::kI32);
  const auto update = [&](LossScaler& scaler, int32_t flag) {
    overflow.write(&flag);
    scaler.update(overflow);
  };
  for (const int32_t flag : {0, 0, 1, 0, 0}) update(whole, flag);
  CHECK(whole.state() != rest.state());
  rest.restore(whole.state());
  CHECK(rest.state() == whole.state());
  update(whole, 0);
  update(rest, kSpike);  // the third in a row without overflow: a spike is none
  CHECK(rest.scale().item() == 64);
  CHECK(rest.state() == whole.state());
}

}  // namespace
}  // namespace fsdp::optim
