// LLaMA-Factory's YAML: its own keys beside those of TrainingArguments.
// Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/io/json.h"
#include "tools/guides/adopt/hugging_face_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

const std::string kDefault = "LLaMA-Factory's default";

bool is_pretraining(const Adoption& adoption) {
  const Given* stage = adoption.find("stage");
  return stage && stage->one() == "pt";
}

bool has_lora(const Adoption& adoption) {
  const Given* type = adoption.find("finetuning_type");
  return !type || type->one() == "lora";
}

void take_stage(const Given& given, Adoption& adoption) {
  if (given.one() != "pt" && given.one() != "sft") {
    given.refuse("a model is trained here to predict the next token: expected pt or sft");
  }
  adoption.leave(given, "data.objective says it");
}

void take_finetuning(const Given& given, Adoption& adoption) {
  if (given.one() != "full" && given.one() != "lora") given.fail("full or lora");
  adoption.leave(given, given.one() == "full" ? "all parameters are trained" : "lora.r says it");
}

void take_template(const Given& given, Adoption& adoption) {
  if (!is_pretraining(adoption)) {
    given.refuse(
        "chat templates are not here: leave this line out, and say in data.template how a row "
        "becomes a text");
  }
  adoption.leave(given, "no effect with stage: pt");
}

// "q_proj,v_proj", or "all"
void take_targets(const Given& given, Adoption& adoption) {
  std::vector<std::string> names = given.words(',');
  if (names.empty()) given.fail("names of layers, or all");
  std::replace(names.begin(), names.end(), std::string("all"), std::string("all-linear"));
  adoption.set_list("lora.targets", names, given);
}

void take_samples(const Given& given, Adoption& adoption) {
  const Given* sets = adoption.find("dataset");
  if (sets && sets->text().find(',') != std::string::npos) {
    given.refuse("so many of each data set: expected one data set with it");
  }
  adoption.set("data.subset.n", std::to_string(given.whole()), given, "any rows; there the first");
}

std::vector<Rule> data_rules() {
  return rules_of({
      {take_template, {"template"}},
      {together,
       {"dataset", "eval_dataset", "dataset_dir", "packing", "train_on_prompt",
        "disable_gradient_checkpointing"}},
      {whole_to("data.sequence_length"), {"cutoff_len"}},
      {share_to("data.validation"), {"val_size"}},
      {take_samples, {"max_samples"}},
      {on_to("data.shuffle", "false"), {"disable_shuffling"}},
      {refuse("a sequence of several rows, each of which sees itself alone, is not made here: "
              "expected false"),
       {"neat_packing"}},
      {refuse("a text that is read while a run trains is a file here: expected false"),
       {"streaming"}},
      {[](const Given& given, Adoption& adoption) {
         if (given.one() != "concat") given.refuse("data.sources has weights: expected concat");
         adoption.leave(given, "the files of data.train follow one another");
       },
       {"mix_strategy"}},
      {refuse("expected none: data.sources has weights"), {"interleave_probs"}},
      {refuse("of rows of chats, which are not trained here: expected false"), {"mask_history"}},
      {leave("of rows of chats, which are not trained here"),
       {"tool_format", "default_system", "enable_thinking", "preserve_thinking"}},
      {leave("texts become tokens once, on threads of their own; data.cache_dir keeps them"),
       {"overwrite_cache", "preprocessing_batch_size", "preprocessing_num_workers",
        "tokenized_path", "data_shared_file_system", "buffer_size"}},
      {leave("of pictures, films and sounds"),
       {"media_dir", "image_*", "video_*", "audio_*", "crop_to_patches", "use_audio_in_video",
        "freeze_vision_tower", "freeze_multi_modal_projector"}},
      {same("padding is never trained"), {"ignore_pad_token_for_loss"}},
      {leave("fsdp eval gives losses, no texts"),
       {"eval_num_beams", "eval_on_each_dataset", "predict_with_generate", "generation_*",
        "sortish_sampler", "compute_accuracy", "do_sample", "temperature", "top_p", "top_k",
        "num_beams", "max_length", "max_new_tokens", "repetition_penalty", "length_penalty",
        "skip_special_tokens"}},
  });
}

