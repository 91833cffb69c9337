// Caches, loaders, and their batches in the session's form.
#include "tools/train/train_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>

#include "comm/exchange.h"
#include "core/text/counted.h"
#include "core/text/numbers.h"
#include "tools/config/guests.h"
#include "tools/config/options.h"
#include "tools/config/step_shape.h"
#include "tools/data/beyond_vocabulary.h"
#include "tools/data/bigram.h"
#include "tools/data/packed_sequences.h"
#include "tools/data/padding_side.h"
#include "tools/data/text_files.h"
#include "tools/data/text_format.h"
#include "tools/launch/launch.h"
#include "tools/train/chat_data.h"
#include "tools/train/model_shape.h"

namespace fsdp::tools {
namespace {

void check_files(const config::TrainConfig& config, const std::string& key,
                 const std::vector<std::string>& files) {
  // Also of a folder without a file: a mount point looks like that while its disk is away.
  const auto refuse = [&](const std::string& file, const std::string& problem) {
    fail_missing(config::with_place(config, fmt::format("{}: {}: {}", key, file, problem)));
  };
  for (const std::string& file : files) {
    if (std::filesystem::is_directory(file)) {
      const std::string other = data::others_in(file).first;
      refuse(file, fmt::format("no file in this folder ends with {}{}{}", data::data_endings(),
                               other.empty() ? "" : "; ", other));
    }
    if (std::filesystem::exists(file)) continue;
    refuse(file, data::is_pattern(file) ? "no file matches this pattern" : "no such file");
  }
}

data::Lines lines_of(data::Pack pack) {
  if (pack == data::Pack::kStream) return data::Lines::kTogether;
  return pack == data::Pack::kWikitextRows ? data::Lines::kAll : data::Lines::kApart;
}

// How the texts are read; error where labels need an answer that no row has.
data::TextOptions text_options(const config::DataSection& c) {
  data::TextOptions out = {
      .format = c.format, .field = c.field, .bad_rows = c.bad_rows, .lines = lines_of(c.packing())};
  if (!c.row_template.empty())
    out.row_template =
        data::find_template(c.row_template, config::guests_of<data::NamedTemplate>());
  if (c.is_chat()) return out;
  const data::RowForm form = data::form_of(c.objective, c.packing());
  const bool answered = form == data::RowForm::kAnswered || form == data::RowForm::kPair;
  const auto rows = out.template_of_rows();
  FSDP_CHECK(!answered || (rows && rows->has_answer()),
             "data.objective: {}: expected rows with an answer (data.format: alpaca or squad, or a "
             "data.template with {{>answer}}), got {}",
             name_of(c.objective),
             rows ? "data.template: " + c.row_template + " without one" : "rows of one text");
  return out;
}

// What check_config cannot say by the names of folders and patterns.
void check_formats(const config::TrainConfig& config) {
  const config::DataSection& c = config.data;
  const data::TextOptions options = {.format = c.format, .lines = lines_of(c.packing())};
  const auto has_rows = [&](const std::string& file) { return data::has_rows(file, options); };
  const std::vector<std::string> trained = c.training_files();
  if (c.is_tokens() || std::any_of(trained.begin(), trained.end(), has_rows) ||
      std::any_of(c.validation.begin(), c.validation.end(), has_rows)) {
    return;
  }
  const config::DataSection usual;
  const auto refuse = [&](const auto& member, const auto& default_value) {
    if (member == default_value) return;
    const std::string key = config::key_of(config, member);
    fail("{}", config::with_place(config, key + ": it has no effect on files of text"));
  };
  refuse(c.field, usual.field);
  refuse(c.row_template, usual.row_template);
  refuse(c.bad_rows, usual.bad_rows);
}

}  // namespace

std::string name_with_files(const std::string& key, const std::vector<std::string>& files) {
  const std::string more = files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "";
  return fmt::format("{} ({}{})", key, files.front(), more);
}

std::string tokenizer_name(const config::TrainConfig& config) {
  const std::string& given = config.data.tokenizer;
  if (!given.empty()) return given;
  const std::string own = data::default_tokenizer(config.model.path);
  // Of files of ids no text becomes tokens: that this one is not read is no reason to stop.
  return config.data.is_tokens() && own.ends_with("tokenizer.model") ? "bytes" : own;
}

int64_t vocabulary_of(const config::TrainConfig& config) {
  const data::TokenFormat* const tokens = config.data.format.guest;
  const std::vector<std::string> files = config.data.training_files();
  if (tokens && config.model.preset.empty() && !files.empty()) {
    if (const auto ids = tokens->vocabulary(files.front())) return *ids;
  }
  const bool no_text = files.empty() || config.data.is_tokens();
  const bool published = !config.model.preset.empty() && no_text && config.data.tokenizer.empty();
  return published ? models::preset(config.model.preset).vocabulary
                   : data::make_tokenizer(tokenizer_name(config))->vocab_size();
}

namespace {

// Of the model, where the configuration says it; otherwise the tokenizer's tokens all have one.
int64_t rows_of_table(const config::TrainConfig& config) {
  const std::filesystem::path file = std::filesystem::path(config.model.path) / "config.json";
  if (!config.model.path.empty() && std::filesystem::exists(file)) {
    return models::read_config(file.string()).vocabulary;
  }
  return config.model.vocab_size > 0 ? config.model.vocab_size : INT64_MAX;
}

}  // namespace

TrainData::TrainData(comm::Communicator& world, const config::TrainConfig& config,
                     const std::function<void(const data::Tokenizer&)>& before_text, DataUse use)
    : config_(config), use_(use), rank_(world.rank()), ranks_(world.size()) {
  agree(world, config.runtime.patience(), [&] {
    name_parts();
    check_files_and_formats();
    try {
      text_ = text_options(config.data);
    } catch (const Error& error) {
      fail_like(error, config::with_place(config, error.what()));
    }
    text_.progress = world.rings()->progress().get();
    tokenizer_name_ = tools::tokenizer_name(config);
    try {
      tokenizer_ = data::make_tokenizer(tokenizer_name_);
    } catch (const Error& error) {
      const std::string what = error.what();
      fail_like(error, what.starts_with("tokenizer: ") ? config::with_place(config, "data." + what)
                                                       : what);
    }
    if (config.data.is_chat()) {
      try {
        text_.chat = chat_rows(config, *tokenizer_);
      } catch (const Error& error) {
        fail_like(error, config::with_place(config, error.what()));
      }
    }
    padding_ = data::padding_below(rows_of_table(config), *tokenizer_);
    if (config_.data.pads() && !config_.data.pad) {
      config_.data.pad = data::padding_side_of(tokenizer_name_);
    }
  });
  if (before_text) before_text(*tokenizer_);
  if (!config.data.is_tokens()) open_texts(world);
  agree(world, config.runtime.patience(), [&] {
    make_sequences(world.size());
    make_loaders();
    if (!has_bigrams() || world.rank() != 0) return;
    // Rank 0 reads all tokens at the end: that they are damaged is better known now.
    for (const data::TokenCache* cache : {train_[0].cache.get(), validation_->cache.get()}) {
      cache->check(0, cache->unchecked().size());
    }
  });
}

void TrainData::name_parts() {
  train_.clear();  // of an attempt that has failed
  const config::DataSection& c = config_.data;
  const bool trained = use_ != DataUse::kValidation || c.held_out();
  if (trained && is_mixed()) {
    for (const config::SourceSection& source : c.sources) {
      train_.push_back({.files = source.path, .weight = source.weight});
    }
  } else if (trained) {
    FSDP_CHECK(!c.train.empty() || c.synthetic(), "data.train: expected at least one file");
    train_.push_back({.files = c.train});
  }
  if (use_ == DataUse::kTraining || c.validation.empty() || c.held_out()) return;
  validation_ = Part{.files = c.validation};
}

void TrainData::check_files_and_formats() const {
  for (const Part& part : train_) check_files(config_, training_key(), part.files);
  if (validation_) check_files(config_, validation_key(), validation_->files);
  check_formats(config_);
}

namespace {

std::optional<data::RowSubset> subset_of(const config::SubsetSection& c, const char* key) {
  if (!c.n) return std::nullopt;
  return data::RowSubset{.n = *c.n, .seed = static_cast<uint64_t>(c.seed), .key = key};
}

}  // namespace

void TrainData::open_texts(comm::Communicator& world) {
  const config::DataSection& c = config_.data;
  for (Part& part : train_) open(world, part, subset_of(c.subset, "data.subset"));
  if (validation_) open(world, *validation_, validation_subset());
}

std::optional<data::RowSubset> TrainData::validation_subset() const {
  const config::DataSection& c = config_.data;
  if (use_ == DataUse::kValidation && c.subset.n) return subset_of(c.subset, "data.subset");
  return subset_of(c.validation_subset, "data.validation_subset");
}

void TrainData::make_sequences(int ranks) {
  const auto make = [&](Part& part) {
    part.sequences = part.cache ? sequences(*part.cache) : sequences_of_tokens(part, ranks);
    if (config_.data.packs_documents()) {
      part.rows = part.sequences;
      check_long_rows(part);
      const bool split_first = config_.data.held_out().has_value();
      if (!split_first) part.sequences = packed(part.rows);
    }
    check_source(part);
  };
  for (Part& part : train_) make(part);
  if (validation_) make(*validation_);
}

void TrainData::check_source(const Part& part) const {
  FSDP_CHECK(part.sequences->count() >= 1 || !is_mixed(),
             "data.sources ({}): {}, fewer than one sequence of {} (data.sequence_length)",
             part.files.front(), part.sequences->summary(), config_.data.sequence_length);
}

// [Note: the share that is held out]
// Of rows: some by train.seed, each as likely as any other; before rows share a sequence. Of a
// stream: its end, so that no sequence is trained that begins where one of the share ends. Of
// several sources: of each.
void TrainData::hold_out(std::vector<std::shared_ptr<const data::Sequences>>& held_out) {
  const config::DataSection& c = config_.data;
  const double share = *c.held_out();
  for (Part& part : train_) {
    const auto all = part.sequences;
    const int64_t count = all->count();
    const auto held = std::max<int64_t>(std::llround(share * static_cast<double>(count)), 1);
    FSDP_CHECK(count > held, "data.validation: {}: expected data of more than {}, got {}",
               c.validation[0], counted(held, c.has_labels_of_rows() ? "row" : "sequence"), count);
    std::optional<uint64_t> seed;
    if (c.has_labels_of_rows()) seed = static_cast<uint64_t>(config_.train.seed);
    part.sequences = data::part_of_sequences(all, 0, count - held, seed);
    held_out.push_back(data::part_of_sequences(all, count - held, held, seed));
    if (!c.packs_documents()) continue;
    part.rows = part.sequences;
    part.sequences = packed(part.rows);
    check_source(part);
    validated_rows_.push_back(held_out.back());
    held_out.back() = packed(held_out.back());
  }
}

void TrainData::make_loaders() {
  std::vector<std::shared_ptr<const data::Sequences>> trained, validated;
  if (config_.data.held_out()) hold_out(validated);
  if (validation_) {
    validated = {validation_->sequences};
    if (validation_->rows) validated_rows_ = {validation_->rows};
  }
  for (const Part& part : train_) trained.push_back(part.sequences);
  const auto joined = [](const std::vector<std::shared_ptr<const data::Sequences>>& sets) {
    return sets.size() == 1 ? sets[0] : data::joined_sequences(sets);
  };
  if (!trained.empty()) train_loader_ = loader(joined(trained), true);
  if (!validated.empty()) validation_loader_ = loader(joined(validated), false);
}

std::shared_ptr<const data::Sequences> TrainData::sequences_of_tokens(Part& part, int ranks) const {
  const config::DataSection& c = config_.data;
  if (c.synthetic()) {
    const int64_t taken = config_.train.steps * config::step_shape(config_, ranks).batch;
    const int64_t vocabulary = model_config(config_, vocabulary_of(config_)).vocabulary;
    return data::synthetic_sequences(c.synthetic_rows.value_or(taken), vocabulary,
                                     static_cast<uint64_t>(config_.train.seed));
  }
  FSDP_CHECK(part.files.size() == 1,
             "{}: expected one file with data.format: {}, got {}; data.sources joins several",
             &part == &*validation_ ? validation_key() : training_key(), name_of(c.format),
             part.files.size());
  part.tokens = c.format.guest->open(
      part.files[0],
      {.length = c.sequence_length, .mode = c.sample_break_mode, .bad_rows = c.bad_rows});
  return part.tokens->sequences;
}

namespace {

// What models are padded to.
int64_t padded(int64_t tokens) {
  constexpr int64_t kRound = 1024;
  return (tokens + kRound - 1) / kRound * kRound;
}

}  // namespace

bool fits_bytes(int64_t model_vocabulary) {
  const int64_t tokens = data::ByteTokenizer().vocab_size();
  return model_vocabulary >= tokens && model_vocabulary <= padded(tokens);
}

std::string check_vocabulary(const std::string& where, const std::string& tokenizer_name,
                             const data::Tokenizer& tokenizer, int64_t model_vocabulary) {
  const int64_t tokens = tokenizer.vocab_size();
  FSDP_CHECK(tokenizer_name != "bytes" || fits_bytes(model_vocabulary),
             "{}: vocabulary mismatch: its tokenizer {} has {} tokens, the model {} "
             "(model.vocab_size)",
             where, tokenizer_name, tokens, model_vocabulary);
  if (model_vocabulary < tokens) {
    const auto first = static_cast<int32_t>(model_vocabulary);
    return fmt::format(
        "the tokenizer {} has {} tokens, the model {}: a text with a token from {} (\"{}\") on is "
        "an error",
        tokenizer_name, tokens, model_vocabulary, first,
        tokenizer.decode({&first, 1}, data::SpecialTokens::kInclude));
  }
  if (model_vocabulary <= padded(tokens)) return "";
  return fmt::format(
      "the tokenizer {} has {} tokens, the model's table {} rows: more than padding explains; "
      "check "
      "that the tokenizer belongs to the model",
      tokenizer_name, tokens, model_vocabulary);
}

int64_t vocabulary_with(const config::TrainConfig& config, const data::Tokenizer& tokenizer) {
  return config.data.is_tokens() ? vocabulary_of(config) : tokenizer.vocab_size();
}

int64_t TrainData::vocabulary() const { return vocabulary_with(config_, *tokenizer_); }

std::string TrainData::training_key() const {
  const config::DataSection& c = config_.data;
  return is_mixed() ? config::key_of(config_, c.sources) : config::key_of(config_, c.train);
}

std::string TrainData::validation_key() const {
  return config::key_of(config_, config_.data.validation);
}

std::string TrainData::training_name() const {
  const config::DataSection& c = config_.data;
  return c.synthetic() ? "data.format: synthetic"
                       : name_with_files(training_key(), c.training_files());
}

std::string TrainData::check_vocabulary(int64_t model_vocabulary) const {
  if (config_.data.is_tokens()) return "";  // they are the model's; each batch is looked at
  std::string note =
      tools::check_vocabulary(training_name(), tokenizer_name_, *tokenizer_, model_vocabulary);
  check_tokens(model_vocabulary);
  return note;
}

void TrainData::check_tokens(int64_t model_vocabulary) const {
  if (rank_ != 0) return;  // which speaks for all
  const auto check = [&](const Part& part) {
    if (part.cache) {
      data::check_tokens_below(model_vocabulary, *part.cache, part.source, *tokenizer_);
    }
  };
  for (const Part& part : train_) check(part);
  if (validation_) check(*validation_);
}

void TrainData::open(comm::Communicator& world, Part& part,
                     std::optional<data::RowSubset> subset) const {
  const config::DataSection& c = config_.data;
  part.source = {
      .files = {part.files.begin(), part.files.end()},
      .text = text_,
      .document_separator = c.separates_documents(),
      .subset = subset,
      .form = data::form_of(c.objective, c.packing(), c.is_chat()),
      .end_tokens = c.is_chat() ? end_tokens_of(config_, *tokenizer_) : std::vector<int32_t>()};
  part.cache = open_token_cache(world, c.cache_dir, part.source, *tokenizer_,
                                config_.runtime.patience(), &part.cache_note);
}

std::shared_ptr<const data::Sequences> TrainData::sequences(const data::TokenCache& cache,
                                                            std::optional<data::Role> role) const {
  const config::DataSection& c = config_.data;
  data::TokenRows rows = {
      .tokens = cache.unchecked(),
      .examples = cache.examples(),
      .before_use = [&cache](size_t first, size_t count) { cache.check(first, count); }};
  if (c.is_chat()) rows.set_turns(cache.turns());
  switch (c.packing()) {
    case data::Pack::kStream: {
      auto stream = data::stream_sequences(rows, c.sequence_length);
      if (!c.parts_documents()) return stream;
      return data::parted_sequences(std::move(stream), tokenizer_->end_of_text());
    }
    case data::Pack::kExamples:
    case data::Pack::kDocuments:
      return data::example_sequences(
          rows, c.sequence_length,
          {.objective = role ? data::Objective::kSft : c.objective_of_rows(),
           .side = c.padded_on(),
           .pad_token = padding_,
           .train_on = c.chat.train_on,
           .role = role});
    case data::Pack::kWikitextRows:
      return data::wikitext_sequences(rows, c.sequence_length);
  }
  fail("[data] pack: {}", static_cast<int>(c.packing()));
}

std::shared_ptr<const data::Sequences> TrainData::packed(
    std::shared_ptr<const data::Sequences> rows) const {
  const config::DataSection& c = config_.data;
  return data::packed_sequences(std::move(rows), {.length = c.sequence_length,
                                                  .window = c.pack_window,
                                                  .long_rows = c.long_rows,
                                                  .pad_token = padding_});
}

void TrainData::check_long_rows(const Part& part) const {
  const config::DataSection& c = config_.data;
  if (c.long_rows != data::LongRows::kFail) return;
  const int64_t row = data::first_long_row(*part.rows, c.sequence_length);
  if (row < 0) return;
  fail("{}: the row has {} tokens, more than data.sequence_length: {} (data.long_rows: fail)",
       data::place_of_row(part.source, row), part.rows->tokens_of(row, INT32_MAX),
       c.sequence_length);
}

data::Loader TrainData::loader(std::shared_ptr<const data::Sequences> sequences,
                               bool training) const {
  const config::StepShape shape = config::step_shape(config_, ranks_);
  const config::DataSection& c = config_.data;
  std::vector<data::WeightedSource> sources;
  for (const Part& part : train_) {
    if (training && is_mixed()) sources.push_back({part.sequences->count(), part.weight});
  }
  return data::Loader(
      {.sequences = std::move(sequences),
       .name = training ? training_name() : name_with_files(validation_key(), c.validation),
       .sequence_length = c.sequence_length,
       .to_longest = c.has_rows_of_any_length() && c.padded_to() == data::PadTo::kLongest,
       .batch = shape.batch,
       .shuffle = training && c.shuffle && !c.synthetic(),
       .seed = static_cast<uint64_t>(config_.train.seed),
       .last = training ? c.last_batch : data::LastBatch::kShort,
       .rule = training ? c.shuffle_rule : data::ShuffleRule::kFeistel,
       .set_epoch = c.set_epoch,
       .sources = std::move(sources),
       .rows_per_pass = shape.rows_per_pass,
       .rank = rank_,
       .world = ranks_});
}

BatchSource TrainData::training(const models::InputRules& rules) const {
  return {.batches = config_.train.steps, .get = [this, rules](int64_t step) {
            const std::lock_guard lock(mutex_);
            return train_loader_->batch(step, rules);
          }};
}

LabelledRows TrainData::labelled_rows(int64_t step) const {
  const std::lock_guard lock(mutex_);
  return train_loader_->rows(step);
}

int64_t TrainData::validation_sequences() const {
  return validation_loader_ ? validation_loader_->sequences() : 0;
}

int64_t TrainData::validation_batches() const {
  if (!validation_loader_) return 0;
  const int64_t all = validation_loader_->steps_per_epoch();
  const int64_t limit = config_.train.eval_batches;
  return limit > 0 ? std::min(limit, all) : all;
}

std::vector<data::BatchShape> TrainData::largest_validation_batches() const {
  if (!validation_loader_) return {};
  return validation_loader_->largest_batches(validation_batches());
}

BatchSource TrainData::validation(const models::InputRules& rules) const {
  if (!validation_loader_) return {};
  const int64_t batches = validation_batches();
  return {.batches = batches,
          .sequences = validation_loader_->samples_after(batches),
          .get = [this, rules](int64_t i) {
            const std::lock_guard lock(mutex_);
            return validation_loader_->batch(i, rules);
          }};
}

std::vector<data::Role> TrainData::validation_roles() const {
  std::vector<data::Role> out;
  if (!config_.data.is_chat() || !validation_) return out;
  for (const data::Role role :
       {data::Role::kSystem, data::Role::kUser, data::Role::kAssistant, data::Role::kTool}) {
    const auto has = [&](const data::RowTurn& turn) {
      return turn.role == static_cast<uint16_t>(role) && turn.count > 0;
    };
    if (std::ranges::any_of(validation_->cache->turns(), has)) out.push_back(role);
  }
  return out;
}

BatchSource TrainData::validation_of(data::Role role, const models::InputRules& rules) const {
  auto rows = sequences(*validation_->cache, role);
  if (config_.data.packs_documents()) rows = packed(std::move(rows));
  const auto of_role = std::make_shared<data::Loader>(loader(std::move(rows), false));
  const int64_t batches = validation_batches();
  return {.batches = batches,
          .sequences = of_role->samples_after(batches),
          .get = [this, of_role, rules](int64_t i) {
            const std::lock_guard lock(mutex_);
            return of_role->batch(i, rules);
          }};
}

bool TrainData::has_bigrams() const {
  return validation_ && validation_->cache && train_.size() == 1 &&
         config_.data.packing() == data::Pack::kStream && !config_.data.parts_documents() &&
         tokenizer_->vocab_size() <= data::BigramModel::kMaxVocabulary;
}

std::optional<double> TrainData::bigram_entropy() const {
  if (!has_bigrams()) return {};
  return data::bigram_entropy(train_[0].cache->tokens(), validation_->cache->tokens(),
                              config_.data.sequence_length, tokenizer_->vocab_size());
}

}  // namespace fsdp::tools
