// What a configuration means beyond its fields: the schedule, the ranges of values, and keys that
// contradict each other. Contract: tools/config/config.h.
#include "tools/config/config.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/json.h"
#include "core/text/byte_size.h"
#include "tools/config/config_values.h"
#include "tools/config/options.h"
#include "tools/data/chat/chat_files.h"
#include "tools/data/row_layout.h"

namespace fsdp::config {
namespace {

std::string text_of(const tools::Range& c) {
  using tools::Range;
  const std::string none = c.or_none ? "0 (none) or " : "";
  if (c.most == Range::kNoEnd) {
    return c.above ? "a positive number" : fmt::format("at least {}", c.least);
  }
  if (c.above) return fmt::format("a number above {}, at most {}", c.least, c.most);
  return fmt::format("{}a number from {} to {}{}", none, c.least, c.below ? "below " : "", c.most);
}

template <typename T>
void check_number(const std::string& key, T value, const tools::Range& range) {
  FSDP_CHECK(range.contains(static_cast<double>(value)), "{}: expected {}, got {}", key,
             text_of(range), value);
}

void check_integer(const std::string& key, int64_t value, const tools::Range& range) {
  check_number(key, value, range);
  FSDP_CHECK(value <= range.largest, "{}: expected at most {}, got {}", key, range.largest, value);
}

void check_text(const std::string& key, const std::string& value, const OptionField& about) {
  const auto& known = about.values;
  FSDP_CHECK(known.empty() || std::find(known.begin(), known.end(), value) != known.end(),
             "{}: expected {}, got \"{}\"", key, fmt::join(known, " or "), value);
  FSDP_CHECK(!about.is_size || (about.or_auto && value == "auto") || read_byte_size(value),
             "{}: expected {}a size like 300MB or 2GiB, got \"{}\"", key,
             about.or_auto ? "auto or " : "", value);
}

// The values and ranges that stand in the list of options. Of entries of lists: check_units(),
// check_sources().
void check_ranges(const TrainConfig& config) {
  TrainConfig copy = config;  // visitors take fields by reference
  for (const Option& option : options(copy)) {
    const auto& [key, value, help, about] = option;
    if (const auto* integer = value.as<int64_t>()) check_integer(key, *integer, about.range);
    if (const auto* integer = value.as<std::optional<int64_t>>(); integer && *integer) {
      check_integer(key, **integer, about.range);
    }
    if (const auto* number = value.as<double>()) check_number(key, *number, about.range);
    if (const auto* number = value.as<std::optional<double>>(); number && *number) {
      check_number(key, **number, about.range);
    }
    if (const auto* interval = value.as<Interval>(); interval && !interval->epoch) {
      check_integer(key, interval->steps, about.range);
    }
    if (const auto* steps = value.as<StepsOrShare>()) check_integer(key, steps->steps, about.range);
    if (const auto* text = value.as<std::string>()) check_text(key, *text, about);
  }
}

// A part of the run directory's name, not a way to another folder.
void check_name(const std::string& name) {
  FSDP_CHECK(!name.empty(), "runtime.name: expected a name, got an empty text");
  FSDP_CHECK(std::none_of(name.begin(), name.end(),
                          [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; }),
             "runtime.name: expected a name without control characters such as the end of a line, "
             "got {}",
             Json(name).dump({.ascii = true, .replace = true}));
  FSDP_CHECK(name.find('/') == std::string::npos && name != "." && name != "..",
             "runtime.name: expected a name without /, got \"{}\"; runtime.run_dir takes a path",
             name);
}

void check_checkpoint(const TrainConfig& config) {
  const CheckpointSection& c = config.checkpoint;
  const Interval& eval = config.train.eval_every;
  const Interval every = c.interval();
  FSDP_CHECK(eval.seconds == 0, "train.eval_every: expected steps or epoch, got {}",
             value_text(eval));
  FSDP_CHECK(config.train.log_every.seconds == 0,
             "train.log_every: expected steps or epoch, got {}",
             value_text(config.train.log_every));
  const bool saved = !every.never(), evaluated = !eval.never();
  const bool meet =
      every.epoch ? eval.epoch : every.steps > 0 && eval.steps > 0 && every.steps % eval.steps == 0;
  FSDP_CHECK(c.best != BestMetric::kValidationLoss || !saved || !evaluated || meet,
             "checkpoint.best: validation_loss: expected checkpoint.every to be a multiple of "
             "train.eval_every, got {} and {}: no checkpoint would have one",
             value_text(c.every), value_text(eval));
}

void check_fsdp(const FsdpSection& c) {
  const bool hybrid = comm::is_hybrid(c.options.strategy);
  FSDP_CHECK(!hybrid || c.shard_size > 0,
             "fsdp.shard_size: strategy: {} needs it, the number of ranks of a shard group",
             choice_name(c.options.strategy));
}

void check_fixed_order(const TrainConfig& config) {
  if (!config.fsdp.options.fixed_order) return;
  FSDP_CHECK(config.train.rows_per_pass > 0,
             "fsdp.fixed_order: needs train.rows_per_pass: which sequences are computed together "
             "must not depend on the number of ranks");
  FSDP_CHECK(config.train.loss_mean == LossMean::kTokens,
             "fsdp.fixed_order: train.loss_mean: ranks depends on the number of ranks; expected "
             "tokens");
  FSDP_CHECK(config.train.attention_deterministic,
             "fsdp.fixed_order: train.attention_deterministic: false adds up gradients in any "
             "order; expected true");
}

// What needs to know of all gradients before a unit is updated.
void check_update_in_backward(const TrainConfig& config) {
  if (!config.fsdp.options.update_in_backward) return;
  const TrainSection& train = config.train;
  const auto refuse = [](bool is_set, std::string_view expected) {
    FSDP_CHECK(!is_set,
               "fsdp.update_in_backward: a unit is updated before the gradients of all are there; "
               "expected {}",
               expected);
  };
  const LossScaling rule = train.loss_scale.rule;
  refuse(train.clip_norm > 0, "train.clip_norm: 0");
  refuse(train.spike.factor > 0, "train.spike.factor: 0");
  refuse(config.uses_f16() || (rule != LossScaling::kNone && rule != LossScaling::kAuto),
         "no loss scaling (train.dtype: f16, train.loss_scale)");
  refuse(config.checkpoint.unit_hashes, "checkpoint.unit_hashes: false");
}

void check_units(const FsdpSection& c) {
  for (const comm::UnitOverride& unit : c.options.units) {
    const std::string key = unit.place.empty() ? "fsdp.units" : unit.place + ": fsdp.units";
    FSDP_CHECK(!unit.match.empty(), "{}: match: expected a unit's name or pattern, got none", key);
    FSDP_CHECK(unit.strategy || unit.reshard_after_forward || unit.reshard_group_size ||
                   unit.param_dtype || unit.reduce_dtype,
               "{}: {}: expected what these units do otherwise, got nothing", key, unit.match);
    check_number(key + ": reshard_group_size", unit.reshard_group_size.value_or(0), tools::from(0));
  }
}

void check_wrap(const FsdpSection& c) {
  FSDP_CHECK(c.wrap != Wrap::kClass || !c.wrap_classes.empty(),
             "fsdp.wrap_classes: wrap: class needs the names of classes");
}

void check_validation(const DataSection& c) {
  const auto is_share = [](const std::string& name) { return name.ends_with('%'); };
  if (std::none_of(c.validation.begin(), c.validation.end(), is_share)) {
    FSDP_CHECK(!c.synthetic() || c.validation.empty(),
               "data.validation: expected a share such as 5% with data.format: synthetic, got {}",
               c.validation.front());
    return;
  }
  FSDP_CHECK(c.validation.size() == 1,
             "data.validation: expected one share or files, got a list of both");
  const auto share = c.held_out();
  FSDP_CHECK(share && *share > 0 && *share < 1,
             "data.validation: expected a share between 0% and 100%, or files, got {}",
             c.validation.front());
}

void check_sources(const DataSection& c) {
  for (const SourceSection& source : c.sources) {
    const std::string key = source.place.empty() ? "data.sources" : source.place + ": data.sources";
    FSDP_CHECK(!source.path.empty(), "{}: path: expected a file, folder or pattern, got none", key);
    check_number(key + ": weight", source.weight, tools::from_to(1e-6, 1e6));
  }
  FSDP_CHECK(c.sources.empty() || c.train.empty(),
             "data.train: expected nothing beside data.sources, got {}; a source is a path with a "
             "weight",
             value_text(c.train));
  FSDP_CHECK(c.sources.size() <= 1 || c.shuffle_rule != data::ShuffleRule::kTorch,
             "data.shuffle_rule: expected feistel with data.sources, got torch: torch has no order "
             "of weighted sources");
}

// Keys of conversations. They may also wait for a first row: data.format: auto.
void check_chat(const DataSection& c) {
  for (const auto& [word, role] : c.chat.roles.value.items()) {
    const std::string said = role.is_string() ? role.text() : role.dump();
    FSDP_CHECK(data::find_role(said),
               "data.roles: {}: expected system, user, assistant or tool, got {}", word, said);
  }
  for (const char* const own : {"messages", "tools", "documents", "add_generation_prompt"}) {
    FSDP_CHECK(!c.chat.template_kwargs.value.contains(own),
               "data.chat_template_kwargs: {}: the row says it, or the program", own);
  }
  FSDP_CHECK(c.chat.date.empty() || data::parse_date(c.chat.date),
             "data.chat_date: expected a date such as 2026-01-31, got \"{}\"", c.chat.date);
  FSDP_CHECK(c.chat.max_untrained_rows.steps >= 0,
             "data.max_untrained_rows: expected a number of rows, or a share such as 5%, got {}",
             c.chat.max_untrained_rows.steps);
  if (!c.is_chat()) return;
  FSDP_CHECK(
      c.objective == data::Objective::kLm || c.objective == data::Objective::kSft,
      "data.objective: expected none with data.format: messages, got {}: data.train_on names "
      "the trained tokens",
      name_of(c.objective));
  FSDP_CHECK(c.objective != data::Objective::kSft || c.chat.train_on != data::TrainOn::kAll,
             "data.objective: sft: data.train_on: all contradicts it");
  FSDP_CHECK(c.has_labels_of_rows(),
             "data.pack: expected examples or documents with data.format: messages, got {}",
             name_of(c.packing()));
}

// Keys of data that contradict each other.
void check_data(const TrainConfig& config) {
  const DataSection& c = config.data;
  check_validation(c);
  check_sources(c);
  check_chat(c);
  FSDP_CHECK(!c.is_tokens() || c.objective == data::Objective::kLm,
             "data.objective: expected lm with data.format: {}, got {}", name_of(c.format),
             name_of(c.objective));
  FSDP_CHECK(!c.synthetic() || c.synthetic_rows || config.train.epochs == 0,
             "data.synthetic_rows: train.epochs needs it: how many sequences make an epoch");
  FSDP_CHECK(!c.synthetic() || c.synthetic_rows || c.validation.empty(),
             "data.synthetic_rows: data.validation: {} needs it: a share of how many sequences",
             c.validation.front());
  FSDP_CHECK(c.objective == data::Objective::kLm || c.has_labels_of_rows(),
             "data.objective: {}: expected data.pack: examples or documents, got {}: labels belong "
             "to rows",
             name_of(c.objective), name_of(c.packing()));
  const bool parts_stream = c.packing() == data::Pack::kStream && c.parts_documents();
  FSDP_CHECK(!parts_stream || c.separates_documents(),
             "data.document_attention: own: expected data.document_separator: true, got false: "
             "nothing says where a document ends");
  FSDP_CHECK(!data::is_compat(c.objective) || !c.packs_documents(),
             "data.objective: {}: expected data.pack: examples, got documents: its labels "
             "are made for a padded row",
             name_of(c.objective));
  FSDP_CHECK(
      c.objective != data::Objective::kApart || c.padded_to() == data::PadTo::kLength,
      "data.pad_to: expected length with data.objective: {}, got longest: its labels are padded "
      "to the length, whatever the rows",
      name_of(c.objective));
  const bool torch = c.shuffle_rule == data::ShuffleRule::kTorch;
  FSDP_CHECK(!torch || c.last_batch != data::LastBatch::kPad,
             "data.last_batch: expected short or drop_last with data.shuffle_rule: torch, got pad");
  FSDP_CHECK(!torch || !config.fsdp.options.fixed_order,
             "data.shuffle_rule: expected feistel with fsdp.fixed_order, got torch: it fills an "
             "epoch up to a multiple of the ranks");
}

// What is narrower than the accumulation dtype. f16 ends at 65504: only a model that computes in
// f16 is known to stay below.
void check_narrow(const TrainSection& c) {
  const DType wide = accumulation_dtype(c.dtype);
  const bool f32 = wide == DType::kF32;
  const DType master = c.master_dtype.value_or(wide),
              state = c.optimizer.state_dtype.value_or(wide);
  FSDP_CHECK(accumulation_dtype(master) == wide,
             "train.master_dtype: expected {} with train.dtype: {}, got {}",
             f32 ? "f32, bf16 or f16" : "f64", fsdp::name_of(c.dtype), fsdp::name_of(master));
  FSDP_CHECK(
      master != DType::kF16 || c.dtype == DType::kF16,
      "train.master_dtype: f16: values beyond 65504 would be infinite; expected train.dtype: "
      "f16 with it, got {}",
      fsdp::name_of(c.dtype));
  FSDP_CHECK(state == wide || (f32 && state == DType::kBF16),
             "train.optimizer.state_dtype: expected {} with train.dtype: {}, got {}",
             f32 ? "f32 or bf16" : "f64", fsdp::name_of(c.dtype), fsdp::name_of(state));
  FSDP_CHECK(!c.stochastic_rounding || master != DType::kF16,
             "train.stochastic_rounding: rounds to bf16, but master weights are in f16");
}

}  // namespace

void check_config(const TrainConfig& config) {
  check_ranges(config);
  FSDP_CHECK(config.model.path.empty() || config.model.preset.empty(),
             "model.preset: expected nothing beside model.path, got \"{}\"", config.model.preset);
  const OptimizerSection& optimizer = config.train.optimizer;
  FSDP_CHECK(!optimizer.nesterov || optimizer.dampening == 0,
             "train.optimizer.dampening: expected 0 with nesterov, got {}", optimizer.dampening);
  check_narrow(config.train);
  check_checkpoint(config);
  check_fsdp(config.fsdp);
  check_fixed_order(config);
  check_update_in_backward(config);
  check_data(config);
  check_units(config.fsdp);
  check_wrap(config.fsdp);
  check_name(config.runtime.name);
  for (const KeyWithoutEffect& each : keys_without_effect(config)) {
    fail("{}: {} has no effect {}", each.key, each.value, each.reason);
  }
}

std::vector<std::string> DataSection::training_files() const {
  std::vector<std::string> all = train;
  for (const SourceSection& source : sources) {
    all.insert(all.end(), source.path.begin(), source.path.end());
  }
  return all;
}

std::optional<double> DataSection::held_out() const {
  double percent = 0;
  if (validation.size() != 1 || !validation[0].ends_with('%')) return std::nullopt;
  const std::string number = validation[0].substr(0, validation[0].size() - 1);
  if (!read_text(number, percent)) return std::nullopt;
  return percent / 100;
}

data::Pack DataSection::packing() const {
  const bool stream = objective == data::Objective::kLm && !is_chat();
  return pack.value_or(stream ? data::Pack::kStream : data::Pack::kExamples);
}

std::string StepsOrShare::text() const {
  return percent > 0 ? fmt::format("{}%", percent) : fmt::format("{}", steps);
}

data::Objective DataSection::objective_of_rows() const {
  if (!is_chat()) return objective;
  return chat.train_on == data::TrainOn::kAll ? data::Objective::kLm : data::Objective::kSft;
}

bool DataSection::separates_documents() const {
  return document_separator.value_or(packing() != data::Pack::kWikitextRows);
}

data::PadTo DataSection::padded_to() const {
  return pad_to.value_or(data::is_compat(objective) ? data::PadTo::kLength : data::PadTo::kLongest);
}

bool DataSection::hides_padding() const {
  return pads() &&
         data::RowLayout{.objective = objective_of_rows(), .side = padded_on()}.hides_padding();
}

bool TrainConfig::uses_f16() const {
  return train.dtype == DType::kF16 ||
         std::any_of(
             fsdp.options.units.begin(), fsdp.options.units.end(),
             [](const comm::UnitOverride& unit) { return unit.param_dtype == DType::kF16; });
}

TrainConfig TrainConfig::in_steps(int64_t steps_per_epoch) const {
  TrainConfig out = *this;
  if (train.epochs > 0) out.train.steps = train.epochs * steps_per_epoch;
  const auto set = [&](Interval& interval) {
    if (interval.epoch) interval = {.steps = steps_per_epoch};
  };
  set(out.train.log_every);
  set(out.train.eval_every);
  if (out.checkpoint.every) set(*out.checkpoint.every);
  return out;
}

optim::OptimizerOptions TrainConfig::optimizer() const {
  const OptimizerSection& c = train.optimizer;
  const double usual_decay = c.kind == optim::OptimizerKind::kAdamW ? 0.1 : 0;
  const double usual_epsilon = c.kind == optim::OptimizerKind::kAdadelta ? 1e-6 : 1e-8;
  return {
      .kind = c.kind,
      .weight_decay = c.weight_decay.value_or(usual_decay),
      .beta1 = c.beta1,
      .beta2 = c.beta2,
      .rho = c.rho,
      .epsilon = c.epsilon.value_or(usual_epsilon),
      .momentum = c.momentum,
      .dampening = c.dampening,
      .nesterov = c.nesterov,
      .state_dtype = c.state_dtype,
      .rounds_masters_by_chance = train.master_dtype == DType::kBF16 && train.stochastic_rounding,
      .rounding_seed = static_cast<uint64_t>(train.seed)};
}

optim::Schedule TrainConfig::schedule() const {
  const ScheduleSection& c = train.schedule;
  const int64_t total = c.total > 0 ? c.total : train.steps;
  return {.kind = c.kind,
          .peak = train.lr,
          .warmup = c.warmup.of(total),
          .total = total,
          .min_lr = c.min_lr,
          .power = c.power,
          .cycles = c.cycles,
          .timescale = c.timescale,
          .decay_updates = c.decay_steps,
          .warmup_ramp = c.warmup_shape,
          .decay_ramp = c.decay_shape,
          .zero_warmup = c.zero_warmup};
}

}  // namespace fsdp::config
