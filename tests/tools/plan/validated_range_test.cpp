// Which published steps there are, and what is said of a job outside of them.
#include "tools/plan/validated_range.h"

#include <map>

#include <doctest/doctest.h>

#include "tests/support/validation_bars.h"

namespace fsdp::tools {
namespace {

TEST_CASE("validated range: as the published rows are") {
  struct Range {
    int64_t longest = 0;
    int gpus = 0;
    std::string dtype;
  };
  std::map<std::string, Range> there;
  for (const PublishedRow& row : test::rows_of("")) {
    Range& range = there[row.machine];
    range.longest = std::max(range.longest, row.seq);
    range.gpus = std::max(range.gpus, row.gpus);
    CHECK((range.dtype.empty() || range.dtype == row.param_dtype));
    range.dtype = row.param_dtype;
  }
  CHECK(there.size() == validated_ranges().size());
  for (const ValidatedRange& range : validated_ranges()) {
    CAPTURE(range.machine);
    CHECK(there[range.machine].longest == range.longest);
    CHECK(there[range.machine].gpus == range.most_gpus);
    CHECK(there[range.machine].dtype == range.dtypes);
  }
}

TEST_CASE("validated range: each thing that no published step had is a line") {
  const auto said = [](const std::string& machine, const std::vector<config::Override>& keys,
                       int gpus) {
    return outside_of_validation(machine, config::read_config("", keys), gpus);
  };
  CHECK(said("H100", {"train.dtype=bf16", "data.sequence_length=65536"}, 512).empty());
  CHECK(said("B200", {"train.dtype=bf16"}, 8) ==
        std::vector<std::string>{"not validated: no published step on B200"});
  CHECK(said("H100-EFA",
             {"train.dtype=f32", "data.sequence_length=8192", "fsdp.strategy=hybrid_shard",
              "fsdp.shard_size=8", "fsdp.offload=optimizer"},
             512) ==
        std::vector<std::string>{
            "not validated: f32; published steps on H100-EFA are in bf16",
            "not validated: 8192 tokens a row; published steps on H100-EFA have up to 4096",
            "not validated: 512 GPUs; published steps on H100-EFA have up to 256",
            "not validated: hybrid sharding; no published step has it",
            "not validated: offload; no published step has it"});
}

}  // namespace
}  // namespace fsdp::tools
