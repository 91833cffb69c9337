// Caches, loaders, and their batches in the session's form.
#include "tools/train/train_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/exchange.h"
#include "core/format_count.h"
#include "models/adapter_folder.h"
#include "tools/config/step_shape.h"
#include "tools/data/text_files.h"
#include "tools/launch/launch.h"
#include "tools/train/bigram.h"
#include "tools/train/model_shape.h"

namespace fsdp::tools {
namespace {

void check_files(const config::TrainConfig& config, const char* key,
                 const std::vector<std::string>& files) {
  const auto refuse = [&](const std::string& file, const char* problem) {
    fail("{}", config::with_place(config, fmt::format("{}: {}: {}", key, file, problem)));
  };
  for (const std::string& file : files) {
    if (std::filesystem::is_directory(file)) {
      refuse(file, "no file in this folder ends with .jsonl, .json or .txt");
    }
    if (std::filesystem::exists(file)) continue;
    refuse(file, data::is_pattern(file) ? "no file matches this pattern" : "no such file");
  }
}

data::Lines lines_of(data::Pack pack) {
  if (pack == data::Pack::kStream) return data::Lines::kTogether;
  return pack == data::Pack::kExamples ? data::Lines::kApart : data::Lines::kAll;
}

// How the texts are read; error where labels need an answer that no row has.
data::TextOptions text_options(const config::DataSection& c) {
  data::TextOptions out = {
      .format = c.format, .field = c.field, .bad_rows = c.bad_rows, .lines = lines_of(c.packing())};
  if (!c.row_template.empty()) out.row_template = data::find_template(c.row_template);
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
  if (std::any_of(c.train.begin(), c.train.end(), has_rows) ||
      std::any_of(c.validation.begin(), c.validation.end(), has_rows)) {
    return;
  }
  for (const auto& [key, given] :
       {std::pair{"data.field", c.field != config::DataSection().field},
        {"data.template", !c.row_template.empty()},
        {"data.bad_rows", c.bad_rows != config::DataSection().bad_rows}}) {
    const std::string message = fmt::format("{}: it has no effect on files of text", key);
    if (given) fail("{}", config::with_place(config, message));
  }
}

// "data.train (a.txt and 2 more)"
std::string name_of(const char* key, const std::vector<std::string>& files) {
  const std::string more = files.size() > 1 ? fmt::format(" and {} more", files.size() - 1) : "";
  return fmt::format("{} ({}{})", key, files.front(), more);
}

// "data.train: 12 files: a.txt, b.txt, c.txt and 9 more"
std::string files_text(const char* key, const std::vector<std::string>& files) {
  constexpr size_t kNamed = 8;
  if (files.size() == 1) return fmt::format("{}: {}", key, files[0]);
  const auto named = static_cast<std::ptrdiff_t>(std::min(files.size(), kNamed));
  const std::string more =
      files.size() > kNamed ? fmt::format(" and {} more", files.size() - kNamed) : "";
  return fmt::format("{}: {} files: {}{}", key, files.size(),
                     fmt::join(files.begin(), files.begin() + named, ", "), more);
}

// The file that gives a key: the one of --config, or one that it includes.
std::filesystem::path file_of(const config::TrainConfig& config, const std::string& key,
                              const std::filesystem::path& config_file) {
  const auto place = config.places.find(key);
  const bool in_a_file = place != config.places.end() && !place->second.starts_with("--");
  if (config_file.empty() || !in_a_file) return config_file;
  return place->second.substr(0, place->second.rfind(':'));  // "file:line"
}

}  // namespace

std::string resolve_path(const std::string& path, const std::filesystem::path& config_file) {
  const std::filesystem::path given(path);
  const std::filesystem::path beside = config_file.parent_path() / given;
  const bool use_beside = !path.empty() && given.is_relative() && !std::filesystem::exists(given) &&
                          std::filesystem::exists(beside);
  return use_beside ? beside.lexically_normal().string() : path;
}

void find_texts(config::TrainConfig& config, const std::filesystem::path& config_file) {
  for (const auto& [key, names] : {std::pair{"data.train", &config.data.train},
                                   {"data.validation", &config.data.validation}}) {
    if (names == &config.data.validation && config.data.held_out()) continue;  // a share
    std::vector<std::string> files;
    const std::filesystem::path file = file_of(config, key, config_file);
    for (const std::string& name : *names) {
      const std::string here = resolve_path(name, file);
      try {
        std::vector<std::string> found = data::files_named(here);
        if (found.empty() && here == name && !name.empty()) {  // a pattern has no place of its own
          const auto beside = (file.parent_path() / name).lexically_normal();
          found = data::files_named(beside.string());
        }
        if (found.empty()) found = {here};
        files.insert(files.end(), found.begin(), found.end());
      } catch (const Error& error) {
        fail("{}", config::with_place(config, fmt::format("{}: {}", key, error.what())));
      }
    }
    *names = files;
  }
}

void resolve_paths(config::TrainConfig& config, const std::filesystem::path& config_file) {
  find_texts(config, config_file);
  const auto resolve = [&](const char* key, std::string& path) {
    path = resolve_path(path, file_of(config, key, config_file));
  };
  if (!data::is_template_name(config.data.row_template)) {
    resolve("data.template", config.data.row_template);
  }
  resolve("model.path", config.model.path);
  resolve("lora.path", config.lora.path);
  if (!config.lora.path.empty() && config.model.path.empty()) {
    config.model.path = models::adapter_base(config.lora.path);
  }
  if (config.data.tokenizer != "bytes") {
    resolve("data.tokenizer", config.data.tokenizer);
  }
}

std::string tokenizer_name(const config::TrainConfig& config) {
  const std::string& given = config.data.tokenizer;
  return given.empty() ? data::default_tokenizer(config.model.path) : given;
}

int64_t vocabulary_of(const config::TrainConfig& config) {
  const bool fairseq = config.data.format == data::TextFormat::kFairseq;
  if (fairseq && config.model.preset.empty() && !config.data.train.empty()) {
    if (const auto ids = data::fairseq_vocabulary(config.data.train.front())) return *ids;
  }
  const bool no_text = config.data.train.empty() || config.data.is_tokens();
  const bool published = !config.model.preset.empty() && no_text && config.data.tokenizer.empty();
  return published ? models::preset(config.model.preset).vocabulary
                   : data::make_tokenizer(tokenizer_name(config))->vocab_size();
}

TrainData::TrainData(comm::Communicator& world, const config::TrainConfig& config,
                     const std::function<void(const data::Tokenizer&)>& before_text)
    : config_(config) {
  agree(world, [&] {
    FSDP_CHECK(!config.data.train.empty() || config.data.synthetic(),
               "data.train: expected at least one file");
    check_files(config, "data.train", config.data.train);
    if (!config.data.held_out()) check_files(config, "data.validation", config.data.validation);
    check_formats(config);
    try {
      text_ = text_options(config.data);
    } catch (const Error& error) {
      fail("{}", config::with_place(config, error.what()));
    }
    tokenizer_name_ = tools::tokenizer_name(config);
    tokenizer_ = data::make_tokenizer(tokenizer_name_);
    padding_ =
        tokenizer_->padding() >= 0 ? tokenizer_->padding() : std::max(tokenizer_->end_of_text(), 0);
  });
  if (before_text) before_text(*tokenizer_);
  if (!config.data.is_tokens()) open_texts(world);
  agree(world, [&] {
    if (config.data.format == data::TextFormat::kFairseq) open_fairseq();
    make_loaders(world);
    if (!has_bigrams() || world.rank() != 0) return;
    // Rank 0 reads all tokens at the end: that they are damaged is better known now.
    train_->check(0, train_->unchecked().size());
    validation_->check(0, validation_->unchecked().size());
  });
}

void TrainData::open_texts(comm::Communicator& world) {
  const config::DataSection& c = config_.data;
  std::optional<data::RowSubset> subset;
  if (c.subset.n) subset = {.n = *c.subset.n, .seed = static_cast<uint64_t>(c.subset.seed)};
  train_ = open(world, c.train, subset);
  if (!c.validation.empty() && !c.held_out()) validation_ = open(world, c.validation, {});
}

void TrainData::open_fairseq() {
  const config::DataSection& c = config_.data;
  const auto open_one = [&](const char* key, const std::vector<std::string>& files) {
    FSDP_CHECK(files.size() == 1, "{}: expected one file with data.format: fairseq, got {}", key,
               files.size());
    return std::make_shared<const data::FairseqFile>(files[0]);
  };
  fairseq_ = open_one("data.train", c.train);
  if (!c.validation.empty() && !c.held_out()) {
    fairseq_validation_ = open_one("data.validation", c.validation);
  }
}

// [Note: the share that is held out]
// Of rows: some by train.seed, each as likely as any other. Of a stream: its end, so that no
// sequence is trained that begins where one of the share ends.
void TrainData::make_loaders(comm::Communicator& world) {
  const config::DataSection& c = config_.data;
  const auto all = training_sequences(world.size());
  if (const auto share = c.held_out()) {
    const int64_t count = all->count();
    const auto held_out = std::max<int64_t>(std::llround(*share * static_cast<double>(count)), 1);
    FSDP_CHECK(count > held_out,
               "data.validation: {}: expected data of more than {} sequence{}, "
               "got {}",
               c.validation[0], held_out, held_out == 1 ? "" : "s", count);
    std::optional<uint64_t> seed;
    if (c.pads()) seed = static_cast<uint64_t>(config_.train.seed);
    const auto part = [&](int64_t first, int64_t number) {
      return data::part_of_sequences(all, first, number, seed);
    };
    train_loader_ = loader(part(0, count - held_out), world, true);
    validation_loader_ = loader(part(count - held_out, held_out), world, false);
    return;
  }
  train_loader_ = loader(all, world, true);
  if (validation_) validation_loader_ = loader(sequences(*validation_), world, false);
  if (!fairseq_validation_) return;
  validation_loader_ =
      loader(data::fairseq_sequences(fairseq_validation_, c.sequence_length), world, false);
}

std::shared_ptr<const data::Sequences> TrainData::training_sequences(int ranks) const {
  if (train_) return sequences(*train_);
  return fairseq_ ? data::fairseq_sequences(fairseq_, config_.data.sequence_length)
                  : synthetic_sequences(ranks);
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
  const bool fits =
      tokenizer_name == "bytes" ? fits_bytes(model_vocabulary) : model_vocabulary >= tokens;
  FSDP_CHECK(fits,
             "{}: vocabulary mismatch: its tokenizer {} has {} tokens, the model {} "
             "(model.vocab_size)",
             where, tokenizer_name, tokens, model_vocabulary);
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

std::string TrainData::training_name() const {
  const config::DataSection& c = config_.data;
  return c.synthetic() ? "data.format: synthetic" : name_of("data.train", c.train);
}

std::string TrainData::check_vocabulary(int64_t model_vocabulary) const {
  if (!train_) return "";  // its tokens are the model's; each batch is looked at
  return tools::check_vocabulary(name_of("data.train", config_.data.train), tokenizer_name_,
                                 *tokenizer_, model_vocabulary);
}

namespace {

// Every host makes its cache from its own copy of the text.
void check_same_tokens(comm::Communicator& world, const data::TokenCache& cache,
                       const data::TokenSource& source) {
  struct Seen {
    uint64_t tokens, checksum;
    bool operator==(const Seen&) const = default;
  };
  const std::vector<Seen> all =
      comm::exchange_values(world, Seen{cache.unchecked().size(), cache.checksum_of_tokens()});
  const auto other =
      std::find_if(all.begin(), all.end(), [&](const Seen& s) { return s != all[0]; });
  FSDP_CHECK(
      other == all.end(),
      "{}: the ranks have different tokens: rank {} has {}, rank 0 has {}; the text is not the "
      "same on every host, or changed while the ranks read it",
      source.files.front().string(), other - all.begin(), other->tokens, all[0].tokens);
}

}  // namespace

// One writer per host; the end of the first agree() is the barrier that the others wait at.
std::unique_ptr<data::TokenCache> open_token_cache(comm::Communicator& world,
                                                   const std::string& folder,
                                                   const data::TokenSource& source,
                                                   const data::Tokenizer& tokenizer) {
  const std::filesystem::path cache =
      data::token_cache_path(folder.empty() ? ".cache/tokens" : folder, source, tokenizer);
  const bool writes = first_rank_of_host(world);
  agree(world, [&] {
    if (writes) data::make_token_cache(cache, source, tokenizer);
  });
  std::unique_ptr<data::TokenCache> opened;
  agree(world, [&] { opened = std::make_unique<data::TokenCache>(cache, tokenizer); });
  check_same_tokens(world, *opened, source);
  return opened;
}

std::unique_ptr<data::TokenCache> TrainData::open(comm::Communicator& world,
                                                  const std::vector<std::string>& files,
                                                  std::optional<data::RowSubset> subset) const {
  const config::DataSection& c = config_.data;
  const data::TokenSource source = {.files = {files.begin(), files.end()},
                                    .text = text_,
                                    .document_separator = c.separates_documents(),
                                    .subset = subset,
                                    .form = data::form_of(c.objective, c.packing())};
  return open_token_cache(world, c.cache_dir, source, *tokenizer_);
}

std::shared_ptr<const data::Sequences> TrainData::sequences(const data::TokenCache& cache) const {
  const config::DataSection& c = config_.data;
  const data::TokenRows rows = {
      .tokens = cache.unchecked(),
      .examples = cache.examples(),
      .before_use = [&cache](size_t first, size_t count) { cache.check(first, count); }};
  switch (c.packing()) {
    case data::Pack::kStream:
      return data::stream_sequences(rows, c.sequence_length);
    case data::Pack::kExamples:
      return data::example_sequences(
          rows, c.sequence_length,
          {.objective = c.objective, .side = c.pad, .pad_token = padding_});
    case data::Pack::kWikitextRows:
      return data::wikitext_sequences(rows, c.sequence_length);
  }
  fail("[data] pack: {}", static_cast<int>(c.packing()));
}

std::shared_ptr<const data::Sequences> TrainData::synthetic_sequences(int ranks) const {
  const config::DataSection& c = config_.data;
  const int64_t taken = config_.train.steps * config::step_shape(config_, ranks).batch;
  const int64_t vocabulary = model_config(config_, vocabulary_of(config_)).vocabulary;
  return data::synthetic_sequences(c.synthetic_rows.value_or(taken), vocabulary,
                                   static_cast<uint64_t>(config_.train.seed));
}

data::Loader TrainData::loader(std::shared_ptr<const data::Sequences> sequences,
                               comm::Communicator& world, bool training) const {
  const config::StepShape shape = config::step_shape(config_, world.size());
  const config::DataSection& c = config_.data;
  return data::Loader(
      {.sequences = std::move(sequences),
       .name = training ? training_name() : name_of("data.validation", c.validation),
       .sequence_length = c.sequence_length,
       .to_longest = c.pads() && c.padded_to() == data::PadTo::kLongest,
       .batch = shape.batch,
       .shuffle = training && c.shuffle && !c.synthetic(),
       .seed = static_cast<uint64_t>(config_.train.seed),
       .last = training ? c.last_batch : data::LastBatch::kShort,
       .rule = training ? c.shuffle_rule : data::ShuffleRule::kFeistel,
       .set_epoch = c.set_epoch,
       .rows_per_pass = shape.rows_per_pass,
       .rank = world.rank(),
       .world = world.size()});
}

std::map<std::string, std::string> TrainData::hashes() const {
  // Without a number of rows none is met twice: how many there are changes nothing.
  std::string tokens =
      fmt::format("synthetic {} {}", config_.train.seed, config_.data.synthetic_rows.value_or(0));
  if (train_) {
    tokens = fmt::format("{} {:016x}", train_->unchecked().size(), train_->checksum_of_tokens());
  } else if (fairseq_) {
    tokens = fmt::format("{} {:016x}", fairseq_->tokens(), fairseq_->identity());
  }
  if (config_.data.held_out()) tokens += " without " + config_.data.validation[0];
  std::map<std::string, std::string> out = {
      {"tokens of data.train", tokens},
      {"tokenizer", fmt::format("{:016x}", tokenizer_->identity())}};
  if (config_.data.pads()) out["token of padding"] = fmt::format("{}", padding_);
  return out;
}

std::string TrainData::validation_hash() const {
  if (fairseq_validation_) return fmt::format("{:016x}", fairseq_validation_->identity());
  if (!validation_ && validation_loader_) return hashes().at("tokens of data.train");
  if (!validation_) return "";
  return fmt::format("{} {:016x}", validation_->unchecked().size(),
                     validation_->checksum_of_tokens());
}

std::vector<data::SkippedRow> TrainData::skipped_rows() const {
  std::vector<data::SkippedRow> out;
  if (train_) out = train_->skipped_rows();
  if (!validation_) return out;
  for (data::SkippedRow& row : validation_->skipped_rows()) out.push_back(std::move(row));
  return out;
}

// A guide's labels are repeated to the letter; what they do is said.
void TrainData::add_remarks_on_labels(std::vector<std::string>& out) const {
  using data::Objective;
  const config::DataSection& c = config_.data;
  if (!c.pads()) return;
  out.push_back(fmt::format(
      "data.objective: {}; rows are padded on the {} to {}, with token {}", name_of(c.objective),
      c.pad == data::PadSide::kLeft ? "left" : "right",
      c.padded_to() == data::PadTo::kLongest ? "the longest of a batch" : "data.sequence_length",
      padding_));
  if (c.objective == Objective::kMaskPad && padding_ == tokenizer_->end_of_text()) {
    out.push_back(
        "note: data.objective: mask_pad: end-of-text is the padding token, so no end-of-text is "
        "trained, as in transformers' DataCollatorForLanguageModeling; lm trains it");
  }
  if (c.objective == Objective::kCompatAll) {
    out.push_back(
        "note: data.objective: compat_all: padding is trained too, as by scripts whose labels are "
        "a copy of the ids; lm and sft leave it out");
  }
  if (c.objective == Objective::kKaustCompat) {
    out.push_back(
        "note: data.objective: kaust_compat: a label is learnt from a position of the prompt that "
        "has nothing to do with it, and the model never reads an answer, as in the workshop's "
        "script; sft trains the answer behind its prompt");
  }
}

std::vector<std::string> TrainData::remarks() const {
  const config::DataSection& c = config_.data;
  std::vector<std::string> out;
  const auto add_summary = [&](const data::Loader& loader) {
    if (fairseq_ || c.packing() != data::Pack::kStream) out.back() += "; " + loader.summary();
  };
  out.push_back(c.synthetic() ? fmt::format("{}: {} sequences of random tokens", training_name(),
                                            format_count(sequences()))
                              : files_text("data.train", c.train));
  if (c.subset.n)
    out.back() += fmt::format("; {} of the rows, by seed {}", *c.subset.n, c.subset.seed);
  add_summary(*train_loader_);
  if (validation_ || fairseq_validation_) {
    out.push_back(files_text("data.validation", c.validation));
    add_summary(*validation_loader_);
  } else if (validation_loader_) {
    out.push_back(fmt::format("data.validation: {}: {} of {} sequences, which are not trained",
                              c.validation[0], format_count(validation_sequences()),
                              format_count(validation_sequences() + sequences())));
  }
  add_remarks_on_labels(out);
  const std::vector<data::SkippedRow> skipped = skipped_rows();
  if (!skipped.empty()) {
    out.push_back(fmt::format(
        "note: data.bad_rows: {} row{} skipped and listed in skipped_rows.jsonl; the first is "
        "{}:{}: {}",
        skipped.size(), skipped.size() == 1 ? " is" : "s are", skipped[0].file, skipped[0].line,
        skipped[0].reason));
  }
  return out;
}

BatchSource TrainData::training(bool shifted_labels) const {
  return {.batches = config_.train.steps, .get = [this, shifted_labels](int64_t step) {
            const std::lock_guard lock(mutex_);
            return train_loader_->batch(step, shifted_labels);
          }};
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

BatchSource TrainData::validation(bool shifted_labels) const {
  if (!validation_loader_) return {};
  const int64_t batches = validation_batches();
  return {.batches = batches,
          .sequences = validation_loader_->samples_after(batches),
          .get = [this, shifted_labels](int64_t i) {
            const std::lock_guard lock(mutex_);
            return validation_loader_->batch(i, shifted_labels);
          }};
}

bool TrainData::has_bigrams() const {
  return validation_ && config_.data.packing() == data::Pack::kStream &&
         tokenizer_->vocab_size() <= BigramModel::kMaxVocabulary;
}

std::optional<double> TrainData::bigram_entropy() const {
  if (!has_bigrams()) return {};
  return tools::bigram_entropy(train_->tokens(), validation_->tokens(),
                               config_.data.sequence_length, tokenizer_->vocab_size());
}

}  // namespace fsdp::tools
