// Contract: tools/guides/adopt/hugging_face_keys.h.
#include "tools/guides/adopt/hugging_face_keys.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/guides/adopt/fsdp_keys.h"

namespace fsdp::adopt {

namespace {

const std::string kDefault = "TrainingArguments' default";

bool is_true(const Given* given) { return given && given->truth(); }

// Of all steps. Where they are known, it is a number of them.
void take_warmup_share(Adoption& adoption, const Given& ratio, int64_t steps) {
  const double share = ratio.number();
  if (share < 0 || share > 1) ratio.fail("a number from 0 to 1");
  if (share == 0) return adoption.off(ratio);
  if (steps == 0) {
    return adoption.set("train.schedule.warmup", fmt::format("{:.15g}%", share * 100), ratio);
  }
  const auto count = static_cast<int64_t>(std::ceil(share * static_cast<double>(steps)));
  adoption.set("train.schedule.warmup", std::to_string(count), ratio,
               fmt::format("of {} steps", steps));
}

// Warm-up steps count more than their share of all `steps`, which are 0 where epochs count. Steps
// below 1 are a share, too, from transformers 5 on.
void take_warmup(Adoption& adoption, int64_t steps) {
  const Given* warmup = adoption.find("warmup_steps");
  const Given* ratio = adoption.find("warmup_ratio");
  const Given* kind = adoption.find("lr_scheduler_type");
  if (kind && kind->one() == "constant") {
    for (const Given* each : {warmup, ratio}) {
      if (each) leave("constant has no warm-up: constant_with_warmup has")(*each, adoption);
    }
    return;
  }
  const bool some = warmup && warmup->number() != 0;
  if (some && warmup->number() > 0 && warmup->number() < 1)
    take_warmup_share(adoption, *warmup, steps);
  else if (some)
    whole_to("train.schedule.warmup")(*warmup, adoption);
  else if (warmup)
    adoption.off(*warmup);
  if (ratio && some) return adoption.leave(*ratio, "warmup_steps counts more");
  if (ratio) take_warmup_share(adoption, *ratio, steps);
}

// What is counted, where `strategy` says how: "" for the default.
struct Interval {
  std::string key, otherwise;
  const Given *strategy, *steps;
};

void take_interval(Adoption& adoption, const Interval& c) {
  const std::string how = c.strategy ? c.strategy->one() : c.otherwise;
  if (how == "no" || how == "epoch") {
    if (c.strategy) adoption.set(c.key, how == "no" ? "0" : "epoch", *c.strategy);
    if (c.steps) adoption.leave(*c.steps, "no effect with \"" + how + "\"");
  } else if (how == "steps") {
    if (c.steps) take_steps(c.key, *c.steps, adoption);
    if (c.steps && c.strategy) adoption.leave(*c.strategy, "as " + c.key + " says");
    const Given* logging = adoption.find("logging_steps");  // the default of eval_steps
    const bool as_logs = c.key == "train.eval_every" && logging;
    if (!c.steps && c.strategy) {
      adoption.set(c.key, as_logs ? std::to_string(logging->whole()) : "500", *c.strategy,
                   "the default");
    }
  } else {
    c.strategy->fail("no, steps or epoch");
  }
}

// A checkpoint after each evaluation whose loss is the smallest so far.
void take_save_best(Adoption& adoption, const Given& strategy, const Given* steps) {
  const std::string evaluation = adoption.value_of("train.eval_every");
  if (evaluation.empty() || evaluation == "0") {
    strategy.refuse("expected eval_strategy: steps or epoch with it");
  }
  adoption.set("checkpoint.every", evaluation, strategy,
               "at every evaluation, there only at the best so far; checkpoint.keep");
  if (!adoption.find("metric_for_best_model")) {
    strategy.refuse("expected metric_for_best_model with it, as transformers does");
  }
  if (steps) adoption.leave(*steps, "no effect with \"best\"");
}

void take_logging(Adoption& adoption) {
  const Given* strategy = adoption.find("logging_strategy");
  const Given* steps = adoption.find("logging_steps");
  if (strategy && strategy->one() == "epoch")
    return take_interval(adoption, {"train.log_every", "steps", strategy, steps});
  if (strategy) same("logs come every train.log_every steps")(*strategy, adoption);
  if (steps) take_steps("train.log_every", *steps, adoption);
}

void take_intervals(Adoption& adoption) {
  take_logging(adoption);
  const Given* old_name = adoption.find("evaluation_strategy");
  const Given* new_name = adoption.find("eval_strategy");
  if (old_name && new_name) old_name->refuse("expected eval_strategy alone, got both");
  take_interval(adoption, {"train.eval_every", "no", old_name ? old_name : new_name,
                           adoption.find("eval_steps")});
  const Given* save = adoption.find("save_strategy");
  const Given* save_steps = adoption.find("save_steps");
  if (save && save->one() == "best")
    take_save_best(adoption, *save, save_steps);
  else
    take_interval(adoption, {"checkpoint.every", "steps", save, save_steps});
  adoption.set_default("checkpoint.every", "500", kDefault);
  adoption.set_default("checkpoint.keep", "0", kDefault + std::string(": all stay"));
  const Given* best = adoption.find("load_best_model_at_end");
  const Given* metric = adoption.find("metric_for_best_model");
  const Given* greater = adoption.find("greater_is_better");
  if (best) on_to("checkpoint.load_best", "true")(*best, adoption);
  if (metric) {
    if (metric->one() != "eval_loss" && metric->one() != "loss") metric->fail("eval_loss");
    adoption.set("checkpoint.best", "validation_loss", *metric);
  } else if (is_true(best)) {
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
  std::vector<std::string> words = given.words(' ');
  if (words.size() == 1 && words[0] == "true") words = {"full_shard"};
  if (is_off(given)) words.clear();
  for (const std::string& word : words) {
    if (std::find(kKnown.begin(), kKnown.end(), word) == kKnown.end()) {
      given.fail(fmt::format("words out of {}", fmt::join(kKnown, ", ")));
    }
  }
  return words;
}

// Of two versions: fsdp_config may name the strategy, or say whether a forward gives back what it
// has gathered. It counts more than the words of `fsdp`.
void take_strategy(Adoption& adoption, const Given& given, const std::string& word, int version) {
  const Given* reshard = adoption.find("fsdp_config.reshard_after_forward");
  if (reshard) take_reshard(*reshard, adoption, version);
  if (!adoption.has("fsdp.strategy"))
    set_strategy(adoption, given, word);
  else if (reshard)  // else fsdp_config.sharding_strategy has named it
    adoption.leave(given, reshard->key + " names the strategy");
}

// Until transformers 4 a word of `fsdp` turns wrapping on, and a size counts more than classes.
// From 5 on fsdp_config has a policy, which is by blocks where nothing says it.
void take_wrap(Adoption& adoption, const Given& given, bool wrapped) {
  const Given* policy = adoption.find("fsdp_config.auto_wrap_policy");
  if (is_of_five(adoption, given))
    return set_wrap(adoption, policy ? wrapping_of(*policy) : Wrapping::kBlocks, policy);
  if (policy)
    adoption.leave(*policy, "transformers reads \"auto_wrap\" in fsdp, and min_num_params");
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
}

// The sums over ranks have the dtype of compute under FSDP.
void take_precision(Adoption& adoption, bool sharded) {
  const Given* f16 = adoption.find("fp16");
  const Given* bf16 = adoption.find("bf16");
  if (is_true(f16) && is_true(bf16)) bf16->refuse("expected one of fp16 and bf16, got both");
  for (const Given* each : {f16, bf16}) {
    if (each && each->truth())
      set_precision(adoption, *each, each->key.substr(each->key.rfind('.') + 1), sharded);
    if (each && !each->truth()) adoption.off(*each);
  }
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
  if (fsdp && !plain) take_fsdp(adoption, *fsdp, version_of_fsdp(adoption));
  if (!fsdp) adoption.set_default("fsdp.strategy", "no_shard", "without fsdp");
  const bool sharded = uses_fsdp(adoption);
  const Given* inside = adoption.find("fsdp_config.activation_checkpointing");
  for (const char* name : {"activation_checkpointing", "gradient_checkpointing"}) {
    if (!sharded || !is_true(inside) || !adoption.is_on(name)) continue;
    inside->refuse(fmt::format("expected it or {} to be true, got both", name));
  }
  take_precision(adoption, sharded);
  warn_of_deepspeed(adoption);
}

void set_defaults(Adoption& adoption) {
  adoption.set_defaults(hugging_face_json()["defaults"]);
  const Given* optimizer = adoption.find("optim");
  if (optimizer && (optimizer->one() == "sgd" || optimizer->one() == "adadelta")) return;
  adoption.set_default("train.optimizer.beta2", "0.999", kDefault);
}

}  // namespace

int64_t take_length(Adoption& adoption) {
  const Given* steps = adoption.find("max_steps");
  const Given* epochs = adoption.find("num_train_epochs");
  const bool by_steps = steps && steps->whole() > 0;
  if (by_steps) whole_to("train.steps")(*steps, adoption);
  if (steps && !by_steps) adoption.off(*steps);
  if (epochs && by_steps) adoption.leave(*epochs, "max_steps counts more");
  if (epochs && !by_steps) whole_to("train.epochs")(*epochs, adoption);
  if (!by_steps) adoption.set_default("train.epochs", "3", kDefault);
  return by_steps ? steps->whole() : 0;
}

void take_steps(const std::string& key, const Given& given, Adoption& adoption) {
  const double steps = given.number();
  if (steps <= 0 || steps >= 1) return whole_to(key)(given, adoption);
  const Given* all = adoption.find("max_steps");
  if (!all || all->whole() <= 0) given.refuse("a share of all steps: expected steps");
  const auto count = static_cast<int64_t>(std::ceil(steps * static_cast<double>(all->whole())));
  adoption.set(key, std::to_string(count), given, fmt::format("of {} steps", all->whole()));
}

// Where the stable part is given, the decay begins at its end.
void take_schedule(Adoption& adoption) {
  const Given* kind = adoption.find("lr_scheduler_type");
  if (kind && kind->one() == "polynomial") {
    adoption.set_default("train.schedule.min_lr", "1e-7", "the default of lr_end");
  }
  const Given* stable = adoption.find("lr_scheduler_kwargs.num_stable_steps");
  if (!stable) return;
  const Given* decay = adoption.find("lr_scheduler_kwargs.num_decay_steps");
  if (!decay) stable->refuse("expected lr_scheduler_kwargs.num_decay_steps with it");
  const std::string warmup = adoption.value_of("train.schedule.warmup");
  if (warmup.ends_with('%')) {
    stable->refuse("expected warmup_steps with it: how many steps warmup_ratio makes is not known");
  }
  const int64_t before = warmup.empty() ? 0 : std::stoll(warmup);
  adoption.set("train.schedule.total", std::to_string(before + stable->whole() + decay->whole()),
               *stable, "warm-up, stable steps and decay");
}

void take_fsdp(Adoption& adoption, const Given& given, int version) {
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
  take_strategy(adoption, given, strategy.empty() ? "full_shard" : strategy, version);
  if (offload) adoption.set("fsdp.offload", "all", given);
  set_prefetch_defaults(adoption, version, "transformers'");
  take_wrap(adoption, given, wrapped);
}

void warn_of_deepspeed(Adoption& adoption) {
  const Given* deepspeed = adoption.find("deepspeed");
  if (!deepspeed) return;
  if (is_off(*deepspeed)) return adoption.off(*deepspeed);
  adoption.leave(*deepspeed, "fsdp adopt deepspeed " + deepspeed->text());
  adoption.warn("DeepSpeed's settings are not taken over: include what fsdp adopt deepspeed " +
                deepspeed->text() + " prints");
}

bool uses_fsdp(const Adoption& adoption) {
  const Given* fsdp = adoption.find("fsdp");
  const Given* mode = adoption.find("dist.mode");
  return fsdp && !is_off(*fsdp) && (!mode || mode->one() == "fsdp");
}

bool is_of_five(const Adoption& adoption, const Given& fsdp) {
  const bool config = std::ranges::any_of(
      adoption.given(), [](const Given& each) { return each.name.starts_with("fsdp_config."); });
  return fsdp.says_truth() && (config || !adoption.options().literal);
}

int version_of_fsdp(const Adoption& adoption) {
  const Given* fsdp = adoption.find("fsdp");
  return fsdp_version(adoption, fsdp && is_of_five(adoption, *fsdp) ? 2 : 1);
}

void take_arguments_together(Adoption& adoption) {
  take_warmup(adoption, take_length(adoption));
  take_schedule(adoption);
  take_intervals(adoption);
  take_sharding(adoption);
  set_defaults(adoption);
}

}  // namespace fsdp::adopt
