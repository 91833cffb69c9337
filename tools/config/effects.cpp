// Keys that cannot take effect beside others. Contract: tools/config/config.h.
#include <algorithm>
#include <initializer_list>

#include "tools/config/config.h"
#include "tools/config/config_values.h"
#include "tools/config/key_values.h"

namespace fsdp::config {
namespace {

struct Effect {
  std::string key;
  bool given;           // whether it has one
  std::string without;  // what it has none with
};

void add_schedule(const ScheduleSection& c, std::vector<Effect>& effects) {
  using Kind = optim::ScheduleKind;
  const auto is = [&](std::initializer_list<Kind> kinds) {
    return std::find(kinds.begin(), kinds.end(), c.kind) != kinds.end();
  };
  const bool parts = is({Kind::kWarmupStableDecay});
  const bool cosine = is({Kind::kCosine, Kind::kCosineWithRestarts, Kind::kCosineWithMinLr,
                          Kind::kCosineWarmupWithMinLr});
  const std::string with = fmt::format("with kind: {}", optim::name_of(c.kind));
  for (const auto& [key, given] :
       {std::pair{"total", !is({Kind::kConstant, Kind::kInverseSqrt})},
        {"power", is({Kind::kPolynomial, Kind::kFairseqPolynomialDecay})},
        {"cycles", cosine || (parts && c.decay_shape == optim::Ramp::kCosine)},
        {"timescale", is({Kind::kInverseSqrt})},
        {"decay_steps", parts},
        {"warmup_shape", parts},
        {"decay_shape", parts},
        {"zero_warmup", is({Kind::kFairseqPolynomialDecay})}}) {
    effects.push_back({fmt::format("train.schedule.{}", key), given, with});
  }
}

void add_optimizer(const TrainConfig& config, std::vector<Effect>& effects) {
  const OptimizerSection& c = config.train.optimizer;
  const bool sgd = c.kind == optim::OptimizerKind::kSgd;
  const bool adadelta = c.kind == optim::OptimizerKind::kAdadelta;
  const std::string with = fmt::format("with kind: {}", optim::name_of(c.kind));
  for (const auto& [key, given] : {std::pair{"beta1", !sgd && !adadelta},
                                   {"beta2", !sgd && !adadelta},
                                   {"rho", adadelta},
                                   {"epsilon", !sgd},
                                   {"momentum", sgd},
                                   {"dampening", sgd},
                                   {"nesterov", sgd}}) {
    effects.push_back({fmt::format("train.optimizer.{}", key), given, with});
  }
  for (const char* key : {"dampening", "nesterov"}) {
    effects.push_back({fmt::format("train.optimizer.{}", key), c.momentum > 0, "without momentum"});
  }
  effects.push_back(
      {"train.optimizer.state_dtype", !sgd || c.momentum > 0, with + ", without momentum"});
  effects.push_back({"train.optimizer.weight_decay", c.decay != Decay::kNone, "with decay: none"});
  effects.push_back({"train.optimizer.decay", config.optimizer().weight_decay > 0,
                     with + ", whose weight_decay is 0"});
}

void add_loss_scale(const TrainConfig& c, std::vector<Effect>& effects) {
  const LossScaling rule = c.train.loss_scale.rule;
  const bool scaled = rule == LossScaling::kTorch || rule == LossScaling::kFairseq ||
                      (rule == LossScaling::kAuto && c.uses_f16());
  for (const char* key :
       {"initial", "growth", "backoff", "interval", "tolerance", "floor", "minimum"}) {
    effects.push_back({fmt::format("train.loss_scale.{}", key), scaled,
                       "without loss scaling (train.dtype: f16, or a train.loss_scale.rule)"});
  }
}

// Whether any unit gives its parameters back between forward and backward, on several ranks.
bool gives_back(const FsdpSection& c) {
  constexpr int kSeveral = 2;  // ranks of a shard group
  const auto keeps = [&](comm::Strategy strategy, std::optional<bool> reshards) {
    const comm::FsdpOptions options = {.strategy = strategy, .reshard_after_forward = reshards};
    return comm::unit_policy(options, {.shards = kSeveral}, /*is_root=*/true).keeps_parameters;
  };
  if (c.options.strategy == comm::Strategy::kNoShard) return false;
  return !keeps(c.options.strategy, c.options.reshard_after_forward) ||
         std::any_of(c.options.units.begin(), c.options.units.end(),
                     [&](const comm::UnitOverride& unit) {
                       const auto reshards = unit.reshard_after_forward;
                       return !keeps(unit.strategy.value_or(c.options.strategy),
                                     reshards ? reshards : c.options.reshard_after_forward);
                     });
}

void add_sharding(const TrainConfig& config, std::vector<Effect>& effects) {
  const FsdpSection& c = config.fsdp;
  const bool sharded = c.options.strategy != comm::Strategy::kNoShard;
  const bool reshards = gives_back(c);
  const bool replicas = !sharded || comm::is_hybrid(c.options.strategy);
  const std::string strategy = fmt::format("with strategy: {}", choice_name(c.options.strategy));
  const std::string kept =
      sharded && c.options.reshard_after_forward ? "with reshard_after_forward: false" : strategy;
  effects.push_back({"fsdp.reshard_after_forward", sharded, strategy});
  effects.push_back({"fsdp.reshard_group_size", reshards, kept});
  effects.push_back({"fsdp.backward_prefetch", reshards, kept});
  effects.push_back({"fsdp.units_in_flight", reshards, kept});
  effects.push_back({"fsdp.forward_prefetch", sharded, strategy});
  effects.push_back({"fsdp.prefetch_depth", sharded && c.forward_prefetch,
                     sharded ? "without forward_prefetch" : strategy});
  effects.push_back({"fsdp.accumulation",
                     config.train.micro_steps.value_or(1) > 1 || config.train.rows_per_pass > 0,
                     "with train.micro_steps: 1"});
  effects.push_back({"fsdp.accumulation",
                     replicas || c.options.accumulation != comm::Accumulation::kReduceScatterEach,
                     strategy + ", which has no replicas"});
}

void add_lora(const LoraSection& c, std::vector<Effect>& effects) {
  const bool loaded = !c.path.empty();
  const char* const without = loaded ? "beside lora.path, which says it" : "without lora.r";
  effects.push_back({"lora.r", !loaded, without});
  for (const char* key : {"alpha", "targets", "rslora"}) {
    effects.push_back({fmt::format("lora.{}", key), c.r > 0 && !loaded, without});
  }
  effects.push_back({"lora.dropout", c.r > 0 || loaded, without});
}

// By the names alone: a folder may hold any files. What is in it, tools/train/train_data.cpp
// checks.
bool may_have_rows(const DataSection& c) {
  if (c.packing() != data::Pack::kStream) return true;  // lines
  const auto may = [&](const std::string& file) {
    const bool text = c.format == data::TextFormat::kText ||
                      (c.format == data::TextFormat::kAuto && file.ends_with(".txt"));
    return !text;
  };
  const std::vector<std::string> files = c.training_files();
  return files.empty() || std::any_of(files.begin(), files.end(), may) ||
         std::any_of(c.validation.begin(), c.validation.end(), may);
}

void add_data(const DataSection& c, std::vector<Effect>& effects) {
  const bool rows = may_have_rows(c), text = c.format == data::TextFormat::kText;
  const std::string with_pack = fmt::format("with data.pack: {}", name_of(c.packing()));
  const bool of_format =
      c.format == data::TextFormat::kAlpaca || c.format == data::TextFormat::kSquad;
  for (const Effect& effect : std::initializer_list<Effect>{
           {"data.field", rows, "on files of text"},
           {"data.field", !of_format, fmt::format("with data.format: {}", name_of(c.format))},
           {"data.field", c.row_template.empty(), "with data.template"},
           {"data.template", rows && !text, "on files of text"},
           {"data.bad_rows", rows, "on files of text"},
           {"data.sample_break_mode", c.format == data::TextFormat::kFairseq,
            "without data.format: fairseq"},
           {"data.subset.seed", c.subset.n.has_value(), "without data.subset.n"},
           {"data.subset.n", c.sources.empty(), "with data.sources"},
           {"data.sources", !c.synthetic(), "with data.format: synthetic"},
           {"data.synthetic_rows", c.synthetic(), "without data.format: synthetic"},
           {"data.pad", c.pads() || c.is_tokens(), with_pack},
           {"data.pad_to", c.has_rows_of_any_length() || c.is_tokens(), with_pack},
           {"data.set_epoch", c.shuffle, "with data.shuffle: false"},
           {"data.set_epoch", !c.synthetic(), "with data.format: synthetic"},
           {"data.shuffle", !c.synthetic(), "with data.format: synthetic"}}) {
    effects.push_back(effect);
  }
  const std::string with_format = fmt::format("with data.format: {}", name_of(c.format));
  effects.push_back({"data.train", !c.synthetic(), with_format});
  effects.push_back({"data.pad", !c.is_tokens(), with_format});
  const bool blocks = c.has_blocks_of_sentences();
  const std::string with_mode = c.synthetic()
                                    ? with_format
                                    : with_format + fmt::format(" and data.sample_break_mode: {}",
                                                                name_of(c.sample_break_mode));
  for (const char* key : {"data.bad_rows", "data.pad_to"}) {
    effects.push_back({key, !c.is_tokens() || blocks, with_mode});
  }
  for (const char* key :
       {"data.field", "data.template", "data.subset.n", "data.tokenizer", "data.pack",
        "data.cache_dir", "data.document_separator", "sample.tokens"}) {
    effects.push_back({key, !c.is_tokens(), with_format});
  }
}

std::vector<Effect> all_effects(const TrainConfig& config) {
  const bool validated = !config.data.validation.empty(), sampled = config.sample.tokens > 0;
  const bool saved = config.checkpoint.every.epoch || config.checkpoint.every.steps > 0;
  const bool best = config.checkpoint.best != BestMetric::kNone;
  std::vector<Effect> effects = {
      {"train.eval_every", validated, "without data.validation"},
      {"train.eval_batches", validated, "without data.validation"},
      {"train.recompute.every", config.train.recompute.mode != RecomputeMode::kNone,
       "with train.recompute.mode: none"},
      {"checkpoint.keep", saved, "without checkpoint.every"},
      {"checkpoint.best", saved, "without checkpoint.every"},
      {"checkpoint.best",
       config.train.eval_every.epoch || config.train.eval_every.steps > 0 ||
           config.checkpoint.best != BestMetric::kValidationLoss,
       "without train.eval_every"},
      {"checkpoint.required", saved, "without checkpoint.every"},
      {"checkpoint.async", saved, "without checkpoint.every"},
      {"checkpoint.load_best", best, "without checkpoint.best"},
      {"checkpoint.load_best", config.train.save, "with train.save: false"},
      {"train.save_dtype", config.train.save, "with train.save: false"},
      {"train.max_shard_size", config.train.save, "with train.save: false"},
      {"sample.prompt", sampled, "without sample.tokens"},
      {"sample.temperature", sampled, "without sample.tokens"},
      {"sample.top_k", sampled && config.sample.temperature > 0,
       sampled ? "with sample.temperature: 0" : "without sample.tokens"},
      {"runtime.shared_memory_limit_mib", config.runtime.launch.shared_memory,
       "without runtime.shared_memory"}};
  add_schedule(config.train.schedule, effects);
  add_optimizer(config, effects);
  add_loss_scale(config, effects);
  add_sharding(config, effects);
  add_lora(config.lora, effects);
  add_data(config.data, effects);
  return effects;
}

}  // namespace

std::vector<KeyWithoutEffect> keys_without_effect(const TrainConfig& config) {
  const std::vector<Effect> effects = all_effects(config);
  const auto values = key_values(config), defaults = key_values({});
  std::vector<KeyWithoutEffect> without;
  for (size_t i = 0; i < values.size(); ++i) {
    // A file may be one that a run wrote, with all keys. Who sets a key by hand means something.
    const auto place = config.places.find(values[i].first);
    const bool by_hand = place != config.places.end() && place->second.starts_with("--") &&
                         values[i].first.starts_with("train.optimizer.");
    if (values[i] == defaults[i] && !by_hand) continue;
    const auto none = std::find_if(effects.begin(), effects.end(), [&](const Effect& effect) {
      return !effect.given && effect.key == values[i].first;
    });
    if (none != effects.end()) without.push_back({none->key, values[i].second, none->without});
  }
  return without;
}

}  // namespace fsdp::config
