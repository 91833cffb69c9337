// TrainingArguments: the workshop's and the template's, the grammar of `fsdp` and its conflicts.
// Requirements: S1.12, S2.2, S2.7.
#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/adopted.h"
#include "tools/guides/log_lines.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

Adopted adopted(const std::string& yaml, const AdoptOptions& options = {}) {
  const test::TempFolder folder;
  return Adopted(adopt_hugging_face(folder.write("a.yaml", yaml), options));
}

std::string refusal(const std::string& yaml) {
  const test::TempFolder folder;
  const auto file = folder.write("a.yaml", yaml);
  const std::string error = test::error_of([&] { adopt_hugging_face(file, {}); });
  return error.starts_with(folder.path().string()) ? error.substr(folder.path().string().size() + 1)
                                                   : error;
}

TEST_CASE("adopt hf: the template guide's file") {
  const Adopted a(adopt_hugging_face(test::adopt_fixture("template_config.yaml"), {}));
  const config::TrainConfig& c = a.config;
  CHECK(c.model.path == "EleutherAI/pythia-1b");
  CHECK(c.data.sequence_length == 512);
  CHECK(c.train.epochs == 1);
  CHECK(c.train.rows_per_pass == 8);
  CHECK(c.train.micro_steps == 4);
  CHECK(c.train.lr == 1.5e-5);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kCosine);
  CHECK(c.train.schedule.warmup == 200);
  CHECK(c.train.optimizer.weight_decay == 0.01);
  CHECK(c.train.optimizer.beta2 == 0.999);
  CHECK(c.train.dtype == DType::kF16);
  CHECK(c.train.reduce_dtype == DType::kF16);
  CHECK(c.train.log_every.steps == 1);
  CHECK(c.checkpoint.interval().steps == 10);
  CHECK(c.checkpoint.keep == 2);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.fsdp.wrap == config::Wrap::kSize);
  CHECK(c.fsdp.min_num_params == 1000000);
  CHECK(c.fsdp.units_in_flight == 2);
  CHECK(c.fsdp.forward_prefetch);
  CHECK(c.fsdp.sync_module_states);
  // Without a text to evaluate on it would be refused: it waits as a comment.
  CHECK(a.line("# eval_every: 10").find("no effect without data.validation") != std::string::npos);
  CHECK(a.says("trainer.data.dataset_name: wikitext (template_config.yaml:13): data are files"));
  CHECK(a.says("hydra.job.name: llm_finetune_distributed"));
}

