// The command line of fairseq-train. Contract: tools/adopt/programs.h.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/error.h"
#include "models/config.h"
#include "tools/adopt/programs.h"
#include "tools/adopt/read_arguments.h"
#include "tools/adopt/read_shell.h"

namespace fsdp::adopt {
namespace {

Rule flag(const char* name, Take take) { return {name, std::move(take), true}; }

Take expect(const std::string& value, const std::string& remark) {
  return [value, remark](const Given& given, Adoption& adoption) {
    if (given.one() != value) given.fail(value);
    adoption.leave(given, remark);
  };
}

// "(0.9, 0.98)"
void take_betas(const Given& given, Adoption& adoption) {
  std::string text = given.text();
  std::erase_if(text,
                [](char c) { return c == '(' || c == ')' || c == '[' || c == ']' || c == ' '; });
  const size_t comma = text.find(',');
  if (comma == std::string::npos) given.fail("two numbers, \"(0.9, 0.98)\"");
  adoption.set("train.optimizer.beta1", text.substr(0, comma), given);
  adoption.set("train.optimizer.beta2", text.substr(comma + 1), given);
}

void take_optimizer(const Given& given, Adoption& adoption) {
  const std::string& name = given.one();
  if (name == "adam" || name == "cpu_adam") {
    adoption.set("train.optimizer.kind", "adamw", given, "fairseq's Adam decays as AdamW");
  } else if (name == "sgd" || name == "nag") {
    adoption.set("train.optimizer.kind", "sgd", given);
    if (name == "nag") adoption.set("train.optimizer.nesterov", "true", given);
  } else {
    given.fail("adam, cpu_adam, sgd or nag: what works on shards, element by element");
  }
}

void take_schedule(const Given& given, Adoption& adoption) {
  constexpr auto kKinds = std::to_array<std::pair<const char*, const char*>>(
      {{"polynomial_decay", "fairseq_polynomial_decay"},
       {"inverse_sqrt", "inverse_sqrt"},
       {"fixed", "constant"}});
  for (const auto& [theirs, ours] : kKinds) {
    if (given.one() == theirs) return adoption.set("train.schedule.kind", ours, given);
  }
  given.fail("polynomial_decay, inverse_sqrt or fixed");
}

void take_backend(const Given& given, Adoption& adoption) {
  constexpr std::array kReplicas = {"c10d", "pytorch_ddp", "legacy_ddp", "no_c10d"};
  const bool replicas =
      std::find(kReplicas.begin(), kReplicas.end(), given.one()) != kReplicas.end();
  if (given.one() != "fully_sharded" && !replicas) given.fail("fully_sharded or pytorch_ddp");
  adoption.set("fsdp.strategy", replicas ? "no_shard" : "full_shard", given);
}

// A folder of fairseq-preprocess: ids of its own dictionary, so no tokenizer takes part.
void take_data(const Given& given, Adoption& adoption) {
  const auto file = [&](const char* name) { return fmt::format("{}/{}", given.one(), name); };
  adoption.set("data.format", "fairseq", given);
  adoption.set("data.train", file("train.bin"), given, "with train.idx beside it");
  if (!adoption.is_on("--disable-validation")) {
    adoption.set("data.validation", file("valid.bin"), given, "without --disable-validation");
  }
}

void take_log_format(const Given& given, Adoption& adoption) {
  if (given.one() == "json") return adoption.set("train.log_format", "fairseq_json", given);
  adoption.leave(given, "lines are ours; train.log_format: fairseq_json prints fairseq's JSON");
}

void take_arch(const Given& given, Adoption& adoption) {
  const std::vector<std::string> presets = models::preset_names();
  if (!given.one().starts_with("transformer_lm_gpt3_") ||
      std::find(presets.begin(), presets.end(), given.one()) == presets.end()) {
    given.fail("transformer_lm_gpt3_small to transformer_lm_gpt3_175");
  }
  adoption.set("model.preset", given.one(), given,
               "until March 2021 its embeddings were not tied: " + given.one() + "_untied");
}

// Offloading implies it.
void take_checkpointing(const Given& given, Adoption& adoption) {
  on_to("train.recompute.mode", adoption.is_on("--offload-activations") ? "offload" : "full")(
      given, adoption);
}

std::vector<Rule> training_rules() {
  return {
      {"DATA", take_data},
      {"--arch", take_arch},
      {"--tokens-per-sample", whole_to("data.sequence_length")},
      {"--max-target-positions", whole_to("model.max_positions")},
      {"--batch-size", whole_to("train.rows_per_pass")},
      {"--max-sentences", whole_to("train.rows_per_pass")},
      {"--max-tokens", together},
      {"--update-freq", whole_to("train.micro_steps")},
      {"--max-update", whole_to("train.steps")},
      {"--max-epoch", together},
      {"--lr", to("train.lr")},
      {"--lr-scheduler", take_schedule},
      {"--warmup-updates", whole_to("train.schedule.warmup")},
      {"--total-num-update", whole_to("train.schedule.total")},
      {"--end-learning-rate", to("train.schedule.min_lr")},
      {"--power", to("train.schedule.power")},
      {"--zero-lr-warmup-steps", whole_to("train.schedule.zero_warmup")},
      {"--optimizer", take_optimizer},
      {"--adam-betas", take_betas},
      {"--adam-eps", to("train.optimizer.epsilon")},
      {"--momentum", to("train.optimizer.momentum")},
      {"--weight-decay", to("train.optimizer.weight_decay")},
      {"--clip-norm", to("train.clip_norm")},
      {"--seed", whole_to("train.seed")},
      {"--dropout", to("model.dropout")},
      {"--attention-dropout", to("model.dropout")},
      flag("--share-decoder-input-output-embed", on_to("model.tie_embeddings", "true")),
      {"--log-interval", whole_to("train.log_every")},
      {"--log-format", take_log_format},
      flag("--no-save", on_to("train.save", "false")),
      {"--save-interval-updates", whole_to("checkpoint.every")},
      {"--keep-interval-updates", whole_to("checkpoint.keep")},
      {"--validate-interval-updates", whole_to("train.eval_every")},
      flag("--fp16", together),
      flag("--bf16", together),
      {"--fp16-init-scale", to("train.loss_scale.initial")},
      {"--fp16-scale-window", whole_to("train.loss_scale.interval")},
      {"--fp16-scale-tolerance", to("train.loss_scale.tolerance")},
      {"--min-loss-scale", to("train.loss_scale.minimum")},
      {"--threshold-loss-scale", to("train.loss_scale.floor")},
      {"--ddp-backend", take_backend},
      flag("--no-reshard-after-forward", on_to("fsdp.reshard_after_forward", "false")),
      flag("--fp32-reduce-scatter", on_to("train.reduce_dtype", "f32")),
      flag("--checkpoint-activations", take_checkpointing),
      flag("--offload-activations", on_to("train.recompute.mode", "offload")),
      {"--min-params-to-wrap", together},
      flag("--cpu-offload", together),
      {"--distributed-world-size",
       [](const Given& given, Adoption& adoption) { adoption.set_ranks(given.whole(), given); }},
  };
}

std::vector<Rule> other_rules() {
  const std::string folder = "a run directory is made: runs/<name>-<time>, runtime.run_dir";
  const std::string launch = "mpirun or srun starts the ranks and connects them";
  return {
      {"--task", expect("language_modeling", "the one task")},
      {"--sample-break-mode", expect("none", "the text is one stream, cut into sequences")},
      {"--criterion", expect("cross_entropy", "the one loss")},
      flag("--use-sharded-state",
           same("a checkpoint is always sharded and is read on any number of ranks")),
      flag("--not-fsdp-flatten-parameters", leave("a unit is one flat buffer")),
      flag("--fp16-no-flatten-grads", leave("a unit is one flat buffer")),
      {"--bucket-cap-mb", same("a unit is what is communicated at once: fsdp.wrap")},
      flag("--memory-efficient-fp16", leave("master weights are f32, and sharded")),
      flag("--memory-efficient-bf16", leave("master weights are f32, and sharded")),
      flag("--fp16-adam-stats", leave("the optimizer's state is f32, and sharded")),
      flag("--use-old-adam", leave("there is one implementation of each optimizer")),
      flag("--no-progress-bar", leave("nothing moves in a log")),
      {"--tensorboard-logdir", leave("metrics.jsonl lies in the run directory")},
      {"--wandb-project", leave("metrics.jsonl lies in the run directory")},
      {"--save-dir", leave(folder)},
      {"--restore-file", leave("fsdp train --resume")},
      flag("--no-epoch-checkpoints", leave("checkpoints are counted in steps: checkpoint.every")),
      flag("--no-last-checkpoints", leave("checkpoint.every, checkpoint.keep")),
      flag("--disable-validation", together),
      {"--num-workers", leave("data.prefetch: a thread makes batches ahead of the steps")},
      flag("--skip-invalid-size-inputs-valid-test", leave("every sequence has the same length")),
      {"--required-batch-size-multiple", leave("a pass has train.rows_per_pass rows")},
      {"--distributed-port", leave(launch)},
      {"--distributed-init-method", leave(launch)},
      {"--distributed-rank", leave(launch)},
      {"--device-id", leave(launch)},
  };
}

const Program& fairseq_program() {
  static const Program program =
      program_of("fairseq", "fairseq-train", {training_rules(), other_rules()});
  return program;
}

// ---- options that are read together ----

void take_precision(Adoption& adoption, bool sharded) {
  const Given* f16 = adoption.find("--fp16");
  const Given* bf16 = adoption.find("--bf16");
  if (f16 && bf16) bf16->refuse("expected one of --fp16 and --bf16, got both");
  const Given* dtype = f16 ? f16 : bf16;
  if (dtype) adoption.set("train.dtype", f16 ? "f16" : "bf16", *dtype);
  if (f16) adoption.set("train.loss_scale.rule", "fairseq", *f16);
  if (dtype && sharded && !adoption.has("train.reduce_dtype")) {
    adoption.set("train.reduce_dtype", f16 ? "f16" : "bf16", *dtype,
                 "without --fp32-reduce-scatter; f32 is safer");
  }
  if (const Given* offload = adoption.find("--cpu-offload")) {
    if (!f16) offload->refuse("expected --fp16 with it, as fairseq does");
    adoption.set("fsdp.offload", "all", *offload);
  }
}

void take_length(Adoption& adoption) {
  const Given* tokens = adoption.find("--max-tokens");
  const Given* length = adoption.find("--tokens-per-sample");
  if (tokens && adoption.has("train.rows_per_pass")) {
    adoption.leave(*tokens, "--batch-size says it");
  } else if (tokens) {
    const int64_t each = length ? length->whole() : 1024;
    if (tokens->whole() < each) tokens->fail(fmt::format("at least --tokens-per-sample, {}", each));
    adoption.set("train.rows_per_pass", std::to_string(tokens->whole() / each), *tokens,
                 fmt::format("in sequences of {}", each));
  }
  const Given* epochs = adoption.find("--max-epoch");
  if (epochs && adoption.has("train.steps"))
    adoption.leave(*epochs, "--max-update counts more");
  else if (epochs)
    whole_to("train.epochs")(*epochs, adoption);
}

void take_wrap(Adoption& adoption) {
  const Given* size = adoption.find("--min-params-to-wrap");
  if (!size) {
    return adoption.set_default("fsdp.wrap", "transformer_block",
                                "each layer is a unit, there those of 1e8 parameters, or all with "
                                "--checkpoint-activations");
  }
  adoption.set("fsdp.wrap", "transformer_block", *size,
               "layers of fewer parameters were part of the root there");
}

void set_defaults(Adoption& adoption) {
  const std::string origin = "fairseq's default";
  for (const auto& [key, value] : {std::pair{"train.clip_norm", "0"},
                                   {"train.seed", "1"},
                                   {"train.log_every", "100"},
                                   {"data.sequence_length", "1024"},
                                   {"train.schedule.kind", "constant"},
                                   {"train.optimizer.weight_decay", "0"},
                                   {"fsdp.strategy", "no_shard"}}) {
    adoption.set_default(key, value, origin);
  }
  const Given* optimizer = adoption.find("--optimizer");
  if (!optimizer || optimizer->one().ends_with("adam")) {
    adoption.set_default("train.optimizer.beta2", "0.999", origin);
    adoption.set_default("train.optimizer.decay", "all", "fairseq decays every parameter");
  }
}

// What stands in front of the command.
void take_variables(Adoption& adoption, const std::vector<Given>& variables) {
  for (const Given& each : variables) {
    if (each.name == "OMP_NUM_THREADS" && !is_open(each.one())) {
      whole_to("runtime.threads")(each, adoption);
    } else if (each.name == "CUDA_VISIBLE_DEVICES" && !is_open(each.one())) {
      adoption.set_ranks(1 + std::count(each.one().begin(), each.one().end(), ','), each);
    } else {
      adoption.leave(each, "a variable: export it before mpirun where a library reads it");
    }
  }
}

}  // namespace

std::string adopt_fairseq(const std::vector<std::string>& arguments, const AdoptOptions& options) {
  const ForeignCommand command =
      read_command(arguments, {"fairseq-train", "fairseq_cli/train.py"}, fairseq_program());
  Adoption adoption("fairseq", command.source, command.arguments, options);
  take_all(fairseq_program(), adoption);
  const Given* backend = adoption.find("--ddp-backend");
  const bool sharded = backend && backend->one() == "fully_sharded";
  take_precision(adoption, sharded);
  take_length(adoption);
  if (sharded) take_wrap(adoption);
  take_variables(adoption, command.variables);
  set_defaults(adoption);
  return adoption.yaml();
}

}  // namespace fsdp::adopt
