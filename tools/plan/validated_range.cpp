// Contract: tools/plan/validated_range.h.
#include "tools/plan/validated_range.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/text/counted.h"

namespace fsdp::tools {

// As the rows are: tests/tools/plan/validated_range_test.cpp.
const std::vector<ValidatedRange>& validated_ranges() {
  static const std::vector<ValidatedRange> kRanges = {
      {"A100-40", 32768, 128, "bf16"},    {"A100-80", 65536, 32, "bf16"},
      {"DGX-A100", 1024, 8, "f16"},       {"H100", 65536, 512, "bf16"},
      {"H100-500W", 8192, 128, "bf16"},   {"H100-EFA", 4096, 256, "bf16"},
      {"H100-cublaslt", 1024, 8, "bf16"},
  };
  return kRanges;
}

std::vector<std::string> outside_of_validation(const std::string& machine,
                                               const config::TrainConfig& config, int gpus) {
  const auto& ranges = validated_ranges();
  const auto range = std::find_if(ranges.begin(), ranges.end(), [&](const ValidatedRange& each) {
    return machine == each.machine;
  });
  if (range == ranges.end()) {
    return {fmt::format("not validated: no published step on {}", machine)};
  }
  std::vector<std::string> out;
  const std::string dtype(name_of(config.train.dtype));
  if (std::string(range->dtypes).find(dtype) == std::string::npos) {
    out.push_back(fmt::format("not validated: {}; published steps on {} are in {}", dtype, machine,
                              range->dtypes));
  }
  if (const int64_t length = config.data.sequence_length; length > range->longest) {
    out.push_back(fmt::format("not validated: {} tokens a row; published steps on {} have up to {}",
                              length, machine, range->longest));
  }
  if (gpus > range->most_gpus) {
    out.push_back(fmt::format("not validated: {}; published steps on {} have up to {}",
                              counted(gpus, "GPU"), machine, range->most_gpus));
  }
  using enum comm::Strategy;
  const comm::Strategy strategy = config.fsdp.options.strategy;
  if (strategy == kHybridShard || strategy == kHybridShardZero2) {
    out.emplace_back("not validated: hybrid sharding; no published step has it");
  }
  if (config.fsdp.options.offload != comm::Offload::kNone) {
    out.emplace_back("not validated: offload; no published step has it");
  }
  return out;
}

}  // namespace fsdp::tools