std::vector<Rule> model_rules() {
  return rules_of({
      {model_folder(), {"model_name_or_path"}},
      {leave("no code of a model is run"), {"trust_remote_code"}},
      {leave("a folder has one revision"), {"model_revision"}},
      {leave("the model's folder says it"),
       {"cache_dir", "use_fast_tokenizer", "split_special_tokens", "adapter_folder"}},
      {leave("nothing is sent to a hub"), {"hf_hub_token", "ms_hub_token", "om_hub_token"}},
      {leave("weights are read as each rank needs them"),
       {"low_cpu_mem_usage", "offload_folder", "infer_dtype", "infer_backend", "use_kv_cache",
        "print_param_status"}},
      {refuse("there are no new tokens here: they belong into the folder of the model"),
       {"add_tokens", "add_special_tokens", "new_special_tokens_config", "resize_vocab"}},
      {leave("no effect without new tokens"), {"init_special_tokens"}},
      {refuse("config.json of the folder counts: change it there"),
       {"rope_scaling", "moe_aux_loss_coef", "mixture_of_depths", "shift_attn"}},
      {leave("runtime.attention says how attention is computed; its results are the same"),
       {"flash_attn"}},
      {leave("there is no choice of kernels: they are fused by hand"),
       {"use_unsloth", "enable_liger_kernel", "use_v1_kernels"}},
      {leave("a block keeps its input alone, always so"), {"use_reentrant_gc", "use_unsloth_gc"}},
      {leave("norms and the loss are computed in f32"),
       {"upcast_layernorm", "upcast_lmhead_output"}},
      {refuse("expected false: model.preset or the sizes of model train from scratch"),
       {"train_from_scratch"}},
      {refuse("weights have 16 or 32 bits here: expected none"),
       {"quantization_bit", "fp8", "fp8_enable_fsdp_float8_all_gather"}},
      {leave("no effect without 4 or 8 bits"),
       {"quantization_method", "quantization_type", "double_quantization",
        "quantization_device_map", "fp8_backend"}},
      {leave("fsdp merge and fsdp convert write models"), {"export_*"}},
      {leave("of programs that generate texts"), {"vllm_*", "sglang_*"}},
      {refuse("there are no models of experts here"), {"use_kt", "kt_*"}},
      {to("lora.path"), {"adapter_name_or_path"}},
      {count_to("lora.r"), {"lora_rank"}},
      {to("lora.alpha"), {"lora_alpha"}},
      {to("lora.dropout"), {"lora_dropout"}},
      {take_targets, {"lora_target"}},
      {truth_to("lora.rslora"), {"use_rslora"}},
      {refuse("a low-rank term is a plain one of a linear layer here"),
       {"use_dora", "pissa_init", "pissa_convert", "loraplus_lr_ratio", "additional_target",
        "create_new_adapter"}},
      {leave("no effect without the key that turns it on"),
       {"pissa_iter", "loraplus_lr_embedding", "freeze_trainable_layers",
        "freeze_trainable_modules", "freeze_extra_modules", "freeze_language_model", "oft_*",
        "module_dropout"}},
  });
}

std::vector<Rule> method_rules() {
  return rules_of({
      {take_stage, {"stage"}},
      {take_finetuning, {"finetuning_type"}},
      {refuse("expected bf16: master weights are f32, and compute is bf16"), {"pure_bf16"}},
      {refuse("there is no such optimizer here"),
       {"use_galore", "use_apollo", "use_badam", "use_adam_mini", "use_muon", "use_llama_pro"}},
      {leave("of optimizers that are not here"), {"galore_*", "apollo_*", "badam_*"}},
      {refuse("a model is trained here to predict the next token, and in no other way"),
       {"use_dft_loss", "use_asft_loss", "use_eaft_loss", "ref_model", "reward_model",
        "early_stopping_steps"}},
      {leave("of stages that are not here, or no effect without the key that turns it on"),
       {"asft_alpha", "eaft_alpha", "pref_*", "dpo_*", "kto_*", "simpo_gamma", "ppo_*",
        "ref_model_*", "reward_model_*", "ld_alpha"}},
      {refuse("there is no tensor or pipeline parallelism here"),
       {"use_mca", "use_megatron_bridge", "use_hyper_parallel", "hyper_parallel_args"}},
      {leave("metrics.jsonl, metrics.json and a closing table lie in the run directory"),
       {"plot_loss", "use_swanlab", "swanlab_*", "include_effective_tokens_per_second"}},
      {leave("mpirun or srun starts the ranks and connects them"),
       {"ray_*", "resources_per_worker.*", "placement_strategy", "master_addr", "master_port"}},
      {leave("runtime.trace writes a timeline"),
       {"enable_torch_profiler", "profiler_*", "profile_modules"}},
  });
}

// ---- data sets by name ----
// dataset_info.json, here or beside the YAML; empty: there is none.
std::filesystem::path info_file(const Adoption& adoption, const std::filesystem::path& beside) {
  const Given* folder = adoption.find("dataset_dir");
  const std::filesystem::path named = folder ? folder->one() : "data";
  for (const std::filesystem::path& each : {named, beside / named}) {
    if (std::filesystem::is_regular_file(each / "dataset_info.json")) {
      return each / "dataset_info.json";
    }
  }
  return {};
}

