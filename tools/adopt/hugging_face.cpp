// transformers' TrainingArguments as JSON or YAML, alone or inside the sections of a template
// (trainer.model, trainer.data, trainer.train, trainer.dist). Contract: tools/adopt/programs.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "tools/adopt/fsdp_keys.h"
#include "tools/adopt/programs.h"
#include "tools/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

struct Group {
  Take take;
  std::vector<const char*> names;
};

std::vector<Rule> rules_of(const std::vector<Group>& groups) {
  std::vector<Rule> rules;
  for (const Group& group : groups) {
    for (const char* name : group.names) rules.push_back({name, group.take});
  }
  return rules;
}

// A share of all steps is a number below 1 there.
Take steps_to(const std::string& key) {
  return [key](const Given& given, Adoption& adoption) {
    if (given.number() > 0 && given.number() < 1)
      given.refuse("a share of all steps: expected steps");
    whole_to(key)(given, adoption);
  };
}

void take_betas(const Given& given, Adoption& adoption) {
  to(given.name == "adam_beta1" ? "train.optimizer.beta1" : "train.optimizer.beta2")(given,
                                                                                     adoption);
}

void take_optimizer(const Given& given, Adoption& adoption) {
  constexpr std::array kAdamW = {"adamw_torch", "adamw_torch_fused", "adamw_hf",
                                 "adamw_apex_fused"};
  const bool adamw = std::find(kAdamW.begin(), kAdamW.end(), given.one()) != kAdamW.end();
  // transformers itself has no name for the last two: a Trainer is handed such an optimizer.
  constexpr std::array kOwn = {"sgd", "adamax", "adadelta"};
  if (!adamw && std::find(kOwn.begin(), kOwn.end(), given.one()) == kOwn.end()) {
    given.fail("adamw_torch, sgd, adamax or adadelta: the optimizers that work on shards here");
  }
  adoption.set("train.optimizer.kind", adamw ? "adamw" : given.one(), given);
}

std::vector<Rule> training_rules() {
  return rules_of({
      {whole_to("train.rows_per_pass"),
       {"per_device_train_batch_size", "per_gpu_train_batch_size"}},
      {whole_to("train.micro_steps"), {"gradient_accumulation_steps"}},
      {to("train.lr"), {"learning_rate"}},
      {to("train.optimizer.weight_decay"), {"weight_decay"}},
      {take_betas, {"adam_beta1", "adam_beta2"}},
      {to("train.optimizer.epsilon"), {"adam_epsilon"}},
      {to("train.clip_norm"), {"max_grad_norm"}},
      {to("train.schedule.kind"), {"lr_scheduler_type"}},
      {to("train.schedule.min_lr"), {"lr_scheduler_kwargs.min_lr"}},
      {to("train.schedule.cycles"), {"lr_scheduler_kwargs.num_cycles"}},
      {to("train.schedule.power"), {"lr_scheduler_kwargs.power"}},
      {to("train.schedule.decay_steps"), {"lr_scheduler_kwargs.num_decay_steps"}},
      {take_optimizer, {"optim"}},
      {refuse("its sums over rows and columns do not work on shards"), {"adafactor"}},
      {steps_to("train.log_every"), {"logging_steps"}},
      {whole_to("train.seed"), {"seed"}},
      {same("train.seed is that of the data's order too"), {"data_seed"}},
      {on_to("data.last_batch", "drop_last"), {"dataloader_drop_last"}},
      {truth_to("runtime.tf32"), {"tf32"}},
      {on_to("runtime.backend", "cpu"), {"use_cpu", "no_cuda"}},
      {to("runtime.name"), {"run_name"}},
      {whole_to("checkpoint.keep"), {"save_total_limit"}},
      {whole_to("runtime.timeout_s"), {"ddp_timeout"}},
      {on_to("train.recompute.mode", "full"), {"gradient_checkpointing"}},
      {together,
       {"max_steps", "num_train_epochs", "warmup_steps", "warmup_ratio", "eval_strategy",
        "evaluation_strategy", "eval_steps", "save_strategy", "save_steps",
        "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "bf16", "fp16",
        "fsdp", "fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap", "deepspeed"}},
  });
}

