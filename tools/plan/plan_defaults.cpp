// Contract: tools/plan/plan_defaults.h.
#include "tools/plan/plan_defaults.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include <fmt/format.h>

#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kLongest = 8192;         // tokens of a row
constexpr int64_t kBatchTokens = 1 << 22;  // of a step, as Llama 2 and 3 of 8B began

int64_t usual_batch(int64_t length, const std::vector<int>& gpus) {
  const int64_t rows = std::max<int64_t>(kBatchTokens / length, 1);
  int64_t multiple = 1;
  for (const int each : gpus) multiple = std::lcm(multiple, int64_t{each});
  if (multiple > rows) multiple = *std::max_element(gpus.begin(), gpus.end());
  return static_cast<int64_t>(
             std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(rows / multiple, 1)))) *
         multiple;
}

}  // namespace

std::vector<std::string> take_plan_defaults(config::TrainConfig& config, const Rates& rates,
                                            const std::vector<int>& gpus, bool searches) {
  std::vector<std::string> keys, notes;
  const auto take = [&](const std::string& key, const auto& value, const std::string& why) {
    keys.push_back(fmt::format("{}={}", key, value));
    notes.push_back(fmt::format("{} was not given: {} is taken{}", key, value, why));
  };
  const auto given = [&](const std::string& key) { return config.places.contains(key); };
  if (!given("train.dtype") && rates.device_gib > 0) {
    take("train.dtype", rates.peak_flops_per_s.contains(DType::kBF16) ? "bf16" : "f16", "");
  }
  int64_t length = config.data.sequence_length;
  if (!given("data.sequence_length")) {
    const int64_t most = model_config(config, vocabulary_of(config)).max_positions;
    length = most > 0 ? std::min(most, kLongest) : kLongest;
    take("data.sequence_length", length, "");
  }
  if (!config.train.batch && config.train.rows_per_pass == 0) {
    const int64_t even = usual_batch(length, gpus);
    take("train.batch", even, fmt::format(", {} tokens a step", even * length));
    if (!searches && !config.train.micro_steps) take("train.rows_per_pass", 1, "");
  } else if (!config.train.batch && searches) {
    const int64_t batch = config.train.rows_per_pass * *std::max_element(gpus.begin(), gpus.end()) *
                          config.train.micro_steps.value_or(1);
    take("train.batch", batch, ": rows_per_pass on all GPUs");
  }
  if (keys.empty()) return notes;
  const std::vector<config::Override> overrides(keys.begin(), keys.end());
  config = config::parse_config(config::to_yaml(config), "", overrides);
  return notes;
}

}  // namespace fsdp::tools
