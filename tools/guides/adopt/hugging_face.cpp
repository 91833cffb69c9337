// transformers' TrainingArguments as JSON or YAML, alone or inside the sections of a template
// (trainer.model, trainer.data, trainer.train, trainer.dist), key by key. Keys that are read
// together: hugging_face_keys.cpp. Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "tools/guides/adopt/fsdp_keys.h"
#include "tools/guides/adopt/hugging_face_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

void take_betas(const Given& given, Adoption& adoption) {
  to(given.name == "adam_beta1" ? "train.optimizer.beta1" : "train.optimizer.beta2")(given,
                                                                                     adoption);
}

const std::string kKwargs[] = {"activation_checkpointing_kwargs.",
                               "gradient_checkpointing_kwargs."};

// Its kwargs, and TRL's activation_offloading, say whether what recompute keeps waits on the host.
void take_checkpointing(const Given& given, Adoption& adoption) {
  bool offloads = adoption.is_on("activation_offloading");
  for (const std::string& kwargs : kKwargs)
    offloads = offloads || adoption.is_on(kwargs + "offload");
  on_to("train.recompute.mode", offloads ? "offload" : "full")(given, adoption);
}

bool recomputes(const Adoption& adoption) {
  return adoption.is_on("activation_checkpointing") || adoption.is_on("gradient_checkpointing");
}

void take_checkpointed_layers(const Given& given, Adoption& adoption) {
  if (recomputes(adoption))
    count_to("train.recompute.every")(given, adoption);
  else
    adoption.leave(given, "no effect without activation_checkpointing");
}

void take_order(const Given& given, Adoption& adoption) {
  const std::string& order = given.one();
  if (order == "random" || order == "sequential")
    return adoption.set("data.shuffle", order == "random" ? "true" : "false", given);
  if (order != "group_by_length" && order != "batch_rebalance")
    given.fail("random, sequential, group_by_length or batch_rebalance");
  adoption.leave(given, "rows of one length are not put together: their order is random");
}

void take_loss_mean(const Given& given, Adoption& adoption) {
  adoption.set("train.loss_mean", given.truth() ? "tokens" : "ranks", given);
}

// Of the learning rate.
void take_share_of_peak(const Given& given, Adoption& adoption) {
  const Given* lr = adoption.find("learning_rate");
  const double peak = lr ? lr->number() : 5e-5;
  adoption.set("train.schedule.min_lr", fmt::format("{:.9g}", given.number() * peak), given,
               fmt::format("of {}", peak));
}

void take_timescale(const Given& given, Adoption& adoption) {
  const std::string mistake = "get_scheduler does not hand it to inverse_sqrt";
  if (adoption.options().literal)
    adoption.leave(given, mistake);
  else
    adoption.set("train.schedule.timescale", std::to_string(given.whole()), given,
                 mistake + " (--literal)");
}

std::vector<Rule> training_rules() {
  return rules_of({
      {count_to("train.rows_per_pass"),
       {"per_device_train_batch_size", "per_gpu_train_batch_size"}},
      {count_to("train.micro_steps"), {"gradient_accumulation_steps"}},
      {to("train.lr"), {"learning_rate"}},
      {to("train.optimizer.weight_decay"), {"weight_decay"}},
      {take_betas, {"adam_beta1", "adam_beta2"}},
      {to("train.optimizer.epsilon"), {"adam_epsilon"}},
      {to("train.clip_norm"), {"max_grad_norm"}},
      {to("train.schedule.kind"), {"lr_scheduler_type"}},
      {take_optimizer, {"optim"}},
      {refuse("its sums over rows and columns do not work on shards"), {"adafactor"}},
      {whole_to("train.seed"), {"seed"}},
      {same("train.seed is that of the data's order too"), {"data_seed"}},
      {on_to("data.last_batch", "drop_last"), {"dataloader_drop_last"}},
      {truth_to("runtime.tf32"), {"tf32"}},
      {on_to("runtime.backend", "cpu"), {"use_cpu", "no_cuda"}},
      {to("runtime.name"), {"run_name"}},
      {whole_to("checkpoint.keep"), {"save_total_limit"}},
      {whole_to("runtime.timeout_s"), {"ddp_timeout"}},
      {take_checkpointing, {"gradient_checkpointing", "activation_checkpointing"}},
      {take_order, {"train_sampling_strategy"}},
      {together,
       {"max_steps", "num_train_epochs", "warmup_steps", "warmup_ratio", "eval_strategy",
        "evaluation_strategy", "eval_steps", "save_strategy", "save_steps",
        "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "bf16", "fp16",
        "fsdp", "deepspeed"}},
      {refuse("expected the name of a file with these keys, which fsdp adopt deepspeed reads"),
       {"deepspeed.*"}},
      {leave("fsdp_config says it, which counts more"),
       {"fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"}},
      {together, {"logging_strategy", "logging_steps"}},
  });
}