// Without a counterpart, by the reason.
std::vector<Rule> other_rules() {
  return rules_of({
      {leave("a run directory is made, runs/<name>-<time>; runtime.run_dir takes one"),
       {"output_dir", "overwrite_output_dir", "logging_dir"}},
      {same("fsdp train trains, fsdp eval evaluates"), {"do_train", "do_eval", "do_predict"}},
      {same("an evaluation has the rows of a training pass"),
       {"per_device_eval_batch_size", "per_gpu_eval_batch_size", "eval_accumulation_steps"}},
      {leave("metrics.jsonl, metrics.json and a closing table lie in the run directory"),
       {"report_to", "logging_first_step", "logging_nan_inf_filter", "log_level",
        "log_level_replica", "log_on_each_node", "include_tokens_per_second",
        "include_num_input_tokens_seen", "skip_memory_metrics", "disable_tqdm", "project",
        "trackio_space_id"}},
      {same("logs come every train.log_every steps"), {"logging_strategy"}},
      {leave("a run's first evaluation is that of train.eval_every"),
       {"eval_on_start", "eval_delay"}},
      {same("a saved model is in safetensors, a checkpoint in one folder"),
       {"save_safetensors", "save_on_each_node", "save_only_model",
        "restore_callback_states_from_checkpoint"}},
      {leave("fsdp train --resume"), {"resume_from_checkpoint", "ignore_data_skip"}},
      {leave("nothing is sent to a hub"),
       {"push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo",
        "hub_always_push", "hub_revision", "push_to_hub_model_id", "push_to_hub_organization",
        "push_to_hub_token"}},
      {leave("data.prefetch: a thread makes batches ahead of the steps"),
       {"dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
        "dataloader_persistent_workers"}},
      {leave("rows are packed into sequences"), {"group_by_length", "length_column_name"}},
      {leave("the text of a row is data.field"), {"remove_unused_columns", "label_names"}},
      {leave("mpirun or srun starts the ranks and connects them"),
       {"local_rank", "ddp_backend", "accelerator_config.*", "ray_scope", "_n_gpu"}},
      {leave("a unit is what is communicated at once: fsdp.wrap, fsdp.min_num_params"),
       {"ddp_bucket_cap_mb"}},
      {leave("a parameter without gradient stands still; fsdp.absent_is_zero"),
       {"ddp_find_unused_parameters"}},
      {leave("models here have no buffers that change"), {"ddp_broadcast_buffers"}},
      {leave("there is no graph compiler: kernels are fused by hand"),
       {"torch_compile", "torch_compile_backend", "torch_compile_mode", "torchdynamo",
        "jit_mode_eval", "use_liger_kernel", "liger_kernel_config.*"}},
      {leave("evaluation has the dtype of training"), {"bf16_full_eval", "fp16_full_eval"}},
      {leave("of Apex, which is not here"),
       {"fp16_opt_level", "half_precision_backend", "fp16_backend"}},
      {leave("the same seed and ranks give the same bits, always"), {"full_determinism"}},
      {leave("the loss is a mean over all tokens of a step; train.loss_mean: ranks"),
       {"average_tokens_across_devices"}},
      {leave("blocks keep their inputs alone, always so"), {"gradient_checkpointing_kwargs.*"}},
      {leave("fsdp eval gives losses, no predictions"),
       {"prediction_loss_only", "include_inputs_for_metrics", "include_for_metrics",
        "eval_do_concat_batches", "batch_eval_metrics", "eval_use_gather_object"}},
      {leave("of no use here"),
       {"torch_empty_cache_steps", "past_index", "debug", "use_legacy_prediction_loop",
        "use_mps_device", "tpu_num_cores", "tpu_metrics_debug", "mp_parameters"}},
      {leave("fsdp memory says what fits"), {"auto_find_batch_size"}},
      {refuse("labels are not smoothed here"), {"label_smoothing_factor"}},
      {refuse("there is no noise on embeddings here"), {"neftune_noise_alpha"}},
      {refuse("there are no optimizers of a low rank here"), {"optim_target_modules"}},
      {refuse("expected adam_beta1 and the other keys"), {"optim_args"}},
      {refuse("there is no tensor or sequence parallelism here"), {"parallelism_config.*"}},
  });
}

constexpr char kPrepared[] = "data are files here: --data FILES, nothing is downloaded";

// Of wikitext the recipes join the lines by thousands.
void take_dataset(const Given& given, Adoption& adoption) {
  if (given.one() == "wikitext" || given.one() == "Salesforce/wikitext") {
    adoption.set("data.pack", "wikitext_rows", given,
                 "as the recipes join its lines; stream drops nothing");
  }
  leave(kPrepared)(given, adoption);
}

