// axolotl's YAML: what is taken over, what is refused, and its own defaults.
#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/adopted.h"
#include "tools/config/guests.h"
#include "tools/data/row_template.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

const std::string kModel = "base_model: m\nlearning_rate: 0.001\n";

Adopted adopted(const std::string& yaml, const AdoptOptions& options = {}) {
  const test::TempFolder folder;
  return Adopted(adopt_axolotl(folder.write("a.yml", yaml), options));
}

std::string refusal(const std::string& yaml) {
  const test::TempFolder folder;
  const auto file = folder.write("a.yml", yaml);
  const std::string error = test::error_of([&] { adopt_axolotl(file, {}); });
  return error.starts_with(folder.path().string()) ? error.substr(folder.path().string().size() + 1)
                                                   : error;
}

TEST_CASE("adopt axolotl: a file for LoRA under FSDP2") {
  const Adopted a(adopt_axolotl(test::adopt_fixture("axolotl_lora.yml"), {}));
  const config::TrainConfig& c = a.config;
  CHECK(c.model.path == "models/tiny-llama");
  CHECK(c.lora.r == 32);
  CHECK(c.lora.alpha == 16);
  CHECK(c.lora.dropout == 0.05);
  CHECK(c.lora.targets == std::vector<std::string>{"all-linear"});
  CHECK(c.data.train == std::vector<std::string>{"data/train.jsonl"});
  CHECK(c.data.validation == std::vector<std::string>{"5%"});
  CHECK(c.data.row_template == "axolotl_alpaca");
  CHECK(c.data.objective == data::Objective::kSft);
  CHECK(c.data.sequence_length == 2048);
  CHECK(c.train.epochs == 4);
  CHECK(c.train.rows_per_pass == 2);
  CHECK(c.train.micro_steps == 4);
  CHECK(c.train.lr == 2e-4);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kCosineWithMinLr);
  CHECK(c.train.schedule.min_lr == doctest::Approx(2e-5));
  CHECK(c.train.optimizer.beta2 == 0.95);
  CHECK(c.train.loss_mean == LossMean::kRanks);
  CHECK(c.train.dtype == DType::kBF16);
  CHECK(c.train.eval_every.epoch);
  CHECK(c.train.recompute.mode == RecomputeMode::kFull);
  CHECK(c.checkpoint.interval().epoch);
  CHECK(c.checkpoint.keep == 2);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.fsdp.wrap_classes == std::vector<std::string>{"LlamaDecoderLayer"});
  CHECK(c.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPre);
  CHECK(a.line("eval_every: epoch").find("there 4 times an epoch") != std::string::npos);
  CHECK(a.says("liger_rms_norm: true (axolotl_lora.yml:67): there is no choice of kernels"));
}

// axolotl/prompters.py, AlpacaPrompter
TEST_CASE("adopt axolotl: its prompt ends with a line's end") {
  const auto prompt =
      data::find_template("axolotl_alpaca", config::guests_of<data::NamedTemplate>());
  const data::RowParts with = prompt->fill(
      parse_json("{\"instruction\": \"I\", \"input\": \"X\", \"output\": \"O\"}", ""), "");
  CHECK(with.text + with.cue ==
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.\n\n### "
        "Instruction:\nI\n\n### Input:\nX\n\n### Response:\n");
  CHECK(with.answer == "O");
  const data::RowParts without =
      prompt->fill(parse_json("{\"instruction\": \"I\", \"output\": \"O\"}", ""), "");
  CHECK(without.text + without.cue ==
        "Below is an instruction that describes a task. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\nI\n\n### Response:\n");
}