// What dataset_info.json says of them: files, and of plain texts the field.
void take_sets(Adoption& adoption, const Given& given, const std::string& our_key,
               const std::filesystem::path& info) {
  if (info.empty()) return adoption.leave(given, kPrepared);
  const Json all = read_json_file(info);
  std::vector<std::string> files;
  for (const std::string& name : given.words(',')) {
    if (!all.contains(name)) given.refuse("no such data set in " + info.string() + ": " + name);
    const Json& one = all[name];
    const bool plain = !one.contains("formatting") || one["formatting"] == "alpaca";
    const bool ranked = one.contains("ranking") && one["ranking"] == true;
    if (!plain || ranked) given.refuse(name + " has rows of chats, which are not trained here");
    if (!one.contains("file_name")) return adoption.leave(given, kPrepared);
    const Json* split = one.find("split");
    const bool part = one.contains("num_samples") || (split && *split != Json("train"));
    if (part) given.refuse(name + ": num_samples and split are data.subset here");
    const auto text = [&](const Json& value) {
      if (!value.is_string()) given.refuse(info.string() + ": " + name + ": expected texts");
      return value.text();
    };
    files.push_back((info.parent_path() / text(one["file_name"])).lexically_normal().string());
    const bool columns = one.contains("columns") && one["columns"].contains("prompt");
    if (is_pretraining(adoption)) {
      adoption.set("data.field", columns ? text(one["columns"]["prompt"]) : "instruction", given,
                   "of " + info.string());
    }
  }
  adoption.set_list(our_key, files, given);
}

// Texts follow one another in pre-training; else a row is a sequence.
void take_objective(Adoption& adoption) {
  const bool pretrains = is_pretraining(adoption);
  const Given* packing = adoption.find("packing");
  const Given* prompts = adoption.find("train_on_prompt");
  const bool packs = packing ? packing->truth() : pretrains;
  if (packs && !pretrains) {
    packing->refuse(
        "a sequence of several rows, each of which sees itself alone, is not made here: "
        "expected false");
  }
  if (packing) adoption.set("data.pack", packs ? "stream" : "examples", *packing);
  if (!packs) adoption.set_default("data.pack", "examples", kDefault);
  if (prompts) prompts->truth();
  const bool whole = pretrains || adoption.is_on("train_on_prompt");
  if (prompts)
    adoption.set("data.objective", whole ? "lm" : "sft", *prompts);
  else
    adoption.set_default("data.objective", whole ? "lm" : "sft",
                         pretrains ? "stage: pt" : "stage: sft");
  if (!pretrains && !adoption.find("template")) {
    adoption.note(
        "without template the tokenizer's chat template counts there; here data.template "
        "says how a row becomes a text");
  }
}

void take_lora(Adoption& adoption) {
  if (!has_lora(adoption)) return;
  const bool goes_on = adoption.has("lora.path");
  const Given* rank = adoption.find("lora_rank");
  const int64_t r = rank ? rank->whole() : 8;
  if (goes_on) return;
  adoption.set_default("lora.r", std::to_string(r), kDefault);
  adoption.set_default("lora.alpha", std::to_string(2 * r), kDefault + ": twice the rank");
  adoption.set_default("lora.targets", "[all-linear]", kDefault);
}

void take_recompute(Adoption& adoption) {
  const Given* disabled = adoption.find("disable_gradient_checkpointing");
  if (disabled && disabled->truth())
    adoption.set("train.recompute.mode", "none", *disabled);
  else if (disabled)
    adoption.set("train.recompute.mode", "full", *disabled);
  adoption.set_default("train.recompute.mode", "full", kDefault);
}

}  // namespace

const Program& llama_factory_program() {
  static const Program program =
      program_of("llamafactory", "LLaMA-Factory",
                 {data_rules(), model_rules(), method_rules(), trainer_rules()});
  return program;
}

std::string adopt_llama_factory(const std::filesystem::path& file, const AdoptOptions& options) {
  std::vector<Given> given = read_tree(file);
  for (Given& each : given) each.name = hugging_face_program().name_of(each.name);
  Adoption adoption("llamafactory", file.string(), given, options);
  std::vector<Ignored> ignored;
  if (!uses_fsdp(adoption)) ignored.push_back({"fsdp_config.", "no effect without FSDP"});
  if (!has_lora(adoption)) ignored.push_back({"lora_", "no effect without finetuning_type: lora"});
  take_all(llama_factory_program(), adoption, ignored);
  const std::filesystem::path info = info_file(adoption, file.parent_path());
  for (const auto& [name, key] :
       {std::pair{"dataset", "data.train"}, {"eval_dataset", "data.validation"}}) {
    if (const Given* sets = adoption.find(name)) take_sets(adoption, *sets, key, info);
  }
  if (const Given* folder = adoption.find("dataset_dir")) {
    adoption.leave(*folder, "data.train has the names of files");
  }
  take_objective(adoption);
  take_lora(adoption);
  take_recompute(adoption);
  adoption.set_default("data.sequence_length", "2048", kDefault);
  take_arguments_together(adoption);
  return adoption.yaml();
}

}  // namespace fsdp::adopt
