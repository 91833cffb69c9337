// LLaMA-Factory's YAML: its own keys beside those of TrainingArguments.
// Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "core/io/json.h"
#include "tools/guides/adopt/chat_keys.h"
#include "tools/guides/adopt/hugging_face_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {

const Json& llama_factory_json();  // tables/llama_factory.json

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

bool are_chats(const Adoption& adoption) { return adoption.value_of("data.format") == "messages"; }

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

void take_mix_strategy(const Given& given, Adoption& adoption) {
  if (given.one() != "concat") given.refuse("data.sources has weights: expected concat");
  adoption.leave(given, "the files of data.train follow one another");
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

// An entry of formatting sharegpt or openai. A message has from and value unless it says otherwise.
void take_chats(const Json& entry, const Given& given, Adoption& adoption) {
  adoption.set("data.format", "messages", given, "of dataset_info.json");
  const auto said = [&](const char* section, const std::string& key, const std::string& usual) {
    const Json* const all = entry.find(section);
    const Json* const value = all ? all->find(key) : nullptr;
    return value && value->is_string() ? value->text() : usual;
  };
  const std::string field = said("columns", "messages", "conversations");
  if (field != "messages" && field != "conversations")
    adoption.set("data.messages_field", field, given);
  Json roles = Json::object();
  for (const char* role : {"user", "assistant", "observation", "system"}) {
    const std::string word = said("tags", fmt::format("{}_tag", role), "");
    if (!word.empty() && word != role)
      roles[word] = role == std::string("observation") ? "tool" : role;
  }
  set_messages(said("tags", "role_tag", "from"), said("tags", "content_tag", "value"), roles, given,
               adoption);
  const auto left_out = [&](const std::string& what) {
    adoption.warn(
        fmt::format("{} in dataset_info.json is left out: a row has messages and tools, "
                    "and its calls are messages from function_call",
                    what));
  };
  const std::string call = said("tags", "function_tag", "function_call");
  if (call != "function_call") left_out("function_tag: " + call);
  if (!entry.contains("columns")) return;
  for (const auto& [column, name] : entry["columns"].items()) {
    if (column != "messages" && (column != "tools" || name != Json("tools")))
      left_out("columns." + column);
  }
}

// Files, and of plain texts the field.
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
    if (ranked || (!plain && is_pretraining(adoption)))
      given.refuse(name + " has rows that are not trained here in this way");
    const Given* chosen = adoption.find("template");
    if (plain && chosen && !is_pretraining(adoption)) {
      chosen->refuse(name +
                     " has rows of instruction and output: leave this line out, and say in "
                     "data.template how a row becomes a text");
    }
    if (!plain) take_chats(one, given, adoption);
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

// Texts follow one another in pre-training; else a row is a sequence, or rows share one. With
// neat_packing they do not see each other, as here.
void take_packing(Adoption& adoption, bool pretrains) {
  const Given* packing = adoption.find("packing");
  const Given* neat = adoption.find("neat_packing");
  const bool is_neat = neat && neat->truth();
  const bool packs = is_neat || (packing ? packing->truth() : pretrains);
  if (neat && !is_neat) adoption.off(*neat);
  if (is_neat && pretrains) adoption.leave(*neat, "no effect with stage: pt");
  const std::string how = !packs ? "examples" : pretrains ? "stream" : "documents";
  if (is_neat && packing) adoption.leave(*packing, "neat_packing says it");
  if (is_neat && !pretrains) {
    adoption.set("data.pack", how, *neat, "best fit; there other rows share a sequence");
  } else if (packing && !is_neat) {
    adoption.set(
        "data.pack", how, *packing,
        packs && !pretrains ? "rows do not see each other; there only with neat_packing" : "");
  }
  if (!packs) adoption.set_default("data.pack", "examples", kDefault);
}

void take_objective(Adoption& adoption) {
  const bool pretrains = is_pretraining(adoption);
  const Given* prompts = adoption.find("train_on_prompt");
  take_packing(adoption, pretrains);
  if (prompts) prompts->truth();
  const bool whole = pretrains || adoption.is_on("train_on_prompt");
  if (are_chats(adoption)) return;
  if (prompts)
    adoption.set("data.objective", whole ? "lm" : "sft", *prompts);
  else
    adoption.set_default("data.objective", whole ? "lm" : "sft",
                         pretrains ? "stage: pt" : "stage: sft");
  if (!pretrains) {
    adoption.note(
        "rows of instruction and output are no conversations here: data.template says how a row "
        "becomes a text; there the chat template does");
  }
}

// Where nothing is known about the rows, they may be conversations.
void take_chat_keys(Adoption& adoption) {
  const Given* const chosen = adoption.find("template");
  const Given* const history = adoption.find("mask_history");
  const Given* const prompts = adoption.find("train_on_prompt");
  const Given* const thinking = adoption.find("enable_thinking");
  if (is_pretraining(adoption)) {
    for (const Given* each : {chosen, history, thinking}) {
      if (each) leave("no effect with stage: pt")(*each, adoption);
    }
    return;
  }
  if (chosen) {
    set_chat_template(chosen->one(), *chosen, adoption,
                      chosen->one() == "llama3" ? "here without blanks around a message" : "");
  }
  if (adoption.is_on("mask_history"))
    adoption.set("data.train_on", "last", *history, "there a row that is too long keeps its end");
  else if (history)
    adoption.off(*history);
  if (prompts) on_to("data.train_on", "all")(*prompts, adoption);
  if (thinking) {
    const bool on = thinking->truth();
    adoption.set("data.chat_template_kwargs", fmt::format("{{enable_thinking: {}}}", on),
                 *thinking);
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
                 {rules_of(llama_factory_json()["rules"], {{"stage", take_stage},
                                                           {"finetuning", take_finetuning},
                                                           {"targets", take_targets},
                                                           {"samples", take_samples},
                                                           {"mix_strategy", take_mix_strategy}}),
                  trainer_rules()});
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
  take_chat_keys(adoption);
  take_lora(adoption);
  take_recompute(adoption);
  adoption.set_default("data.sequence_length", "2048", kDefault);
  take_arguments_together(adoption);
  return adoption.yaml();
}

}  // namespace fsdp::adopt
