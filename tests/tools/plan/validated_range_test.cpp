// Which published steps there are, and what is said of a job outside of them.
#include "tools/plan/validated_range.h"

#include <algorithm>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/validation_bars.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

TEST_CASE("validated range: as the published rows are") {
  std::map<std::string, ValidatedRange> there;
  const auto add = [](std::vector<std::string>& all, const std::string& name) {
    if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    std::sort(all.begin(), all.end());
  };
  for (const PublishedRow& row : test::rows_of("")) {
    ValidatedRange& range = there[row.machine];
    range.longest = std::max(range.longest, row.seq);
    range.most_gpus = std::max(range.most_gpus, row.gpus);
    const DType dtype = parse_dtype(row.param_dtype);
    CHECK((range.machine.empty() || range.dtype == dtype));
    range.machine = row.machine;
    range.dtype = dtype;
    add(range.strategies, row.strategy);
    add(range.recompute, row.recompute);
  }
  CHECK(there.size() == validated_ranges().size());
  for (const ValidatedRange& range : validated_ranges()) {
    CAPTURE(range.machine);
    const ValidatedRange& of_rows = there[range.machine];
    CHECK(of_rows.longest == range.longest);
    CHECK(of_rows.most_gpus == range.most_gpus);
    CHECK(of_rows.dtype == range.dtype);
    CHECK(of_rows.strategies == range.strategies);
    CHECK(of_rows.recompute == range.recompute);
  }
}

std::vector<std::string> said(const std::string& machine, const std::vector<config::Override>& keys,
                              int gpus, const Rates& rates) {
  PlannedJob job;
  job.config = config::read_config("", keys);
  job.gpus = gpus;
  return outside_of_validation({.gpu = machine, .rates = rates}, job);
}

std::vector<std::string> said(const std::string& machine, const std::vector<config::Override>& keys,
                              int gpus) {
  return said(machine, keys, gpus, machine_rates(machine));
}

TEST_CASE("validated range: each thing that no published step had is a line") {
  using Lines = std::vector<std::string>;
  CHECK(said("H100", {"train.dtype=bf16", "data.sequence_length=65536"}, 512).empty());
  CHECK(said("B200", {"train.dtype=bf16"}, 8) == Lines{"not validated: no published step on B200"});
  CHECK(said("H100", {"train.dtype=f16"}, 8) ==
        Lines{"not validated: f16; published steps on H100 have bf16"});
  CHECK(said("H100-EFA",
             {"train.dtype=f32", "data.sequence_length=8192", "fsdp.strategy=hybrid_shard",
              "fsdp.shard_size=8", "fsdp.offload=optimizer", "train.recompute.mode=full"},
             512) ==
        Lines{"not validated: f32; published steps on H100-EFA have bf16",
              "not validated: 8192 tokens a row; published steps on H100-EFA have up to 4096",
              "not validated: 512 GPUs; published steps on H100-EFA have up to 256",
              "not validated: fsdp.strategy hybrid_shard; published steps on H100-EFA have "
              "no_shard, shard_optimizer",
              "not validated: train.recompute.mode full; published steps on H100-EFA have none",
              "not validated: fsdp.offload optimizer; published steps on H100-EFA have none"});
}

TEST_CASE("validated range: other rates than the machine's, other nodes") {
  Rates rates = machine_rates("H100");
  rates.ranks_per_node = 4;
  CHECK(
      said("H100", {"train.dtype=bf16"}, 8, rates) ==
      std::vector<std::string>{"not validated: 4 GPUs in a node; published steps on H100 have 8"});
  CHECK(said("H100", {"train.dtype=bf16"}, 8, machine_rates("A100-80")) ==
        std::vector<std::string>{
            "not validated: the times are those of an A100 80 GB, eight in a machine; the memory "
            "is that of H100, whatever --rates says"});
}

}  // namespace
}  // namespace fsdp::tools