TEST_CASE("adopt hf: the workshop's arguments: what they mean, and what ran") {
  const auto file = test::adopt_fixture("workshop_trainer.json");
  const Adopted meant(adopt_hugging_face(file, {}));
  CHECK(meant.config.fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(meant.config.fsdp.wrap_classes == std::vector<std::string>{"BloomBlock"});
  CHECK(meant.config.train.dtype == DType::kF16);
  CHECK(meant.config.train.reduce_dtype == DType::kF32);
  CHECK(meant.config.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPost);
  CHECK(meant.config.checkpoint.interval().epoch);
  CHECK(meant.config.checkpoint.keep == 4);
  CHECK(meant.config.train.epochs == 5);
  CHECK(meant.says("nothing there turns wrapping on: the whole model was one unit"));
  for (const char* waits :
       {"# eval_every: epoch", "# best: validation_loss", "# load_best: true"}) {
    CAPTURE(waits);
    CHECK(meant.line(waits) != "");
  }
  const Adopted ran(adopt_hugging_face(file, {.literal = true}));
  CHECK(ran.config.fsdp.wrap == config::Wrap::kNone);
  CHECK(ran.config.fsdp.wrap_classes.empty());
  CHECK(ran.config.train.reduce_dtype == DType::kF16);
  CHECK(
      ran.says("reduce_dtype: float32 (workshop_trainer.json:25): transformers does not read it"));
}

TEST_CASE("adopt hf: the words of fsdp") {
  using comm::Strategy;
  const auto strategy = [](const std::string& words) {
    return adopted("fsdp: " + words + "\n", {.ranks_per_node = 2}).config.fsdp.options.strategy;
  };
  CHECK(strategy("full_shard") == Strategy::kFullShard);
  CHECK(strategy("true") == Strategy::kFullShard);
  CHECK(strategy("\"shard_grad_op auto_wrap\"") == Strategy::kShardGradOp);
  CHECK(strategy("[auto_wrap, shard_grad_op, offload]") == Strategy::kShardGradOp);
  CHECK(strategy("no_shard") == Strategy::kNoShard);
  CHECK(strategy("hybrid_shard auto_wrap") == Strategy::kHybridShard);
  CHECK(strategy("hybrid_shard_zero2") == Strategy::kHybridShardZero2);
  CHECK(strategy("auto_wrap") == Strategy::kFullShard);
  CHECK(strategy("\"\"") == Strategy::kNoShard);
  CHECK(adopted("seed: 1\n").config.fsdp.options.strategy == Strategy::kNoShard);
  CHECK(adopted("fsdp: full_shard offload\n").config.fsdp.options.offload == comm::Offload::kAll);
  CHECK(adopted("fsdp: full_shard\n").config.fsdp.options.offload == comm::Offload::kNone);
}

TEST_CASE("adopt hf: how long, how often") {
  Adopted a = adopted("max_steps: 20\nnum_train_epochs: 3\nwarmup_ratio: 0.1\n");
  CHECK(a.config.train.steps == 20);
  CHECK(a.config.train.epochs == 0);
  CHECK(a.config.train.schedule.warmup == 2);
  CHECK(a.says("num_train_epochs: 3 (a.yaml:2): max_steps counts more"));
  a = adopted("max_steps: -1\nnum_train_epochs: 2.0\nwarmup_ratio: 0.1\nsave_strategy: \"no\"\n");
  CHECK(a.config.train.epochs == 2);
  CHECK(a.config.checkpoint.interval().steps == 0);
  CHECK(a.line("warmup: 10%") == "warmup: 10%                     # warmup_ratio: 0.1 (a.yaml:3)");
  CHECK(a.config.in_steps(7).schedule().warmup == 2);  // of 14, rounded up
  // transformers writes both, and 5 writes a share as steps.
  CHECK(adopted("warmup_steps: 0\nwarmup_ratio: 0.07\n").says("warmup: 7%"));
  CHECK(adopted("warmup_steps: 0.03\n").says("warmup: 3%"));
  CHECK(adopted("warmup_steps: 5\nwarmup_ratio: 0.07\n").config.train.schedule.warmup == 5);
  a = adopted("seed: 7\n");  // TrainingArguments' own defaults
  CHECK(a.config.train.epochs == 3);
  CHECK(a.config.train.rows_per_pass == 8);
  CHECK(a.config.train.lr == 5e-5);
  CHECK(a.config.train.schedule.kind == optim::ScheduleKind::kLinear);
  CHECK(a.config.train.optimizer.weight_decay == 0);
  CHECK(a.config.checkpoint.interval().steps == 500);
  CHECK(a.config.train.log_every.steps == 500);
  a = adopted("logging_strategy: epoch\nlogging_steps: 7\n");
  CHECK(a.config.train.log_every.epoch);
  CHECK(a.says("logging_steps: 7 (a.yaml:2): no effect with \"epoch\""));
  a = adopted("logging_strategy: steps\nlogging_steps: 7\n");
  CHECK(a.config.train.log_every.steps == 7);
}

TEST_CASE("adopt hf: fsdp_config in a file of its own") {
  const test::TempFolder folder;
  folder.write("fsdp.json",
               "{\"fsdp_min_num_params\": 2000, \"backward_prefetch\": \"backward_pre\"}");
  const auto file = folder.write(
      "a.json", "{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": \"fsdp.json\"}");
  const Adopted a(adopt_hugging_face(file, {}));
  CHECK(a.config.fsdp.min_num_params == 2000);
  CHECK(a.line("min_num_params: 2000").find("(fsdp.json:1)") != std::string::npos);
}

TEST_CASE("adopt hf: fsdp_config without fsdp, or with dist.mode: ddp, has no effect") {
  const std::string section =
      "fsdp_config: {activation_checkpointing: true, forward_prefetch: true, "
      "sync_module_states: true, transformer_layer_cls_to_wrap: A}\n";
  for (const char* how : {"seed: 1\n", "fsdp: \"\"\n", "fsdp: full_shard\ndist: {mode: ddp}\n"}) {
    CAPTURE(how);
    const Adopted a = adopted("gradient_checkpointing: false\n" + std::string(how) + section);
    CHECK(a.config.fsdp.options.strategy == comm::Strategy::kNoShard);
    CHECK(a.config.train.recompute.mode == RecomputeMode::kNone);
    CHECK_FALSE(a.config.fsdp.sync_module_states);
    CHECK(a.says("fsdp_config.activation_checkpointing: true (a.yaml:"));
    CHECK(a.says("fsdp_config.transformer_layer_cls_to_wrap: A (a.yaml:"));
    CHECK(a.says("no effect without FSDP"));
  }
  // Both ways to checkpoint are a conflict under FSDP alone.
  CHECK(adopted("gradient_checkpointing: true\n" + section).config.train.recompute.mode ==
        RecomputeMode::kFull);
}

TEST_CASE("adopt hf: which mean, which batch, what is always so") {
  Adopted a = adopted("average_tokens_across_devices: false\n");
  CHECK(a.config.train.loss_mean == LossMean::kRanks);
  a = adopted(
      "average_tokens_across_devices: true\nfull_determinism: false\nhub_token: hf_SECRET\n");
  CHECK(a.config.train.loss_mean == LossMean::kTokens);
  CHECK(a.says("full_determinism: false (a.yaml:2): the same seed and ranks give the same bits"));
  CHECK(a.says("hub_token: (hidden)"));
  CHECK_FALSE(a.says("SECRET"));
  a = adopted(
      "accelerator_config: {split_batches: false, even_batches: true, "
      "gradient_accumulation_kwargs: {num_steps: 3}}\n");
  CHECK(a.config.train.micro_steps == 3);
  CHECK(a.says("even_batches: true (a.yaml:1): rows are dealt to the ranks"));
}

// optimization.py: get_scheduler and the schedules' own defaults.
TEST_CASE("adopt hf: schedules and their own keys") {
  using optim::ScheduleKind;
  Adopted a = adopted("lr_scheduler_type: constant\nwarmup_steps: 100\nwarmup_ratio: 0.1\n");
  CHECK(a.config.train.schedule.warmup == 0);
  CHECK(a.says("warmup_steps: 100 (a.yaml:2): constant has no warm-up: constant_with_warmup has"));
  a = adopted("lr_scheduler_type: constant_with_warmup\nwarmup_steps: 100\n");
  CHECK(a.config.train.schedule.warmup == 100);
  CHECK(adopted("lr_scheduler_type: polynomial\n").config.train.schedule.min_lr == 1e-7);
  a = adopted("lr_scheduler_type: polynomial\nlr_scheduler_kwargs: {lr_end: 1e-6, power: 2}\n");
  CHECK(a.config.train.schedule.min_lr == 1e-6);
  CHECK(a.config.train.schedule.power == 2);
  a = adopted(
      "lr_scheduler_type: cosine_with_min_lr\nlearning_rate: 2e-4\n"
      "lr_scheduler_kwargs: {min_lr_rate: 0.1}\n");
  CHECK(a.config.train.schedule.min_lr == doctest::Approx(2e-5));
  const std::string parts =
      "lr_scheduler_type: warmup_stable_decay\nwarmup_steps: 5\nlr_scheduler_kwargs: "
      "{num_stable_steps: 20, num_decay_steps: 10, warmup_type: cosine, decay_type: 1-sqrt, "
      "min_lr_ratio: 0.5}\n";
  a = adopted(parts);
  CHECK(a.config.train.schedule.total == 35);
  CHECK(a.config.train.schedule.decay_steps == 10);
  CHECK(a.config.train.schedule.warmup_shape == optim::Ramp::kCosine);
  CHECK(a.config.train.schedule.decay_shape == optim::Ramp::kOneMinusSqrt);
  CHECK(a.config.train.schedule.min_lr == doctest::Approx(2.5e-5));
  const std::string scale =
      "lr_scheduler_type: inverse_sqrt\nlr_scheduler_kwargs: {timescale: 9}\n";
  CHECK(adopted(scale).config.train.schedule.timescale == 9);
  CHECK(adopted(scale, {.literal = true}).config.train.schedule.timescale == 0);
}

TEST_CASE("adopt hf: intervals") {
  const Adopted logs =
      adopted("eval_strategy: steps\nlogging_steps: 10.0\nvalidation_file: v.txt\n");
  CHECK(logs.config.train.eval_every.steps == 10);
  const std::string best = "save_strategy: best\nvalidation_file: v.txt\n";
  const std::string evaluated = best + "eval_strategy: steps\neval_steps: 50\n";
  const Adopted a = adopted(evaluated + "metric_for_best_model: eval_loss\n");
  CHECK(a.config.checkpoint.interval().steps == 50);
  CHECK(a.config.checkpoint.best == config::BestMetric::kValidationLoss);
  CHECK(a.says("at every evaluation, there only at the best so far"));
}

TEST_CASE("adopt hf: with a validation text, evaluation and the best checkpoint have an effect") {
  const auto file = test::adopt_fixture("workshop_trainer.json");
  const Adopted bare(adopt_hugging_face(file, {}));
  CHECK(bare.says("# load_best: true"));
  CHECK(bare.config.checkpoint.best == config::BestMetric::kNone);
  CHECK(bare.config.train.log_format.guest == &tools::kTrainerLines);
  const Adopted a(adopt_hugging_face(
      file, {.typed = {{"data.validation", "[\"v.json\"]", "--validation v.json"},
                       {"data.train", "[\"t.json\"]", "--data t.json"},
                       {"model.path", "folder", "--model folder"}}}));
  CHECK(a.config.train.eval_every.epoch);
  CHECK(a.config.checkpoint.load_best);
  CHECK(a.config.checkpoint.best == config::BestMetric::kValidationLoss);
  CHECK(a.config.checkpoint.keep == 4);
  CHECK(a.config.data.train == std::vector<std::string>{"t.json"});
  CHECK_FALSE(a.says("is named there"));
  CHECK(a.says("the defaults of fsdp train count: data.sequence_length;"));
}

// The fields of TRL 0.12 to 1.x, as to_json_string() prints them.
TEST_CASE("adopt hf: TRL's SFTConfig") {
  const std::string own =
      "{\"learning_rate\": 2e-05, \"model_init_kwargs\": {\"dtype\": \"bfloat16\"}, "
      "\"chat_template_path\": null, \"dataset_text_field\": \"prompt\", \"dataset_kwargs\": "
      "{\"skip_prepare_dataset\": false}, \"dataset_num_proc\": 4, \"dataset_batch_size\": 1000, "
      "\"eos_token\": \"<EOS>\", \"pad_token\": \"<PAD>\", \"max_length\": 1024, "
      "\"truncation_mode\": \"keep_start\", \"shuffle_dataset\": false, \"packing\": PACKING, "
      "\"packing_strategy\": \"STRATEGY\", \"padding_free\": false, \"pad_to_multiple_of\": null, "
      "\"eval_packing\": null, \"completion_only_loss\": ONLY, \"assistant_only_loss\": false, "
      "\"loss_type\": \"chunked_nll\", \"activation_offloading\": OFFLOAD, \"use_liger\": false, "
      "\"num_of_sequences\": 1024, \"chars_per_token\": 3.6, \"gradient_checkpointing\": true}\n";
  const auto with = [&](std::string packing, std::string strategy, std::string offload,
                        std::string only = "null") {
    std::string out = own;
    for (const auto& [name, value] : {std::pair{"PACKING", packing},
                                      {"STRATEGY", strategy},
                                      {"OFFLOAD", offload},
                                      {"ONLY", only}}) {
      out.replace(out.find(name), std::string(name).size(), value);
    }
    return out;
  };
  Adopted a = adopted(with("false", "bfd", "false", "true"));
  CHECK(a.config.data.sequence_length == 1024);
  CHECK(a.config.data.field == "prompt");
  CHECK(a.config.data.packing() == data::Pack::kExamples);
  CHECK(a.config.data.objective == data::Objective::kSft);
  CHECK(a.config.train.recompute.mode == RecomputeMode::kFull);
  CHECK(a.says("packing_strategy: bfd (a.yaml:1): no effect without packing"));
  a = adopted(with("true", "bfd", "true"));
  CHECK(a.config.data.packing() == data::Pack::kDocuments);
  CHECK(a.says("packing_strategy: bfd (a.yaml:1): as data.pack says"));
  CHECK(a.config.train.recompute.mode == RecomputeMode::kOffload);
  a = adopted(with("true", "bfd", "false", "true"));
  CHECK(a.config.data.packing() == data::Pack::kDocuments);
  CHECK(a.config.data.objective == data::Objective::kSft);
  CHECK(adopted(with("true", "bfd_split", "true")).says("there its rest is a row, too"));
  CHECK(adopted(with("true", "wrapped", "true")).config.data.packing() == data::Pack::kStream);
  CHECK(test::contains(refusal(with("true", "wrapped", "false", "true")),
                       "a.yaml:1: completion_only_loss: data.objective: sft: expected data.pack"));
  CHECK(test::contains(refusal(with("true", "ffd", "false")),
                       "expected bfd or wrapped, got \"ffd\""));
  CHECK(adopted("packing: true\n").config.data.packing() == data::Pack::kDocuments);
  CHECK(adopted("padding_free: true\n").says("--set data.pack=documents"));
  CHECK(adopted("packing: true\npadding_free: true\n").says("(a.yaml:2): as data.pack says"));
  CHECK(adopted("completion_only_loss: false\n").config.data.objective == data::Objective::kLm);
  const std::string unsaid = "--set data.train_on=assistant does it here";
  CHECK(adopted(with("false", "bfd", "false")).says(unsaid));
  CHECK_FALSE(adopted(with("false", "bfd", "false", "false")).says(unsaid));
  CHECK_FALSE(adopted("learning_rate: 1e-4\n").says(unsaid));  // TrainingArguments alone
}

TEST_CASE("adopt hf: two keys of one name") {
  const std::string sharded = "fsdp: [full_shard, auto_wrap]\n";
  Adopted a = adopted(sharded + "fsdp_min_num_params: 0\nfsdp_config: {min_num_params: 5}\n");
  CHECK(a.config.fsdp.min_num_params == 5);
  a = adopted(sharded + "fsdp_min_num_params: 3\nfsdp_config: {min_num_params: 5}\n");
  CHECK(a.config.fsdp.min_num_params == 5);
  CHECK(a.says("fsdp_min_num_params: 3 (a.yaml:2): fsdp_config says it, which counts more"));
  a = adopted(sharded + "fsdp_config: {min_num_params: 5, fsdp_min_num_params: 5}\n");
  CHECK(
      a.says("fsdp_config.fsdp_min_num_params: 5 (a.yaml:2): as fsdp_config.min_num_params says"));
  CHECK(adopted("seed: 4\ntrainer: {train: {seed: 4}}\n").config.train.seed == 4);
}

TEST_CASE("adopt hf: FSDP by true, as transformers 5 has it") {
  const std::string config = "fsdp: true\nfsdp_config: ";
  Adopted a = adopted(config + "{version: 2, reshard_after_forward: false, cpu_offload: true}\n");
  CHECK(a.config.fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(a.config.fsdp.options.reshard_after_forward == false);
  CHECK(a.config.fsdp.options.offload == comm::Offload::kAll);
  CHECK(a.config.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPre);
  a = adopted(config + "{backward_prefetch: backward_post, auto_wrap_policy: NO_WRAP}\n");
  CHECK(a.says("backward_prefetch: backward_post (a.yaml:2): FSDP2 does not read it"));
  CHECK(a.config.fsdp.wrap == config::Wrap::kNone);
  a = adopted(config +
                  "{version: 1, backward_prefetch: backward_post, "
                  "reshard_after_forward: hybrid_shard}\n",
              {.ranks_per_node = 2});
  CHECK(a.config.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPost);
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kHybridShard);
  // The words of 4 beside a key of 5: it was not read.
  a = adopted("fsdp: [full_shard]\nfsdp_config: {cpu_offload: true}\n", {.literal = true});
  CHECK(a.config.fsdp.options.offload == comm::Offload::kNone);
}

TEST_CASE("adopt hf: keys that only transformers 5 has") {
  Adopted a = adopted(
      "activation_checkpointing: true\ngradient_checkpointing: true\n"
      "activation_checkpointing_kwargs: {every_n_layers: 2, offload: true, use_reentrant: false}\n"
      "train_sampling_strategy: sequential\n");
  CHECK(a.config.train.recompute.mode == RecomputeMode::kOffload);
  CHECK(a.config.train.recompute.every == 2);
  CHECK_FALSE(a.config.data.shuffle);
  CHECK(adopted("train_sampling_strategy: group_by_length\n").says("are not put together"));
  a = adopted("max_steps: 30\nlogging_steps: 0.1\n");
  CHECK(a.config.train.log_every.steps == 3);
}

// A file of a newer version: off, an unknown key is a warning; else it is an error.
TEST_CASE("adopt hf: keys that nobody knows yet, in a file that the library wrote") {
  const Json all = read_json_file(test::adopt_fixture("written_5.24.json"));
  const test::TempFolder folder;
  const auto adopt = [&](const Json& value) {
    Json values = all["base"];
    values["train_on_tuesdays"] = value;
    return adopt_hugging_face(folder.write("args.json", values.dump()), {});
  };
  CHECK(warnings_of(adopt(false)) ==
        std::vector<std::string>{"train_on_tuesdays: false (args.json:1) is a key of a newer "
                                 "version: not taken over"});
  CHECK(warnings_of(adopt(nullptr)).empty());
  const std::string error = test::error_of([&] { adopt("often"); });
  CHECK(test::contains(error, "unknown key \"train_on_tuesdays\" of TrainingArguments"));
  CHECK(test::contains(error, "without this line the file is taken over"));
}

TEST_CASE("adopt hf: JSON is JSON") {
  const test::TempFolder folder;
  const auto file = folder.write("a.json", "{\"learning_rate\": 1e-4,\n}");
  CHECK(test::contains(test::error_of([&] { adopt_hugging_face(file, {}); }),
                       "a.json:2: malformed JSON"));
}

TEST_CASE("adopt hf: a web page is no file to fetch from a hub") {
  const test::TempFolder folder;
  for (const char* name : {"a.json", "a.yaml"}) {
    const auto file = folder.write(name, "<!DOCTYPE html>\n<html>404</html>\n");
    CHECK(test::error_of([&] { adopt_hugging_face(file, {}); }) ==
          file.string() + ": expected keys and values in YAML or JSON, got a web page (HTML)");
  }
}

TEST_CASE("adopt hf: a Python program is refused with the line that makes the JSON") {
  const test::TempFolder folder;
  const auto file = folder.write("train.py", "args = TrainingArguments(output_dir='x')\n");
  CHECK(
      test::contains(test::error_of([&] { adopt_hugging_face(file, {}); }),
                     "train.py: expected keys and values in YAML or JSON, got a Python program, "
                     "which is not run here. Where it has made its TrainingArguments or SFTConfig, "
                     "add: open(\"args.json\", \"w\").write(training_args.to_json_string()); "
                     "then: fsdp adopt hf args.json"));
}

}  // namespace
}  // namespace fsdp::adopt