TEST_CASE("adopt axolotl: its defaults") {
  const Adopted a = adopted(kModel);
  CHECK(a.config.train.epochs == 1);
  CHECK(a.config.train.rows_per_pass == 1);
  CHECK(a.config.train.schedule.kind == optim::ScheduleKind::kCosine);
  CHECK(a.line("warmup: 3%").find("at most 100 steps there") != std::string::npos);
  CHECK(a.config.train.optimizer.beta2 == 0.999);
  CHECK(a.config.train.optimizer.weight_decay == 0);
  CHECK(a.config.train.dtype == DType::kBF16);
  CHECK(a.config.checkpoint.interval().epoch);
  CHECK(a.config.checkpoint.keep == 4);
  CHECK(a.config.data.sequence_length == 512);
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kNoShard);
  CHECK(a.config.lora.r == 0);
  CHECK(
      adopted(kModel + "lora_r: 8\n").says("lora_r: 8 (a.yml:3): no effect without adapter: lora"));
}

// builders/base.py, _configure_warmup_and_logging: a share is rounded down, and one step is two.
TEST_CASE("adopt axolotl: steps and warm-up") {
  const auto warmup = [](const std::string& yaml) {
    return adopted(kModel + yaml).config.train.schedule.warmup.steps;
  };
  CHECK(warmup("max_steps: 19\nwarmup_ratio: 0.1\n") == 2);  // 1 there, which becomes 2
  CHECK(warmup("max_steps: 39\nwarmup_ratio: 0.1\n") == 3);  // 3.9
  CHECK(warmup("max_steps: 9000\n") == 100);
  CHECK(warmup("warmup_steps: 7\n") == 7);
  CHECK(warmup("lr_scheduler: constant\nwarmup_steps: 7\n") == 0);
  CHECK(adopted(kModel + "warmup_ratio: 0.2\n").says("rounded up; there down"));
  Adopted a =
      adopted(kModel + "max_steps: 100\nsave_steps: 0.25\neval_steps: 5\nval_set_size: 0.1\n");
  CHECK(a.config.checkpoint.interval().steps == 25);
  CHECK(a.config.train.eval_every.steps == 5);
  a = adopted(kModel + "batch_size: 8\nmicro_batch_size: 2\n");
  CHECK(a.config.train.micro_steps == 4);
  a = adopted(kModel + "datasets:\n  - {path: ./t.jsonl, type: completion, field: body}\n");
  CHECK(a.config.data.objective == data::Objective::kLm);
  CHECK(a.config.data.packing() == data::Pack::kExamples);
  CHECK(a.config.data.field == "body");
  a = adopted(kModel + "datasets:\n  - {path: org/name, type: alpaca}\ntrain_on_inputs: true\n");
  CHECK(a.config.data.train.empty());
  CHECK(a.says("datasets[0].path: org/name (a.yml:4): data are files here"));
  CHECK(a.config.data.objective == data::Objective::kLm);
}

TEST_CASE("adopt axolotl: FSDP of the first version, and offload") {
  const Adopted a = adopted(kModel +
                            "fsdp: [full_shard, auto_wrap]\nfsdp_config:\n"
                            "  fsdp_offload_params: true\n  fsdp_sync_module_states: true\n"
                            "  fsdp_sharding_strategy: FULL_SHARD\n"
                            "  fsdp_transformer_layer_cls_to_wrap: GPT2Block\n"
                            "  fsdp_state_dict_type: FULL_STATE_DICT\n");
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(a.config.fsdp.options.offload == comm::Offload::kAll);
  CHECK(a.config.fsdp.wrap_classes == std::vector<std::string>{"GPT2Block"});
  CHECK(a.config.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kNone);
}

TEST_CASE("adopt axolotl: what turns sharding on") {
  const auto strategy = [](const std::string& yaml) {
    return adopted(kModel + yaml).config.fsdp.options.strategy;
  };
  CHECK(strategy("fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}\n") ==
        comm::Strategy::kFullShard);
  CHECK(strategy("fsdp_config: {sharding_strategy: SHARD_GRAD_OP}\n") ==
        comm::Strategy::kShardGradOp);
  for (const char* none : {"fsdp_version: 2\n", "fsdp_config: {fsdp_version: 2}\n",
                           "fsdp_config: {}\n", "fsdp_config: []\n", "fsdp_config:\n"}) {
    CAPTURE(none);
    CHECK(strategy(none) == comm::Strategy::kNoShard);
  }
  CHECK(strategy("fsdp_version: 2\nfsdp_config: {offload_params: true}\n") ==
        comm::Strategy::kFullShard);
}

