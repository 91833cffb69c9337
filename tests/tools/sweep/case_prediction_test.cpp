// What a case would take: the numbers of tools/predict, for a case that fits and for one that does
// not.
#include "tools/sweep/case_prediction.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/predict/memory_view.h"

namespace fsdp::tools {
namespace {

SweepCase tiny(const char* more = "") {
  const std::string yaml =
      "model: {model_type: llama, hidden_size: 16, layers: 1, heads: 2, vocab_size: 32}\n"
      "data: {format: synthetic, synthetic_rows: 8, sequence_length: 8}\n"
      "train: {steps: 2, batch: 4}\n";
  return {.name = "tiny", .ranks = 2, .config = config::parse_config(yaml + more, "a.yaml", {})};
}

TEST_CASE("case prediction: as fsdp memory says it") {
  const SweepCase each = tiny();
  const CasePrediction said = predict_case(each.config, 2, "");
  CHECK(said.device == view_memory(each.config, {.ranks = 2}).planned.run->device_needed());
  CHECK(said.host == 0);
  CHECK(said.step_ms > 0);
  CHECK(said.refusal == "");
  const SweepCase small = tiny("runtime: {memory_limit: 1KiB}\n");
  CHECK(test::contains(predict_case(small.config, 2, "").refusal, "the limit is 1024 bytes"));
}

TEST_CASE("case prediction: the table, and what is at full size") {
  SweepCase large = tiny("runtime: {memory_limit: 1KiB}\n");
  large.name = "large";
  large.full_size = FullSizeCase{.config = tiny().config, .ranks = 4, .gpu = "V100-16"};
  const auto known = predict_full_size(*large.full_size);
  CHECK(known.at("full_size_peak").get<double>() > 0);
  CHECK(known.at("full_size_fits") == true);
  large.full_size->gpu = "";
  CHECK(!predict_full_size(*large.full_size).contains("full_size_fits"));
  large.notes = {"left out"};
  SweepCase odd = tiny();
  odd.name = "odd";
  odd.full_size = FullSizeCase{.config = tiny().config, .ranks = 4, .gpu = "none"};
  const std::string table = predicted_table({tiny(), large, odd}, "");
  CAPTURE(table);
  CHECK(table.starts_with("case   ranks  device (MiB)  host (MiB)  disk (MiB)  fits  ms/step"));
  CHECK(test::contains(table, "times: predicted, on an A100"));
  CHECK(test::contains(table, "large: this run needs"));
  CHECK(test::contains(table, "large: at full size "));
  CHECK(test::contains(table, "large: left out\n"));
  CHECK(test::contains(table, "odd: at full size: "));
}

}  // namespace
}  // namespace fsdp::tools