// What scripts and templates put beside TrainingArguments.
std::vector<Rule> script_rules() {
  return rules_of({
      {model_folder(), {"model.name", "model_name_or_path"}},
      {same("master weights are f32, and compute has train.dtype"),
       {"model.torch_dtype", "model.dtype", "torch_dtype"}},
      {leave("a folder has one revision"), {"model.revision", "model_revision"}},
      {leave("no code of a model is run"),
       {"model.trust_remote_code", "data.trust_remote_code", "trust_remote_code"}},
      {on_to("train.recompute.mode", "full"), {"model.gradient_checkpointing"}},
      {leave(kPrepared),
       {"data.dataset_config_name", "data.config_name", "data.train_split", "data.eval_split",
        "data.load_kwargs.*", "dataset_config_name"}},
      {take_dataset, {"data.dataset_name", "data.name", "dataset_name"}},
      {to("data.field"), {"data.text_column", "data.text_key"}},
      {to("data.train"), {"train_file"}},
      {to("data.validation"), {"validation_file"}},
      {whole_to("data.sequence_length"), {"data.max_length", "max_seq_length", "block_size"}},
      {together, {"dist.mode"}},
      {leave("mpirun or srun starts the ranks and connects them"), {"dist.backend"}},
      {leave("metrics.jsonl lies in the run directory"), {"logging.*"}},
      {leave("of Hydra, which composes files: include does that here"), {"hydra.*", "defaults"}},
      {leave("of the cluster's launcher"), {"compute.*"}},
  });
}

std::vector<Rule> sharding_rules() {
  const auto key = [](const char* name) { return std::string("fsdp_config.") + name; };
  std::vector<Rule> rules = fsdp_rules();
  rules.insert(
      rules.end(),
      {{key("transformer_layer_cls_to_wrap"), together},
       {key("min_num_params"), together},
       {key("auto_wrap_policy"),
        same("transformers reads \"auto_wrap\" in fsdp, and min_num_params")},
       {key("offload_params"), same("transformers reads \"offload\" in fsdp")},
       {key("offload_to_cpu"), leave("transformers does not read it: \"offload\" in fsdp says it")},
       {key("mixed_precision.enabled"), leave("transformers reads fp16 and bf16")},
       {key("mixed_precision.param_dtype"), leave("transformers reads fp16 and bf16")},
       {key("mixed_precision.buffer_dtype"),
        leave("transformers does not read it; rotary and ALiBi values stay f32 here")},
       {key("mixed_precision.reduce_dtype"),
        [](const Given& given, Adoption& adoption) {
          if (adoption.options().literal)
            adoption.leave(given, "transformers does not read it");
          else
            adoption.set("train.reduce_dtype", given.one(), given, "transformers does not read it");
        }},
       {key("device_id"), leave("each rank has its own GPU")},
       {key("xla"), refuse("there are no TPUs here")},
       {key("xla_fsdp_v2"), refuse("there are no TPUs here")},
       {key("xla_fsdp_grad_ckpt"), refuse("there are no TPUs here")},
       {key("xla_fsdp_settings.*"), refuse("there are no TPUs here")}});
  return rules;
}

// ---- keys that are read together ----

bool is_on(const Given* given) { return given && given->truth(); }

// max_steps counts more than epochs; warm-up steps more than their share of all.
void take_length(Adoption& adoption) {
  const Given* steps = adoption.find("max_steps");
  const Given* epochs = adoption.find("num_train_epochs");
  const bool by_steps = steps && steps->whole() > 0;
  if (by_steps) whole_to("train.steps")(*steps, adoption);
  if (steps && !by_steps) adoption.off(*steps);
  if (epochs && by_steps) adoption.leave(*epochs, "max_steps counts more");
  if (epochs && !by_steps) whole_to("train.epochs")(*epochs, adoption);
  if (!by_steps) adoption.set_default("train.epochs", "3", "TrainingArguments' default");

  const Given* warmup = adoption.find("warmup_steps");
  const Given* ratio = adoption.find("warmup_ratio");
  if (warmup) whole_to("train.schedule.warmup")(*warmup, adoption);
  if (!ratio || ratio->number() == 0) return;
  if (warmup && warmup->whole() > 0) return adoption.leave(*ratio, "warmup_steps counts more");
  if (by_steps) {
    const auto count =
        static_cast<int64_t>(std::ceil(ratio->number() * static_cast<double>(steps->whole())));
    return adoption.set("train.schedule.warmup", std::to_string(count), *ratio,
                        "of " + steps->text() + " steps");
  }
  adoption.leave(*ratio,
                 "no counterpart yet: train.schedule.warmup counts steps; the run's first "
                 "lines say how many there are");
}

