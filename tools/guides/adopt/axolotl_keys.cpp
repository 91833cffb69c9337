// Contract: tools/guides/adopt/axolotl_keys.h.
#include "tools/guides/adopt/axolotl_keys.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "tools/guides/adopt/fsdp_keys.h"
#include "tools/guides/adopt/hugging_face_keys.h"

namespace fsdp::adopt {
namespace {

constexpr char kChats[] =
    "rows of chats are not trained here: expected the type alpaca or completion";
constexpr char kBits[] = "weights have 16 or 32 bits here: expected false";
constexpr char kOtherwise[] =
    "a model is trained here to predict the next token, and in no other way";
constexpr char kFused[] = "there is no choice of kernels: they are fused by hand";

// ---- data ----
void take_type(const Given& given, Adoption& adoption) {
  const std::string& type = given.one();
  const bool alpaca = type == "alpaca";
  if (!alpaca && type != "completion") given.refuse(kChats);
  if (alpaca) adoption.set("data.template", "axolotl_alpaca", given);
  const bool whole = !alpaca || adoption.is_on("train_on_inputs");
  adoption.set("data.objective", whole ? "lm" : "sft", given);
  if (whole)
    adoption.set("data.pack", "examples", given,
                 alpaca ? "" : "a longer row is cut; there its rest is a row, too");
}

void take_split(const Given& given, Adoption& adoption) {
  if (given.one().find('[') != std::string::npos) {
    given.refuse("a part of a data set is data.subset here: expected a split without [ ]");
  }
  adoption.leave(given, "a file is one split");
}

std::vector<Rule> set_rules() {
  std::vector<Rule> rules;
  for (const std::string section : {"datasets", "test_datasets"}) {
    const auto key = [&](const char* name) { return section + "[]." + name; };
    rules.insert(rules.end(),
                 {{section, refuse("expected a list of sections")},
                  {key("path"), together},
                  {key("data_files"), together},
                  {key("type"), take_type},
                  {key("type.*"), refuse("a text of one's own is data.template here, a file with "
                                         "fields in braces: expected alpaca or completion")},
                  {key("split"), take_split},
                  {key("field"), to("data.field")},
                  {key("ds_type"), leave("the ending of a file says it, or data.format")},
                  {key("name"), leave(kPrepared)},
                  {key("revision"), leave(kPrepared)},
                  {key("trust_remote_code"), leave(kPrepared)},
                  {key("shards"), refuse("a part of a data set is data.subset here")},
                  {key("shards_idx"), leave("no effect without shards")},
                  {key("preprocess_shards"), leave("texts become tokens once")},
                  {key("*"), refuse(kChats)}});
  }
  return rules;
}

std::vector<Rule> row_rules() {
  return rules_of({
      {share_to("data.validation"), {"val_set_size"}},
      {whole_to("data.sequence_length"), {"sequence_len"}},
      {together, {"train_on_inputs"}},
      {on_to("data.pad_to", "length"), {"pad_to_sequence_len"}},
      {on_to("data.shuffle", "false"), {"curriculum_sampling"}},
      {refuse("a sequence of several rows, each of which sees itself alone, is not made here: "
              "expected false"),
       {"sample_packing", "eval_sample_packing", "pretrain_multipack_attn"}},
      {leave("no effect without sample_packing"),
       {"sample_packing_group_size", "sample_packing_bin_size", "sample_packing_sequentially",
        "sample_packing_mp_start_method", "sample_packing_eff_est", "multipack_real_batches",
        "sample_packing_seq_len_multiplier", "total_num_tokens", "max_packed_sequence_len",
        "pretrain_multipack_buffer_size", "streaming_multipack_buffer_size"}},
      {refuse("a text that is read while a run trains is a file here: expected datasets, of type "
              "completion"),
       {"pretraining_dataset", "pretraining_dataset[].*", "streaming",
        "pretraining_sample_concatenation"}},
  });
}

// Only the end of a text is trained.
void take_end(const Given& given, Adoption& adoption) {
  adoption.leave(given, "the tokenizer's folder says it");
  adoption.warn(given.origin() +
                " is not taken over: a text ends here as the tokenizer's folder says; where that "
                "is another token, change eos_token in its tokenizer_config.json");
}

std::vector<Rule> text_rules() {
  return rules_of({
      {leave("of rows of chats, which are not trained here; the tokenizer's folder keeps its own"),
       {"chat_template", "chat_template_jinja", "chat_template_kwargs.*", "eot_tokens",
        "default_system_message"}},
      {take_end, {"special_tokens.eos_token"}},
      {leave("the tokenizer's folder says it"),
       {"special_tokens.*", "tokenizer_type", "tokenizer_use_fast", "tokenizer_legacy",
        "tokenizer_use_mistral_common", "tokenizer_save_jinja_files"}},
      {refuse("there are no new tokens here: they belong into the folder of the model"),
       {"tokens", "tokens.*", "added_tokens_overrides.*", "fix_untrained_tokens"}},
      {leave("the model keeps its vocabulary"),
       {"resize_token_embeddings_to_32x", "mean_resizing_embeddings", "shrink_embeddings"}},
      {to("data.tokenizer"), {"tokenizer_config"}},
      {leave("texts become tokens once, on threads of their own; data.cache_dir keeps them"),
       {"dataset_prepared_path", "dataset_processes", "dataset_num_proc", "dataset_keep_in_memory",
        "num_dataset_shards_to_save", "is_preprocess", "preprocess_iterable"}},
      {leave("a row that is longer is cut; axolotl leaves it out unless this says truncate"),
       {"excess_length_strategy"}},
      {same("data.shuffle: rows are shuffled in every epoch"),
       {"shuffle_merged_datasets", "shuffle_before_merging_datasets"}},
      {leave("rows are padded as data.pad and data.pad_to say"),
       {"pad_to_multiple_of", "batch_flattening"}},
      {leave("nothing is sent to a hub"), {"push_dataset_to_hub", "hf_use_auth_token"}},
      {refuse("rows are neither left out nor split by their length here"),
       {"min_sample_len", "max_prompt_len", "eval_sequence_len", "use_pose"}},
      {leave("no effect without use_pose"),
       {"pose_split_on_token_ids", "pose_max_context_len", "pose_num_chunks"}},
      {refuse("rows are not compared with one another here"), {"dataset_exact_deduplication"}},
      {refuse("a part of a data set is data.subset here"),
       {"dataset_shard_num", "dataset_shard_idx"}},
      {refuse("rows of text become tokens here"), {"skip_prepare_dataset"}},
  });
}

// ---- the model, and LoRA ----
void take_adapter(const Given& given, Adoption& adoption) {
  if (given.one() == "qlora") given.refuse("weights have 16 or 32 bits here: expected lora");
  if (!is_off(given) && given.one() != "lora") given.fail("lora, or none");
  adoption.leave(given, is_off(given) ? "all parameters are trained" : "lora.r says it");
}

void take_targets(const Given& given, Adoption& adoption) {
  const bool pattern =
      !given.is_list && given.one().find_first_of("[](){}|\\*+?^$") != std::string::npos;
  if (pattern) given.refuse("a pattern: expected names of layers, or lora_target_linear");
  if (adoption.is_on("lora_target_linear"))
    return adoption.leave(given, "lora_target_linear takes them all");
  adoption.set_list("lora.targets", given.values, given);
}

std::vector<Rule> model_rules() {
  return rules_of({
      {model_folder(), {"base_model"}},
      {leave("config.json of the folder says it"),
       {"base_model_config", "model_type", "type_of_model", "is_falcon_derived_model",
        "is_llama_derived_model", "is_mistral_derived_model", "is_qwen_derived_model"}},
      {leave("a folder has one revision"), {"revision_of_model", "model_revision"}},
      {leave("no code of a model is run"), {"trust_remote_code"}},
      {leave("weights are read as each rank needs them"),
       {"low_cpu_mem_usage", "experimental_skip_move_to_device", "device", "device_map",
        "max_memory", "gpu_memory_limit", "embeddings_skip_upcast", "base_model_ignore_patterns"}},
      {refuse("config.json of the folder counts: change it there"),
       {"overrides_of_model_config.*", "model_config.*", "overrides_of_model_kwargs.*",
        "rope_scaling", "rope_scaling.*"}},
      {refuse("models here are of text alone"),
       {"processor_type", "processor_kwargs.*", "cls_model_config", "num_labels",
        "freeze_mm_modules"}},
      {refuse("expected false: model.preset or the sizes of model train from scratch"),
       {"reinit_weights"}},
      {refuse("there are no models of experts here"),
       {"dsv4_*", "use_dsv4_kernels", "use_glm_dsa_kernels", "moe_*", "expert_backend",
        "expert_parallel_*", "llama4_linearized_experts", "gemma4_*"}},
      {refuse(kBits),
       {"load_in_8bit", "load_in_4bit", "gptq", "bnb_config_kwargs.*", "model_quantization_config",
        "model_quantization_config_kwargs.*", "use_onebitllms", "quantize_moe_experts", "qat.*",
        "quantization.*", "fp8", "fp8_enable_fsdp_float8_all_gather", "qlora_sharded_model_loading",
        "nvfp4_*", "nonexpert_quantization"}},
      {leave("no effect without gptq"),
       {"gptq_groupsize", "gptq_model_v1", "gptq_disable_exllama"}},
      {take_adapter, {"adapter"}},
      {to("lora.path"), {"lora_model_dir"}},
      {count_to("lora.r"), {"lora_r"}},
      {to("lora.alpha"), {"lora_alpha"}},
      {to("lora.dropout"), {"lora_dropout"}},
      {take_targets, {"lora_target_modules"}},
      {on_to("lora.targets", "[all-linear]"), {"lora_target_linear"}},
      {truth_to("lora.rslora"), {"peft_use_rslora"}},
      {leave("the kind of a layer says it"), {"lora_fan_in_fan_out"}},
      {leave("low-rank terms are f32"), {"peft_autocast_adapter_dtype"}},
      {leave("a rank merges its own shard"), {"lora_on_cpu"}},
      {leave(kFused),
       {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"}},
      {leave("fsdp merge makes one model of an adapter"), {"merge_lora", "merge_method"}},
      {leave("no effect without loraplus_lr_ratio"), {"loraplus_lr_embedding"}},
      {refuse("a low-rank term is a plain one of a linear layer here"),
       {"peft_use_dora", "lora_modules_to_save", "lora_target_parameters", "lora_rank_pattern.*",
        "lora_alpha_pattern.*", "peft_layers_to_transform", "peft_layers_pattern",
        "peft_layer_replication", "peft_init_lora_weights", "peft_trainable_token_indices",
        "peft_trainable_token_indices.*", "loraplus_lr_ratio", "peft.*", "relora",
        "lora_exclude_modules"}},
      {leave("no effect without relora"),
       {"relora_prune_ratio", "relora_prune_method", "relora_cpu_offload"}},
      {refuse("train.freeze names what is not trained"), {"unfrozen_parameters"}},
  });
}

// ---- training ----
void take_recompute(const Given& given, Adoption& adoption) {
  const bool offloads = given.one() == "offload" || is_on(adoption.find("activation_offloading"));
  if (given.one() == "offload_disk") given.refuse("what recompute keeps waits on the host alone");
  if (is_off(given)) return adoption.off(given);
  if (given.one() != "offload") given.truth();
  adoption.set("train.recompute.mode", offloads ? "offload" : "full", given);
}

void take_offloading(const Given& given, Adoption& adoption) {
  if (is_off(given)) return adoption.off(given);
  if (given.one() == "disk") given.refuse("what recompute keeps waits on the host alone");
  adoption.set("train.recompute.mode", "offload", given);
}

void take_tf32(const Given& given, Adoption& adoption) {
  const bool automatic = given.one() == "auto";
  adoption.set("runtime.tf32", !automatic && given.truth() ? "true" : "false", given);
}

// Of rows of a rank. With gradient_accumulation_steps beside it, it says nothing more.
void take_batch(const Given& given, Adoption& adoption) {
  const Given* rows = adoption.find("per_device_train_batch_size");
  if (adoption.find("gradient_accumulation_steps"))
    return adoption.leave(given, "gradient_accumulation_steps says it");
  const int64_t pass = rows ? rows->whole() : 1;
  if (pass < 1 || given.whole() < pass) given.fail("at least micro_batch_size");
  adoption.set("train.micro_steps", std::to_string(given.whole() / pass), given,
               fmt::format("of {} rows", pass));
}

void take_plugins(const Given& given, Adoption& adoption) {
  constexpr std::array kFaster = {"liger", "cut_cross_entropy", "swanlab", "kernels", "lm_eval"};
  for (const std::string& plugin : given.values) {
    const bool known = std::any_of(kFaster.begin(), kFaster.end(), [&](const char* name) {
      return plugin.find(std::string(".") + name + ".") != std::string::npos;
    });
    if (!known) given.refuse("the plugin " + plugin + " changes how a model is trained");
  }
  adoption.leave(given, kFused);
}

std::vector<Rule> training_rules() {
  return rules_of({
      {together,
       {"lr_scheduler_type", "cosine_min_lr_ratio", "warmup_steps", "warmup_ratio", "bf16", "fp16",
        "bfloat16", "float16", "float32"}},
      {together,
       {"evals_per_epoch", "saves_per_epoch", "eval_steps", "save_steps", "eval_strategy",
        "evaluation_strategy", "save_strategy", "fsdp", "fsdp_config.sharding_strategy",
        "deepspeed", "logging_steps"}},
      {refuse("expected a section"), {"fsdp_config"}},
      {take_batch, {"batch_size"}},
      {take_tf32, {"tf32"}},
      {take_recompute, {"gradient_checkpointing"}},
      {take_offloading, {"activation_offloading"}},
      {refuse("recompute works on whole blocks: gradient_checkpointing"),
       {"selective_checkpointing", "selective_checkpointing.*", "layer_offloading"}},
      {same("an evaluation has the rows of a training pass"), {"eval_batch_size"}},
      {take_plugins, {"plugins"}},
      {one_rank("there is no tensor, context or expert parallelism here"),
       {"context_parallel_size", "sequence_parallel_degree", "tensor_parallel_size",
        "expert_parallel_size"}},
      {one_rank("fsdp.strategy: hybrid_shard makes copies: expected 1"), {"dp_replicate_size"}},
      {[](const Given& given, Adoption& adoption) {
         if (given.whole() > 1)
           adoption.set_ranks(given.whole(), given);
         else
           adoption.off(given);
       },
       {"dp_shard_size"}},
      {leave("of context parallelism"), {"heads_k_stride", "ring_attn_func"}},
  });
}

std::vector<Rule> method_rules() {
  return rules_of({
      {refuse("a schedule or a rate of this form is not here"),
       {"cosine_constant_lr_ratio", "lr_quadratic_warmup", "lr_div_factor", "lr_groups[].*",
        "embedding_lr", "embedding_lr_scale", "jagged_restart_steps", "jagged_restart_warmup_steps",
        "jagged_restart_anneal_steps", "early_stopping_patience", "lisa_n_layers",
        "lisa_step_interval"}},
      {leave("of optimizers that are not here"),
       {"adam_beta3", "adam_epsilon2", "torchdistx_path", "dion_*", "qgalore_*",
        "lisa_layers_attribute"}},
      {leave("train.spike looks at the gradient's norm"),
       {"loss_watchdog_threshold", "loss_watchdog_patience"}},
      {refuse(kOtherwise),
       {"rl", "trl.*", "vllm.*", "ebft.*", "dpo_*", "orpo_alpha", "simpo_gamma", "cpo_alpha",
        "kto_desirable_weight", "kto_undesirable_weight", "rl_beta"}},
      {refuse(kOtherwise),
       {"reward_model", "process_reward_model", "center_rewards_coefficient",
        "precompute_ref_log_probs", "use_eaft", "noisy_embedding_alpha", "diffusion.*",
        "dynamic_checkpoint.*", "trainer_cls", "do_bench_eval", "do_causal_lm_eval",
        "scaling_softmax"}},
      {leave("no effect without the key that turns it on"),
       {"eaft_alpha", "eaft_k", "eval_causal_lm_metrics", "bench_dataset", "bench_split",
        "scaling_softmax_factor", "scaling_softmax_bias", "eval_max_new_tokens",
        "eval_table_size"}},
      {leave("runtime.attention says how attention is computed; its results are the same"),
       {"flash_attention", "sdp_attention", "xformers_attention", "flex_attention",
        "eager_attention", "attn_implementation", "flex_attn_compile_kwargs.*",
        "flash_attn_cross_entropy", "flash_attn_rms_norm", "flash_attn_fuse_mlp", "flash_optimum",
        "flash_attn_d512", "sdpa_varlen", "fused_attn_kernel", "large_head_attention",
        "gemma4_hybrid_attn_impl"}},
      {refuse("attention has no 8 bits here"), {"sage_attention"}},
      {leave(kFused),
       {"liger_*", "cut_cross_entropy", "chunked_cross_entropy", "chunked_cross_entropy_num_chunks",
        "tiled_mlp", "tiled_mlp_num_shards", "tiled_mlp_use_original_mlp", "use_kernels",
        "torch_compile_options.*", "deepcompile", "use_scattermoe", "use_sonicmoe",
        "experts_implementation"}},
  });
}

std::vector<Rule> reporting_rules() {
  return rules_of({
      {leave("metrics.jsonl, metrics.json and a closing table lie in the run directory"),
       {"wandb_*", "use_wandb", "mlflow_*", "use_mlflow", "hf_mlflow_log_artifacts", "comet_*",
        "use_comet", "swanlab_*", "use_swanlab", "trackio_*", "use_trackio", "use_tensorboard",
        "use_otel_metrics", "otel_metrics_host", "otel_metrics_port", "include_tkps",
        "generate_samples", "num_generation_samples", "generation_*"}},
      {leave("fsdp train --resume"), {"auto_resume_from_checkpoints"}},
      {leave("runtime.trace writes a timeline"), {"profiler_steps", "profiler_steps_start"}},
      {leave("mpirun or srun starts the ranks and connects them"),
       {"ddp", "world_size", "use_ray", "ray_run_name", "ray_num_workers",
        "resources_per_worker.*"}},
      {leave("of no use here"),
       {"strict", "gc_steps", "gc_collect_steps", "save_first_step", "axolotl_config_path",
        "gradio_*", "dpo_use_weighting", "fp32_norms", "fp32_norm_classes",
        "fsdp_final_state_dict_type", "total_supervised_tokens"}},
      {leave("a block is gathered in the dtype of compute"),
       {"fsdp_config.mixed_precision_policy"}},
      {same("a checkpoint is always sharded, the model at the end one folder"),
       {"fsdp_config.final_state_dict_type"}},
      {leave("memory of the host is pinned where it helps"),
       {"fsdp_config.cpu_offload_pin_memory"}},
      {on_to("fsdp.offload", "all"), {"fsdp_config.offload_params"}},
  });
}

// What axolotl hands on under the same name.
std::vector<Rule> shared_rules() {
  const std::set<std::string> names = {"per_device_train_batch_size",
                                       "gradient_accumulation_steps",
                                       "learning_rate",
                                       "weight_decay",
                                       "adam_beta1",
                                       "adam_beta2",
                                       "adam_epsilon",
                                       "max_grad_norm",
                                       "optim",
                                       "optim_args",
                                       "optim_target_modules",
                                       "seed",
                                       "max_steps",
                                       "num_train_epochs",
                                       "save_total_limit",
                                       "save_only_model",
                                       "save_safetensors",
                                       "load_best_model_at_end",
                                       "metric_for_best_model",
                                       "greater_is_better",
                                       "resume_from_checkpoint",
                                       "dataloader_drop_last",
                                       "dataloader_num_workers",
                                       "dataloader_pin_memory",
                                       "dataloader_prefetch_factor",
                                       "remove_unused_columns",
                                       "group_by_length",
                                       "gradient_checkpointing_kwargs.*",
                                       "auto_find_batch_size",
                                       "torch_empty_cache_steps",
                                       "neftune_noise_alpha",
                                       "torch_compile",
                                       "torch_compile_backend",
                                       "torch_compile_mode",
                                       "ddp_timeout",
                                       "ddp_bucket_cap_mb",
                                       "ddp_broadcast_buffers",
                                       "ddp_find_unused_parameters",
                                       "accelerator_config.*",
                                       "accelerator_config.split_batches",
                                       "hub_model_id",
                                       "hub_strategy",
                                       "hub_revision",
                                       "include_tokens_per_second",
                                       "output_dir",
                                       "local_rank",
                                       "debug",
                                       "deepspeed.*"};
  std::vector<Rule> rules;
  for (const Rule& rule : trainer_rules()) {
    if (names.contains(rule.name)) rules.push_back(rule);
  }
  return rules;
}

}  // namespace

std::vector<Rule> axolotl_rules() {
  return program_of("", "",
                    {set_rules(),
                     row_rules(),
                     text_rules(),
                     model_rules(),
                     training_rules(),
                     method_rules(),
                     reporting_rules(),
                     shared_rules(),
                     schedule_rules(),
                     fsdp_rules(),
                     {{"fsdp_config.auto_wrap_policy", together},
                      {"fsdp_config.reshard_after_forward", together},
                      {"fsdp_config.transformer_layer_cls_to_wrap", together},
                      {"fsdp_config.min_num_params", together}}})
      .rules;
}

}  // namespace fsdp::adopt