// What is told to whom.
std::vector<Rule> reporting_rules() {
  return rules_of({
      {leave("metrics.jsonl, metrics.json and a closing table lie in the run directory"),
       {"report_to", "logging_first_step", "logging_nan_inf_filter", "log_level",
        "log_level_replica", "log_on_each_node", "include_tokens_per_second",
        "include_num_input_tokens_seen", "skip_memory_metrics", "disable_tqdm", "project",
        "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"}},
      {leave("nothing is sent to a hub"),
       {"push_to_hub", "hub_model_id", "hub_strategy", "hub_token", "hub_private_repo",
        "hub_always_push", "hub_revision", "push_to_hub_model_id", "push_to_hub_organization",
        "push_to_hub_token"}},
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
      {leave("a run's first evaluation is that of train.eval_every"),
       {"eval_on_start", "eval_delay"}},
      {same("a saved model is in safetensors, a checkpoint in one folder"),
       {"save_safetensors", "save_on_each_node", "save_only_model",
        "restore_callback_states_from_checkpoint"}},
      {leave("fsdp train --resume"), {"resume_from_checkpoint", "ignore_data_skip"}},
      {leave("data.prefetch: a thread makes batches ahead of the steps"),
       {"dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_pin_memory",
        "dataloader_persistent_workers", "dataloader_multiprocessing_context"}},
      {same("batches come in their order"), {"dataloader_in_order"}},
      {leave("a signal ends a run with a checkpoint"), {"enable_jit_checkpoint"}},
      {same("a model that is trained keeps no keys and values"), {"use_cache"}},
      {leave("the graph of a step is not recorded"), {"ddp_static_graph"}},
      {leave("rows are packed into sequences"), {"group_by_length", "length_column_name"}},
      {leave("the text of a row is data.field"), {"remove_unused_columns", "label_names"}},
      {leave("mpirun or srun starts the ranks and connects them"),
       {"local_rank", "ddp_backend", "ray_scope", "_n_gpu"}},
      {refuse("the batch of a rank would be per_device_train_batch_size / ranks: expected false, "
              "and per_device_train_batch_size divided"),
       {"accelerator_config.split_batches"}},
      {count_to("train.micro_steps"),
       {"accelerator_config.gradient_accumulation_kwargs.num_steps"}},
      {leave("rows are dealt to the ranks as data.shuffle_rule and data.last_batch say"),
       {"accelerator_config.*"}},
  });
}

// Of how it is computed, without a counterpart.
std::vector<Rule> computing_rules() {
  return rules_of({
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
      {same("the same seed and ranks give the same bits (train.attention_deterministic)"),
       {"full_determinism"}},
      {take_loss_mean, {"average_tokens_across_devices"}},
      {same("blocks keep their inputs alone, always so"),
       {"gradient_checkpointing_kwargs.*", "activation_checkpointing_kwargs.*"}},
      {take_checkpointed_layers,
       {"gradient_checkpointing_kwargs.every_n_layers",
        "activation_checkpointing_kwargs.every_n_layers"}},
      {leave("as train.recompute.mode says"),
       {"gradient_checkpointing_kwargs.offload", "activation_checkpointing_kwargs.offload"}},
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
      {leave("of Hydra, which composes files: include does that here"),
       {"hydra.*", "defaults", "defaults[].*"}},
      {leave("of the cluster's launcher"), {"compute.*"}},
  });
}

// Files that transformers wrote have the old names of these keys beside fsdp_config, which counts.
void settle_old_names(std::vector<Given>& all) {
  for (Given& old : all) {
    const bool renamed = old.key.ends_with("fsdp_min_num_params") ||
                         old.key.ends_with("fsdp_transformer_layer_cls_to_wrap");
    if (!renamed || old.key.find("fsdp_config.") != std::string::npos) continue;
    const bool said = std::any_of(all.begin(), all.end(), [&](const Given& each) {
      return each.name == old.name && each.key != old.key && !is_off(each);
    });
    if (said && !is_off(old)) old.name = old.name.substr(old.name.find('.') + 1).insert(0, "fsdp_");
  }
}