// How often, where "steps", "epoch" or "no" says how it is counted.
void take_interval(Adoption& adoption, const Given* strategy, const Given* steps,
                   const std::string& our_key, const std::string& otherwise) {
  const std::string how = strategy ? strategy->one() : otherwise;
  if (how == "no" || how == "epoch") {
    if (strategy) adoption.set(our_key, how == "no" ? "0" : "epoch", *strategy);
    if (steps) adoption.leave(*steps, "no effect with \"" + how + "\"");
  } else if (how == "steps") {
    if (steps) steps_to(our_key)(*steps, adoption);
    if (steps && strategy) adoption.leave(*strategy, "as " + our_key + " says");
    const Given* logging = adoption.find("logging_steps");  // the default of eval_steps
    const bool as_logs = our_key == "train.eval_every" && logging;
    if (!steps && strategy) {
      adoption.set(our_key, as_logs ? logging->one() : "500", *strategy, "the default");
    }
  } else {
    strategy->fail("no, steps or epoch");
  }
}

void take_intervals(Adoption& adoption) {
  const Given* old_name = adoption.find("evaluation_strategy");
  const Given* eval = old_name ? old_name : adoption.find("eval_strategy");
  take_interval(adoption, eval, adoption.find("eval_steps"), "train.eval_every", "no");
  take_interval(adoption, adoption.find("save_strategy"), adoption.find("save_steps"),
                "checkpoint.every", "steps");
  adoption.set_default("checkpoint.every", "500", "TrainingArguments' default");
  const Given* best = adoption.find("load_best_model_at_end");
  const Given* metric = adoption.find("metric_for_best_model");
  const Given* greater = adoption.find("greater_is_better");
  if (best) on_to("checkpoint.load_best", "true")(*best, adoption);
  if (metric) {
    if (metric->one() != "eval_loss" && metric->one() != "loss") metric->fail("eval_loss");
    adoption.set("checkpoint.best", "validation_loss", *metric);
  } else if (is_on(best)) {
    adoption.set("checkpoint.best", "validation_loss", *best);
  }
  if (greater) {
    if (greater->truth()) greater->refuse("the best checkpoint has the smallest loss");
    adoption.off(*greater);
  }
}

