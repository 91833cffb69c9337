// axolotl's YAML: what is done with its keys, each by itself (tables/axolotl.json) or together.
// Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <array>
#include <filesystem>

#include <fmt/format.h>

#include "tools/data/text_format.h"
#include "tools/guides/adopt/chat_keys.h"
#include "tools/guides/adopt/fsdp_keys.h"
#include "tools/guides/adopt/hugging_face_keys.h"
#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {

const Json& axolotl_json();  // tables/axolotl.json

namespace {

const std::string kDefault = "axolotl's default";
constexpr char kFused[] = "there is no choice of kernels: they are fused by hand";

// ---------------------------------------------------------------------------- a key by itself

void take_type(const Given& given, Adoption& adoption) {
  const std::string& type = given.one();
  if (is_chat(type)) {
    return adoption.set("data.format", "messages", given,
                        type == "sharegpt" ? "there vicuna_v1.1 without conversation" : "");
  }
  const bool alpaca = type == "alpaca";
  if (!alpaca && type != "completion")
    given.refuse("there is no such type here: expected chat_template, alpaca or completion");
  if (alpaca) adoption.set("data.template", "axolotl_alpaca", given);
  const bool whole = !alpaca || adoption.is_on("train_on_inputs");
  adoption.set("data.objective", whole ? "lm" : "sft", given);
  const std::string cut = alpaca ? "" : "a longer row is cut; there its rest is a row, too";
  if (whole && !adoption.is_on("sample_packing"))
    adoption.set("data.pack", "examples", given, cut);
  else if (!cut.empty())
    adoption.note(cut);
}

void take_sample_packing(const Given& given, Adoption& adoption) {
  if (!given.truth()) return adoption.off(given);
  adoption.set("data.pack", "documents", given, "best fit; there first fit");
}

void take_packing_window(const Given& given, Adoption& adoption) {
  if (adoption.is_on("sample_packing"))
    whole_to("data.pack_window")(given, adoption);
  else
    adoption.leave(given, "no effect without sample_packing");
}

void take_packing_order(const Given& given, Adoption& adoption) {
  if (!given.truth()) return adoption.off(given);
  adoption.leave(given, "long rows are placed first here; data.pack_window: 1 packs none");
}

void take_split(const Given& given, Adoption& adoption) {
  if (given.one().find('[') != std::string::npos) {
    given.refuse("a part of a data set is data.subset here: expected a split without [ ]");
  }
  adoption.leave(given, "a file is one split");
}

// Only the end of a text is trained.
void take_end(const Given& given, Adoption& adoption) {
  adoption.leave(given, "the tokenizer's folder says it");
  adoption.warn(given.origin() +
                " is not taken over: a text ends here as the tokenizer's folder says; where that "
                "is another token, change eos_token in its tokenizer_config.json");
}

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

void take_ranks_of_shards(const Given& given, Adoption& adoption) {
  if (given.whole() > 1)
    adoption.set_ranks(given.whole(), given);
  else
    adoption.off(given);
}

const Takes kOwn = {{"type", take_type},
                    {"sample_packing", take_sample_packing},
                    {"packing_window", take_packing_window},
                    {"packing_order", take_packing_order},
                    {"split", take_split},
                    {"end", take_end},
                    {"adapter", take_adapter},
                    {"targets", take_targets},
                    {"recompute", take_recompute},
                    {"offloading", take_offloading},
                    {"tf32", take_tf32},
                    {"batch", take_batch},
                    {"plugins", take_plugins},
                    {"ranks_of_shards", take_ranks_of_shards}};

// What axolotl hands on to transformers' Trainer under the same name.
std::vector<Rule> shared_rules() {
  const Json& names = axolotl_json()["shared"];
  std::vector<Rule> rules = trainer_rules();
  std::erase_if(rules, [&](const Rule& rule) {
    return std::find(names.begin(), names.end(), Json(rule.name)) == names.end();
  });
  return rules;
}

// ---------------------------------------------------------------------------- keys together

// A file beside the YAML where only that is there.
std::string found(const std::string& path, const std::filesystem::path& beside) {
  const std::filesystem::path there = (beside / path).lexically_normal();
  const bool here = std::filesystem::exists(path) || !std::filesystem::exists(there);
  return here ? path : there.string();
}

bool is_local(const std::string& path, const std::filesystem::path& beside) {
  return std::filesystem::exists(found(path, beside)) || path.starts_with('/') ||
         path.starts_with("./") || path.starts_with("../") || data::has_data_ending(path);
}

// The files of a section of data: those of data_files, or its path. Names of the hub are left.
void take_files(Adoption& adoption, const std::string& section, const std::string& our_key,
                const std::filesystem::path& beside) {
  std::vector<std::string> files;
  std::vector<const Given*> origins, hubs;
  for (const Given& given : adoption.given()) {
    if (given.name != section + "[].path") continue;
    const std::string item = given.key.substr(0, given.key.rfind('.'));
    const auto more =
        std::find_if(adoption.given().begin(), adoption.given().end(),
                     [&](const Given& each) { return each.key == item + ".data_files"; });
    const bool listed = more != adoption.given().end();
    const Given& origin = listed ? *more : given;
    for (const std::string& file : origin.values) {
      if (listed || is_local(file, beside)) files.push_back(found(file, beside));
    }
    if (listed) adoption.leave(given, "data.format says it, or the ending of a file");
    (listed || is_local(given.one(), beside) ? origins : hubs).push_back(&origin);
  }
  for (const Given* hub : hubs) {
    adoption.leave(*hub, kPrepared);
    if (!origins.empty()) adoption.warn(hub->origin() + " is not taken over: " + kPrepared);
  }
  if (origins.empty()) return;
  for (const Given* origin : origins) {
    if (origin != origins.front()) adoption.leave(*origin, "one of " + our_key);
  }
  adoption.set_list(our_key, files, *origins.front());
}

std::string name_of(const std::string& key) {
  for (const auto& [own, name] : {std::pair{"micro_batch_size", "per_device_train_batch_size"},
                                  {"num_epochs", "num_train_epochs"},
                                  {"lr_scheduler", "lr_scheduler_type"},
                                  {"optimizer", "optim"},
                                  {"adam_eps", "adam_epsilon"},
                                  {"fsdp_version", "fsdp_config.version"}}) {
    if (key == own) return name;
  }
  return fsdp_key_name(key);
}

void take_schedule_with_floor(Adoption& adoption) {
  const Given* kind = adoption.find("lr_scheduler_type");
  const Given* share = adoption.find("cosine_min_lr_ratio");
  const Given* lr = adoption.find("learning_rate");
  const bool cosine = !kind || kind->one() == "cosine";
  if (share && !cosine) leave("no effect without lr_scheduler: cosine")(*share, adoption);
  if (share && cosine && share->number() == 0) adoption.off(*share);
  if (share && cosine && share->number() != 0) {
    if (!lr) share->refuse("expected learning_rate with it");
    adoption.set("train.schedule.kind", "cosine_with_min_lr", *share);
    adoption.set("train.schedule.min_lr", fmt::format("{:.9g}", share->number() * lr->number()),
                 *share, fmt::format("of {}", lr->number()));
    if (kind) adoption.leave(*kind, "cosine_min_lr_ratio gives it an end value");
  } else if (kind) {
    to("train.schedule.kind")(*kind, adoption);
  }
  adoption.set_default("train.schedule.kind", "cosine", kDefault);
  take_schedule(adoption);
}

// axolotl rounds a share down, and makes two steps of one.
void take_warmup(Adoption& adoption, int64_t steps) {
  const Given* count = adoption.find("warmup_steps");
  const Given* ratio = adoption.find("warmup_ratio");
  const Given* kind = adoption.find("lr_scheduler_type");
  const std::string key = "train.schedule.warmup";
  if (kind && kind->one() == "constant") {
    for (const Given* each : {count, ratio}) {
      if (each) leave("constant has no warm-up")(*each, adoption);
    }
    return;
  }
  const auto usual = [](int64_t warmup) { return warmup == 1 ? int64_t{2} : warmup; };
  if (count && ratio) ratio->refuse("expected it or warmup_steps, got both");
  if (count && count->number() > 0 && count->number() < 1 && steps == 0) {
    return adoption.set(key, fmt::format("{:.15g}%", count->number() * 100), *count);
  }
  if (count && count->number() > 0 && count->number() < 1) return take_steps(key, *count, adoption);
  if (count) return adoption.set(key, std::to_string(usual(count->whole())), *count);
  const double share = ratio ? ratio->number() : 0.03;
  if (share < 0 || share > 1) ratio->fail("a number from 0 to 1");
  auto rounded = usual(static_cast<int64_t>(share * static_cast<double>(steps)));
  if (!ratio) rounded = std::min<int64_t>(rounded, 100);
  const std::string value =
      steps > 0 ? std::to_string(rounded) : fmt::format("{:.15g}%", share * 100);
  if (ratio)
    adoption.set(key, value, *ratio,
                 steps > 0 ? fmt::format("of {} steps", steps) : "rounded up; there down");
  else
    adoption.set_default(key, value, kDefault + (steps > 0 ? "" : ": at most 100 steps there"));
}

// How often: so many times an epoch, steps, or what a strategy says.
struct Often {
  std::string key;
  const Given *per_epoch, *steps, *strategy;
};

void take_often(Adoption& adoption, const Often& often) {
  if (is_on(often.per_epoch)) {
    const int64_t times = often.per_epoch->whole();
    adoption.set(often.key, "epoch", *often.per_epoch,
                 times == 1 ? "" : fmt::format("there {} times an epoch", times));
  } else if (often.per_epoch) {
    adoption.off(*often.per_epoch);
  }
  const bool said = adoption.has(often.key);
  if (often.steps && said)
    adoption.leave(*often.steps, often.key + " is said already");
  else if (often.steps && is_off(*often.steps))
    adoption.off(*often.steps);
  else if (often.steps)
    take_steps(often.key, *often.steps, adoption);
  if (!often.strategy) return;
  const std::string& how = often.strategy->one();
  if (how != "no" && how != "epoch" && how != "steps" && how != "best") {
    often.strategy->fail("no, epoch, steps or best");
  }
  if (adoption.has(often.key) || how == "steps" || how == "best")
    adoption.leave(*often.strategy, "as " + often.key + " says");
  else
    adoption.set(often.key, how == "no" ? "0" : "epoch", *often.strategy);
}

void take_intervals(Adoption& adoption) {
  const Given* old_name = adoption.find("evaluation_strategy");
  take_often(adoption,
             {"train.eval_every", adoption.find("evals_per_epoch"), adoption.find("eval_steps"),
              old_name ? old_name : adoption.find("eval_strategy")});
  take_often(adoption, {"checkpoint.every", adoption.find("saves_per_epoch"),
                        adoption.find("save_steps"), adoption.find("save_strategy")});
  adoption.set_default("checkpoint.every", "epoch", kDefault);
  adoption.set_default("checkpoint.keep", "4", kDefault);
  const Given* logs = adoption.find("logging_steps");
  if (logs) take_steps("train.log_every", *logs, adoption);
  adoption.set_default("train.log_every", "10", kDefault + ": at most");
}

void take_precision(Adoption& adoption, bool sharded) {
  const auto said = [](const Given& given) {
    const std::string how = lower(given.one());
    return how == "auto" || how == "full" || given.truth();
  };
  const std::pair<const char*, std::vector<const char*>> kinds[] = {
      {"bf16", {"bf16", "bfloat16"}}, {"fp16", {"fp16", "float16"}}, {"no", {"float32"}}};
  bool chosen = false;
  for (const auto& [dtype, names] : kinds) {
    for (const char* name : names) {
      const Given* given = adoption.find(name);
      if (!given) continue;
      if (!said(*given))
        adoption.off(*given);
      else if (chosen && dtype != std::string("bf16"))
        adoption.leave(*given, "bf16 counts more");
      else
        set_precision(adoption, *given, dtype, sharded);
      chosen = chosen || said(*given);
    }
  }
  const bool off = adoption.find("bf16") || adoption.find("fp16");
  adoption.set_default("train.dtype", off ? "f32" : "bf16",
                       kDefault + (off ? "" : ": where the GPU has it"));
  adoption.note("master weights are f32; axolotl's have the dtype of compute");
}

// Of fsdp_config; a version alone turns nothing on.
std::vector<const Given*> sharding_keys(const Adoption& adoption) {
  std::vector<const Given*> keys;
  for (const Given& each : adoption.given()) {
    const bool one = each.name.starts_with("fsdp_config.") && each.name != "fsdp_config.version";
    if (one) keys.push_back(&each);
  }
  return keys;
}

bool is_sharded(const Adoption& adoption) {
  return is_on(adoption.find("fsdp")) || !sharding_keys(adoption).empty();
}

void take_sharding(Adoption& adoption) {
  const Given* words = adoption.find("fsdp");
  const Given* strategy = adoption.find("fsdp_config.sharding_strategy");
  if (is_on(words)) {
    if (strategy) adoption.leave(*strategy, "as fsdp says");
    return take_fsdp(adoption, *words, fsdp_version(adoption, 1));
  }
  if (words) adoption.off(*words);
  if (!is_sharded(adoption)) {
    return adoption.set_default("fsdp.strategy", "no_shard", "without fsdp_config");
  }
  if (strategy) set_strategy(adoption, *strategy, strategy->one());
  const Given whole = {.key = "fsdp_config",
                       .name = "fsdp",
                       .values = {"true"},
                       .place = sharding_keys(adoption).front()->place};
  take_fsdp(adoption, whole, fsdp_version(adoption, 1));
}

// `are_rows`: that axolotl does not split.
void take_long_rows(Adoption& adoption, bool are_rows) {
  const Given* given = adoption.find("excess_length_strategy");
  const std::string how = given ? given->one() : "drop";
  const std::string key = "data.long_rows";
  if (adoption.is_on("sample_packing") && are_rows) {
    const std::string here = how == "truncate" ? "cut" : how == "raise" ? "fail" : how;
    if (given)
      adoption.set(key, here, *given);
    else
      adoption.set_default(key, here, kDefault);
    return;
  }
  if (given)
    adoption.leave(*given, "a longer row is cut; axolotl leaves it out unless this says truncate");
  if (how != "truncate" && are_rows) {
    adoption.note("a row longer than data.sequence_length is cut; axolotl leaves it out");
  }
}

void take_together(Adoption& adoption, const std::filesystem::path& beside) {
  take_files(adoption, "datasets", "data.train", beside);
  take_files(adoption, "test_datasets", "data.validation", beside);
  const bool chats = has_chats(adoption);
  take_long_rows(adoption, chats || adoption.value_of("data.template") == "axolotl_alpaca");
  const Given* inputs = adoption.find("train_on_inputs");
  if (chats) {
    take_axolotl_chats(adoption);
  } else if (inputs) {
    inputs->truth();
    adoption.leave(*inputs, "data.objective says it: lm, or sft");
  }
  if (!adoption.find("max_steps") && !adoption.find("num_train_epochs")) {
    adoption.set_default("train.epochs", "1", kDefault);
  }
  const int64_t steps = take_length(adoption);
  take_schedule_with_floor(adoption);
  take_warmup(adoption, steps);
  take_intervals(adoption);
  take_sharding(adoption);
  take_precision(adoption, is_sharded(adoption));
  warn_of_deepspeed(adoption);
  adoption.set_defaults(axolotl_json()["defaults"]);
}

}  // namespace

const Program& axolotl_program() {
  static const Program program = [] {
    Program made = program_of("axolotl", "axolotl",
                              {rules_of(axolotl_json()["rules"], kOwn), axolotl_chat_rules(),
                               shared_rules(), schedule_rules(), fsdp_rules()});
    made.name_of = name_of;
    return made;
  }();
  return program;
}

std::string adopt_axolotl(const std::filesystem::path& file, const AdoptOptions& options) {
  std::vector<Given> given = read_tree(file);
  for (Given& each : given) each.name = name_of(each.name);
  Adoption adoption("axolotl", file.string(), given, options);
  std::vector<Ignored> ignored;
  if (!is_on(adoption.find("adapter"))) {
    ignored = {{"lora_", "no effect without adapter: lora"},
               {"peft_", "no effect without adapter: lora"}};
  }
  for (const Rule& rule : axolotl_chat_rules()) {
    if (!has_chats(adoption))
      ignored.push_back({rule.name.substr(0, rule.name.find('*')), "no effect without chats"});
  }
  take_all(axolotl_program(), adoption, ignored);
  take_together(adoption, file.parent_path());
  return adoption.yaml();
}

}  // namespace fsdp::adopt