TEST_CASE("adopt axolotl: sets of data") {
  CHECK(adopted(kModel + "datasets: []\ntest_datasets: {}\n").config.data.train.empty());
  const test::TempFolder folder;
  folder.write("beside", "");
  const auto file = folder.write("a.yml", kModel +
                                              "datasets:\n  - {path: beside, type: alpaca}\n"
                                              "  - {path: org/name, type: alpaca}\n");
  const Adopted a(adopt_axolotl(file, {}));
  CHECK(a.config.data.train == std::vector<std::string>{(folder.path() / "beside").string()});
  CHECK(a.says("datasets[1].path: org/name (a.yml:5) is not taken over"));
  CHECK(a.says("a row longer than data.sequence_length is cut"));
  const std::string alpaca = kModel + "datasets:\n  - {path: a.json, type: alpaca}\n";
  CHECK_FALSE(adopted(alpaca + "excess_length_strategy: truncate\n").says("a row longer than"));
  const Adopted ends = adopted(alpaca + "special_tokens: {eos_token: <e>, pad_token: <p>}\n");
  CHECK(ends.says("special_tokens.eos_token: <e> (a.yml:5) is not taken over"));
  CHECK_FALSE(ends.says("special_tokens.pad_token: <p> (a.yml:5) is not taken over"));
}

TEST_CASE("adopt axolotl: rows that share a sequence") {
  const auto pack = [](const std::string& type, const std::string& more = "") {
    return adopted(kModel + "datasets:\n  - {path: a.json, type: " + type +
                   "}\nsample_packing: true\n" + more);
  };
  Adopted a = pack("alpaca");
  CHECK(a.config.data.packing() == data::Pack::kDocuments);
  CHECK(a.config.data.long_rows == data::LongRows::kDrop);
  CHECK_FALSE(a.says("a row longer than data.sequence_length is cut"));
  CHECK(pack("alpaca", "excess_length_strategy: raise\n").config.data.long_rows ==
        data::LongRows::kFail);
  CHECK(pack("alpaca", "excess_length_strategy: truncate\n").config.data.long_rows ==
        data::LongRows::kCut);
  CHECK(pack("alpaca", "sample_packing_group_size: 500\n").config.data.pack_window == 500);
  CHECK(pack("alpaca", "sample_packing_sequentially: true\n").says("long rows are placed first"));
  a = pack("completion");
  CHECK(a.config.data.packing() == data::Pack::kDocuments);
  CHECK(a.config.data.long_rows == data::LongRows::kCut);
  CHECK(a.says("a longer row is cut; there its rest is a row, too"));
  CHECK(adopted(kModel + "sample_packing: false\nsample_packing_group_size: 5\n")
            .says("no effect without sample_packing"));
}

TEST_CASE("adopt axolotl: what is not here is refused, all at once") {
  const std::string error =
      refusal(kModel +
              "load_in_4bit: true\nadapter: qlora\nstreaming: true\nsequence_len: 500_000\n"
              "datasets:\n  - path: a/b\n    type: pygmalion\n    input_format: m\n"
              "    temperature: 1\noptimizer: adamw_bnb_8bit\nrl: dpo\n");
  CHECK(test::contains(error, "a.yml:3: load_in_4bit: true: weights have 16 or 32 bits here"));
  CHECK(test::contains(error, "a.yml:4: adapter: qlora: weights have 16 or 32 bits here"));
  CHECK(test::contains(error, "a.yml:5: streaming: true: a text that is read while"));
  CHECK(test::contains(error, "a.yml:9: datasets[0].type: pygmalion: there is no such type here"));
  CHECK(test::contains(error, "a.yml:12: optimizer: expected adamw_torch"));
  CHECK(test::contains(error, "a.yml:13: rl: dpo: a model is trained here to predict"));
  CHECK_FALSE(test::contains(error, "sequence_len"));
  CHECK_FALSE(test::contains(error, "temperature"));  // one key of a section is enough
}

}  // namespace
}  // namespace fsdp::adopt