// The prefixes of a template's sections, and of fsdp_config's keys, say nothing.
std::string name_of(const std::string& written) {
  std::string key = written;
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
    each.name = name_of(each.name);
    const bool other_file = each.name == "fsdp_config" && !each.is_list;
    if (!other_file) {
      all.push_back(each);
      continue;
    }
    const std::filesystem::path named(each.one());
    const bool here = std::filesystem::exists(named);
    for (Given& inner : read_tree(here ? named : file.parent_path() / named)) {
      inner.name = fsdp_key_name("fsdp_config." + inner.name);
      all.push_back(inner);
    }
  }
  settle_old_names(all);
  return all;
}

}  // namespace

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

// Of transformers' own schedules (optimization.py); get_scheduler hands them on by name.
std::vector<Rule> schedule_rules() {
  const auto key = [](const char* name) { return std::string("lr_scheduler_kwargs.") + name; };
  std::vector<Rule> rules = {
      {key("min_lr"), to("train.schedule.min_lr")},
      {key("lr_end"), to("train.schedule.min_lr")},
      {key("min_lr_rate"), take_share_of_peak},
      {key("min_lr_ratio"), take_share_of_peak},
      {key("num_cycles"), to("train.schedule.cycles")},
      {key("power"), to("train.schedule.power")},
      {key("num_decay_steps"), whole_to("train.schedule.decay_steps")},
      {key("num_stable_steps"), together},
      {key("warmup_type"), to("train.schedule.warmup_shape")},
      {key("decay_type"), to("train.schedule.decay_shape")},
      {key("timescale"), take_timescale},
      {key("warmup_lr_rate"), refuse("a warm-up rises by equal steps from 0 here")},
      {key("last_epoch"), same("fsdp train --resume knows the step")}};
  for (const char* name :
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "eps"}) {
    rules.push_back({key(name), refuse("of reduce_lr_on_plateau, which is not here")});
  }
  return rules;
}

std::vector<Rule> sharding_rules() {
  const auto key = [](const char* name) { return std::string("fsdp_config.") + name; };
  std::vector<Rule> rules = fsdp_rules();
  rules.insert(
      rules.end(),
      {{key("transformer_layer_cls_to_wrap"), together},
       {key("min_num_params"), together},
       {key("auto_wrap_policy"), together},
       {key("reshard_after_forward"), together},
       {key("cpu_offload"),
        [](const Given& given, Adoption& adoption) {
          const Given* fsdp = adoption.find("fsdp");
          const bool read = fsdp && is_of_five(adoption, *fsdp);
          if (is_off(given))
            adoption.off(given);
          else if (!read && adoption.options().literal)
            adoption.leave(given, "transformers 4 does not read it");
          else
            adoption.set("fsdp.offload", "all", given,
                         read ? "" : "transformers 4 does not read it");
        }},
       {key("offload_params"), same("transformers reads cpu_offload, or \"offload\" in fsdp")},
       {key("offload_to_cpu"),
        leave("transformers does not read it: cpu_offload, or \"offload\" in fsdp says it")},
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

std::vector<Rule> trainer_rules() {
  return program_of("", "",
                    {training_rules(), schedule_rules(), sharding_rules(), reporting_rules(),
                     other_rules(), computing_rules()})
      .rules;
}

const Program& hugging_face_program() {
  static const Program program = [] {
    Program made =
        program_of("hf", "TrainingArguments", {trainer_rules(), script_rules(), sft_rules()});
    made.name_of = name_of;
    made.keys_of_whole_file = 70;
    return made;
  }();
  return program;
}

std::string adopt_hugging_face(const std::filesystem::path& file, const AdoptOptions& options) {
  Adoption adoption("hf", file.string(), read_arguments(file), options);
  std::vector<Ignored> ignored;
  if (!uses_fsdp(adoption))
    ignored.push_back({"fsdp_config.", "no effect without FSDP"});
  else if (version_of_fsdp(adoption) == 2)
    ignored = without_second_fsdp();
  take_all(hugging_face_program(), adoption, ignored);
  take_arguments_together(adoption);
  return adoption.yaml();
}

std::vector<const Program*> tree_programs() {
  return {&accelerate_program(), &hugging_face_program(), &deepspeed_program(), &axolotl_program(),
          &llama_factory_program()};
}

}  // namespace fsdp::adopt
