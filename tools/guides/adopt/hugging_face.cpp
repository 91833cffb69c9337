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

// Of wikitext the recipes join the lines by thousands.
void take_dataset(const Given& given, Adoption& adoption) {
  if (given.one() == "wikitext" || given.one() == "Salesforce/wikitext") {
    adoption.set("data.pack", "wikitext_rows", given,
                 "as the recipes join its lines; stream drops nothing");
  }
  leave(kPrepared)(given, adoption);
}

void take_cpu_offload(const Given& given, Adoption& adoption) {
  const Given* fsdp = adoption.find("fsdp");
  const bool read = fsdp && is_of_five(adoption, *fsdp);
  const std::string mistake = "transformers 4 does not read it";
  if (is_off(given))
    adoption.off(given);
  else if (!read && adoption.options().literal)
    adoption.leave(given, mistake);
  else
    adoption.set("fsdp.offload", "all", given, read ? "" : mistake);
}

void take_reduce_dtype(const Given& given, Adoption& adoption) {
  const std::string mistake = "transformers does not read it";
  if (adoption.options().literal)
    adoption.leave(given, mistake);
  else
    adoption.set("train.reduce_dtype", given.one(), given, mistake);
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

// ---------------------------------------------------------------------------- SFTConfig
// What TRL's SFTTrainer has beside TrainingArguments: rows, and which of their tokens are trained.

// A row is a sequence; rows share one ("bfd", also with more words behind it); or rows are joined
// and cut.
void take_packing(const Given& given, Adoption& adoption) {
  const Given* given_how = adoption.find("packing_strategy");
  const std::string how = given_how ? given_how->one() : "bfd";
  if (!given.truth()) return adoption.set("data.pack", "examples", given);
  if (how != "wrapped" && !how.starts_with("bfd")) given_how->fail("bfd or wrapped");
  adoption.set(
      "data.pack", how == "wrapped" ? "stream" : "documents", given,
      how == "wrapped" || how == "bfd" ? "" : "a longer row is cut; there its rest is a row, too");
}

// There rows of one batch follow one another; here padding costs time and changes no loss.
void take_padding_free(const Given& given, Adoption& adoption) {
  if (!given.truth()) return adoption.off(given);
  adoption.leave(given, adoption.is_on("packing")
                            ? "as data.pack says"
                            : "the same rows are padded, with the same loss; without padding, in "
                              "other batches: --set data.pack=documents");
}

void take_packing_strategy(const Given& given, Adoption& adoption) {
  const bool packs = adoption.is_on("packing");
  adoption.leave(given, packs ? "as data.pack says" : "no effect without packing");
}

void take_template_path(const Given& given, Adoption& adoption) {
  if (given.one().ends_with(".jinja") || given.one().ends_with(".j2"))
    return adoption.set("data.chat_template", given.one(), given);
  leave_out(
      "a tokenizer's folder: data.chat_template takes its chat_template.jinja, and new tokens "
      "belong into the model's folder")(given, adoption);
}

void take_loss_type(const Given& given, Adoption& adoption) {
  if (given.one() != "nll" && given.one() != "chunked_nll") given.fail("nll or chunked_nll");
  adoption.leave(given, "fsdp train has no other loss");
}

void take_truncation(const Given& given, Adoption& adoption) {
  if (given.one() != "keep_start") given.fail("keep_start");
  adoption.leave(given, "rows are cut at their end");
}

void take_offloading(const Given& given, Adoption& adoption) {
  if (!given.truth()) return adoption.off(given);
  if (!adoption.is_on("gradient_checkpointing")) {
    given.refuse("expected gradient_checkpointing with it: what recompute keeps waits on the host");
  }
  adoption.leave(given, "train.recompute.mode: offload does it");
}

std::vector<Rule> sft_rules() {
  return rules_of(hugging_face_json()["sft"], {{"packing", take_packing},
                                               {"packing_strategy", take_packing_strategy},
                                               {"padding_free", take_padding_free},
                                               {"template_path", take_template_path},
                                               {"loss_type", take_loss_type},
                                               {"truncation", take_truncation},
                                               {"offloading", take_offloading}});
}

// SFTConfig's assistant_only_loss is false unless it is said, so that all of a conversation
// is trained; completion_only_loss is null: then the rows decide.
void take_trained(Adoption& adoption) {
  const bool is_sft = std::ranges::any_of(
      sft_rules(), [&](const Rule& rule) { return adoption.find(rule.name) != nullptr; });
  if (!is_sft) return;
  const std::string key = "data.train_on";
  const Given* assistant = adoption.find("assistant_only_loss");
  const Given* completion = adoption.find("completion_only_loss");
  const bool completes = completion && completion->truth();
  const bool of_assistant = assistant && assistant->truth();
  if (completion) adoption.set("data.objective", completes ? "sft" : "lm", *completion);
  if (of_assistant) {
    adoption.set("data.format", "messages", *assistant, "TRL takes no other rows with it");
    return adoption.set(
        key, "assistant", *assistant,
        completion && !completes ? "of a prompt nothing; there its turns, too" : "");
  }
  if (completes) {
    if (assistant) adoption.off(*assistant);
    return adoption.set(key, "assistant", *completion, "there all turns of a completion");
  }
  if (assistant)
    adoption.set(key, "all", *assistant);
  else
    adoption.set_default(key, "all", "SFTConfig's default");
  if (completion) return;
  adoption.note(
      "completion_only_loss is not set: of rows with prompt and completion TRL trains the "
      "completion only; --set data.train_on=assistant does it here, and where data.template makes "
      "the texts, --set data.objective=sft");
}

// ---------------------------------------------------------------------------- reading

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

std::vector<Rule> schedule_rules() {
  return rules_of(hugging_face_json()["schedule"],
                  {{"share_of_peak", take_share_of_peak}, {"timescale", take_timescale}});
}

std::vector<Rule> trainer_rules() {
  const Takes own = {{"betas", take_betas},
                     {"checkpointing", take_checkpointing},
                     {"checkpointed_layers", take_checkpointed_layers},
                     {"cpu_offload", take_cpu_offload},
                     {"loss_mean", take_loss_mean},
                     {"optimizer", take_optimizer},
                     {"order", take_order},
                     {"reduce_dtype", take_reduce_dtype}};
  const Json& tables = hugging_face_json();
  return program_of("", "",
                    {rules_of(tables["trainer"], own), schedule_rules(), fsdp_rules(),
                     rules_of(tables["sharding"], own), rules_of(tables["others"], own)})
      .rules;
}

const Program& hugging_face_program() {
  static const Program program = [] {
    Program made = program_of(
        "hf", "TrainingArguments",
        {trainer_rules(), rules_of(hugging_face_json()["script"], {{"dataset", take_dataset}}),
         sft_rules()});
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
  take_trained(adoption);
  take_arguments_together(adoption);
  return adoption.yaml();
}

std::vector<const Program*> tree_programs() {
  return {&accelerate_program(), &hugging_face_program(), &deepspeed_program(), &axolotl_program(),
          &llama_factory_program()};
}

}  // namespace fsdp::adopt