// The words of `fsdp`, with transformers' own rules on them.
std::vector<std::string> sharding_words(const Given& given) {
  constexpr std::array kKnown = {"full_shard",         "shard_grad_op", "no_shard", "hybrid_shard",
                                 "hybrid_shard_zero2", "offload",       "auto_wrap"};
  std::vector<std::string> words;
  for (const std::string& value : given.values) {
    for (size_t begin = 0; begin < value.size();) {
      const size_t end = std::min(value.find(' ', begin), value.size());
      if (end > begin) words.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (words.size() == 1 && words[0] == "true") words = {"full_shard"};
  if (is_off(given)) words.clear();
  for (const std::string& word : words) {
    if (std::find(kKnown.begin(), kKnown.end(), word) == kKnown.end()) {
      given.fail(fmt::format("words out of {}", fmt::join(kKnown, ", ")));
    }
  }
  return words;
}

void take_fsdp(Adoption& adoption, const Given& given) {
  std::string strategy;
  bool offload = false, wrapped = false;
  const std::vector<std::string> words = sharding_words(given);
  for (const std::string& word : words) {
    if (word == "offload") {
      offload = true;
    } else if (word == "auto_wrap") {
      wrapped = true;
    } else {
      if (!strategy.empty() && strategy != word) given.fail("one strategy");
      strategy = word;
    }
  }
  if (offload && words.size() == 1) {
    given.fail("a strategy beside offload, such as \"full_shard offload\"");
  }
  if (words.empty()) return adoption.set("fsdp.strategy", "no_shard", given);
  set_strategy(adoption, given, strategy.empty() ? "full_shard" : strategy);
  if (offload) adoption.set("fsdp.offload", "all", given);
  const Given* size = adoption.find("fsdp_config.min_num_params");
  const bool by_size = size && size->whole() > 0;
  if (by_size && adoption.find("fsdp_config.transformer_layer_cls_to_wrap")) {
    size->refuse("expected it or transformer_layer_cls_to_wrap, got both");
  }
  set_wrap(adoption,
           !wrapped  ? Wrapping::kNone
           : by_size ? Wrapping::kSize
                     : Wrapping::kBlocks,
           wrapped ? &given : nullptr);
  adoption.set_default("fsdp.forward_prefetch", "false", "transformers' default");
  adoption.set_default("fsdp.backward_prefetch", "none", "transformers' default");
}

void take_sharding(Adoption& adoption) {
  const Given* fsdp = adoption.find("fsdp");
  const Given* mode = adoption.find("dist.mode");
  if (mode && mode->one() != "fsdp" && mode->one() != "ddp" && mode->one() != "none") {
    mode->fail("fsdp, ddp or none");
  }
  const bool plain = mode && mode->one() != "fsdp";
  if (plain) adoption.set("fsdp.strategy", "no_shard", *mode);
  if (plain && fsdp) adoption.leave(*fsdp, "no effect with dist.mode: " + mode->text());
  if (mode && !plain) adoption.leave(*mode, "fsdp.strategy says it");
  const bool sharded = fsdp && !plain && !is_off(*fsdp);
  if (fsdp && !plain) take_fsdp(adoption, *fsdp);
  if (!fsdp) adoption.set_default("fsdp.strategy", "no_shard", "without fsdp");
  if (!sharded) {
    for (const char* unused :
         {"fsdp_config.transformer_layer_cls_to_wrap", "fsdp_config.min_num_params"}) {
      if (const Given* given = adoption.find(unused))
        adoption.leave(*given, "no effect without fsdp");
    }
  }
  const Given* checkpointing = adoption.find("gradient_checkpointing");
  const Given* inside = adoption.find("fsdp_config.activation_checkpointing");
  if (is_on(checkpointing) && is_on(inside)) {
    inside->refuse("expected it or gradient_checkpointing to be true, got both");
  }
  const Given* f16 = adoption.find("fp16");
  const Given* bf16 = adoption.find("bf16");
  if (is_on(f16) && is_on(bf16)) bf16->refuse("expected one of fp16 and bf16, got both");
  for (const Given* each : {f16, bf16}) {
    if (each && each->truth())
      set_precision(adoption, *each, each->key.substr(each->key.rfind('.') + 1), sharded);
    if (each && !each->truth()) adoption.off(*each);
  }
  if (const Given* deepspeed = adoption.find("deepspeed"); deepspeed && !is_off(*deepspeed)) {
    adoption.leave(*deepspeed, "fsdp adopt deepspeed " + deepspeed->text());
  }
}

void set_defaults(Adoption& adoption) {
  const std::string origin = "TrainingArguments' default";
  for (const auto& [key, value] : {std::pair{"train.rows_per_pass", "8"},
                                   {"train.lr", "5e-5"},
                                   {"train.schedule.kind", "linear"},
                                   {"train.optimizer.weight_decay", "0"},
                                   {"train.log_every", "500"}}) {
    adoption.set_default(key, value, origin);
  }
  const Given* optimizer = adoption.find("optim");
  if (optimizer && (optimizer->one() == "sgd" || optimizer->one() == "adadelta")) return;
  adoption.set_default("train.optimizer.beta2", "0.999", origin);
}

// The prefixes of a template's sections, and of fsdp_config's keys, say nothing.
std::string name_of(std::string key) {
  for (const char* section : {"trainer.", "train.", "dist."}) {
    const std::string prefix = section;
    const bool own = key == "dist.mode" || key == "dist.backend";
    if (key.starts_with(prefix) && !own) key.erase(0, prefix.size());
  }
  if (key == "fsdp_min_num_params" || key == "fsdp_transformer_layer_cls_to_wrap") {
    key = "fsdp_config." + key;  // where they stood until transformers 4.30
  }
  return fsdp_key_name(key);
}

// fsdp_config may be a file of its own.
std::vector<Given> read_arguments(const std::filesystem::path& file) {
  std::vector<Given> all;
  for (Given& each : read_tree(file)) {
    each.name = name_of(each.key);
    const bool other_file = each.name == "fsdp_config" && !each.is_list;
    if (!other_file) {
      all.push_back(each);
      continue;
    }
    const std::filesystem::path named(each.one());
    const bool here = std::filesystem::exists(named);
    for (Given& inner : read_tree(here ? named : file.parent_path() / named)) {
      inner.name = fsdp_key_name("fsdp_config." + inner.key);
      all.push_back(inner);
    }
  }
  return all;
}

}  // namespace

const Program& hugging_face_program() {
  static const Program program =
      program_of("hf", "TrainingArguments",
                 {training_rules(), sharding_rules(), script_rules(), other_rules()});
  return program;
}

std::string adopt_hugging_face(const std::filesystem::path& file, const AdoptOptions& options) {
  Adoption adoption("hf", file.string(), read_arguments(file), options);
  take_all(hugging_face_program(), adoption);
  take_length(adoption);
  take_intervals(adoption);
  take_sharding(adoption);
  set_defaults(adoption);
  return adoption.yaml();
}

std::vector<const Program*> tree_programs() {
  return {&accelerate_program(), &hugging_face_program(), &deepspeed_program()};
}

}  // namespace fsdp::adopt
