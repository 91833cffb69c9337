// What is said of a configuration. Against a run of it: tests/e2e/explain_compare.sh.
#include "tools/predict/explanation.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

using test::contains;

Explanation explained(int ranks, const std::vector<config::Override>& overrides,
                      const std::string& rates = "",
                      std::optional<PyTorchLayout> layout = std::nullopt) {
  std::vector<config::Override> all = {
      "model.model_type=llama", "model.hidden_size=24",    "model.layers=2", "model.heads=2",
      "data.train=[text.txt]",  "data.sequence_length=16", "train.steps=3"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return explain(config::read_config("", all),
                 {.ranks = ranks, .times = {.rates = rates}, .layout = layout});
}

TEST_CASE("explanation: ranks, their groups, and a batch that is too small for them") {
  const std::string plain = explained(2, {"train.batch=2"}).text;
  CHECK(contains(plain, "; full_shard on 2 ranks\n"));
  CHECK(!contains(plain, "replicas"));
  CHECK(!contains(plain, "too few"));
  CHECK(contains(explained(1, {"train.batch=1"}).text, " on 1 rank\n"));
  const std::string hybrid =
      explained(6, {"train.batch=5", "fsdp.strategy=hybrid_shard", "fsdp.shard_size=3"}).text;
  CHECK(contains(hybrid, " on 6 ranks: 2 replicas of 3 shards\n"));
  CHECK(
      contains(hybrid,
               "\nnote: train.batch: 5 sequences are too few for 6 ranks, and train refuses them; "
               "what is shown is for one sequence a rank\n"));
}

TEST_CASE("explanation: the units alone are those of the whole") {
  const std::vector<config::Override> overrides = {
      "model.model_type=llama", "model.hidden_size=24",    "model.layers=2", "model.heads=2",
      "data.train=[text.txt]",  "data.sequence_length=16", "train.steps=3",  "train.batch=6"};
  const std::string units = explain_units(config::read_config("", overrides), 3);
  CHECK(contains(units, "; full_shard on 3 ranks\n"));
  CHECK(contains(units, "\n  blocks.0 .. blocks.1 "));
  CHECK(explained(3, {"train.batch=6"}).text.starts_with(units));
}

TEST_CASE("explanation: where the times come from, and the last of several micro-steps") {
  const test::TempFolder folder;
  const std::string file = (folder / "rates.json").string();
  Rates rates = machine_rates(kUsualMachine);
  rates.machine = "a machine";
  write_rates(file, rates);
  const Explanation said = explained(2, {"train.batch=4", "train.micro_steps=2"}, file);
  const CallRates::Sources& calls = said.rates->distinct_calls();
  CHECK(calls.estimated > 10);
  CHECK(contains(said.text, fmt::format("  on a machine; of the distinct calls 0 have a row in the "
                                        "file of rates, 0 were measured, {} are estimated\n",
                                        calls.estimated)));
  CHECK(contains(said.text, " MiB of the 2 ranks on a node; "));
  rates.ranks_per_node = 1;
  write_rates(file, rates);
  CHECK(contains(explained(2, {"train.batch=4"}, file).text, " MiB of the rank on a node; "));
  CHECK(contains(said.text, "\nthe last micro-step of a step: from top to bottom"));
  const std::string one = explained(2, {"train.batch=4"}).text;
  CHECK(contains(one, "\none step: from top to bottom"));
  CHECK(contains(one, "  on " + machine_rates(kUsualMachine).machine + "; of the distinct calls"));
}

TEST_CASE("explanation: what a run does beside its steps, and how long it takes") {
  const test::TempFolder folder;
  const std::string file = (folder / "rates.json").string();
  Rates rates = machine_rates(kUsualMachine);
  rates.disk_write = {.latency_us = 0, .bytes_per_s = 1e5};
  rates.disk_read = {.latency_us = 0, .bytes_per_s = 2e5};
  rates.host_copy = {.latency_us = 0, .bytes_per_s = 1e6};
  write_rates(file, rates);
  const std::string plain = explained(2, {"train.batch=4"}, file).text;
  CHECK(contains(plain, "\nthe saved model: "));
  CHECK(!contains(plain, "\nan evaluation: "));
  CHECK(!contains(plain, "its copy in the host's memory"));
  CHECK(!contains(explained(2, {"train.batch=4", "train.save=false"}, file).text, "saved model"));
  const std::string all =
      explained(2,
                {"train.batch=4", "data.validation=[text.txt]", "train.eval_batches=7",
                 "checkpoint.every=2", "checkpoint.async=true"},
                file)
          .text;
  CHECK(contains(all, "\n  its copy in the host's memory: "));
  CHECK(contains(all, " a batch; "));
  CHECK(contains(all, " for 7 batches\n"));
  CHECK(contains(explained(2, {"train.batch=4", "data.validation=[text.txt]"}, file).text,
                 " a batch; as many as the text has\n"));
}

TEST_CASE("explanation: on a GPU, whose memory and times these are") {
  const auto on = [](const std::string& gpu, const std::vector<config::Override>& overrides) {
    std::vector<config::Override> all = {
        "model.model_type=llama", "model.hidden_size=24",    "model.layers=2", "model.heads=2",
        "data.train=[text.txt]",  "data.sequence_length=16", "train.steps=3",  "train.batch=4"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return explain(config::read_config("", all), {.ranks = 2, .gpu = gpu}).text;
  };
  const std::string h100 = on("H100", {}), cpu = on("cpu", {}), plain = on("", {});
  CHECK(contains(h100, "  on an H100, eight in a machine; of the distinct calls"));
  CHECK(contains(h100,
                 "\n  products and attention as other programs' kernels reach them: this "
                 "program was never measured on a GPU\n"));
  CHECK(!contains(h100, "neither --gpu nor --rates"));
  CHECK(contains(cpu, "  on a CPU of two cores with AVX-512; "));
  CHECK(!contains(cpu, "never measured"));
  CHECK(!contains(plain, "neither --gpu nor --rates"));
  CHECK(contains(on("", {"runtime.backend=cuda"}),
                 "\n  neither --gpu nor --rates names the GPU: this one was assumed\n"));
  CHECK(!contains(on("L40", {"runtime.backend=cuda"}), "neither --gpu nor --rates"));
  CHECK(contains(test::error_of([&] { on("H10", {}); }), "expected one of V100-16, "));
}

TEST_CASE("explanation: PyTorch's layout where it is asked for") {
  const std::vector<config::Override> batch = {"train.batch=2"};
  CHECK(!contains(explained(2, batch).text, "elements per rank in PyTorch"));
  CHECK(contains(explained(2, batch, "", PyTorchLayout::kFsdp1).text,
                 "\nelements per rank in PyTorch FSDP1"));
  CHECK(contains(explained(2, batch, "", PyTorchLayout::kFsdp2).text,
                 "\nelements per rank in PyTorch FSDP2"));
  // Of PyTorch's units, unless others are asked for.
  CHECK(contains(explained(2, batch).text, "\n  embedding "));
  CHECK(contains(explained(2, batch, "", PyTorchLayout::kFsdp2).text, "\n  root       "));
  CHECK(!contains(explained(2, batch, "", PyTorchLayout::kFsdp2).text, "\n  embedding "));
  CHECK(contains(explained(2, {"train.batch=2", "fsdp.root=split"}, "", PyTorchLayout::kFsdp2).text,
                 "\n  embedding "));
}

}  // namespace
}  // namespace fsdp::tools
