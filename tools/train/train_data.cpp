// Caches, loaders, and their batches in the session's form.
#include "tools/train/train_data.h"

#include <algorithm>

#include "comm/exchange.h"
#include "models/adapter_folder.h"
#include "tools/config/step_shape.h"
#include "tools/data/text_files.h"
#include "tools/launch/launch.h"
#include "tools/train/bigram.h"

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

// What check_config cannot say by the names of folders and patterns.
void check_formats(const config::TrainConfig& config) {
  const config::DataSection& c = config.data;
  const auto has_rows = [&](const std::string& file) { return data::has_rows(file, c.format); };
  if (std::any_of(c.train.begin(), c.train.end(), has_rows) ||
      std::any_of(c.validation.begin(), c.validation.end(), has_rows)) {
    return;
  }
  for (const auto& [key, given] :
       {std::pair{"data.field", c.field != config::DataSection().field},
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
    std::vector<std::string> files;
    for (const std::string& name : *names) {
      const std::string here = resolve_path(name, config_file);
      try {
        std::vector<std::string> found = data::files_named(here);
        if (found.empty() && here == name && !name.empty()) {  // a pattern has no place of its own
          const auto beside = (config_file.parent_path() / name).lexically_normal();
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
  config.model.path = resolve_path(config.model.path, config_file);
  config.lora.path = resolve_path(config.lora.path, config_file);
  if (!config.lora.path.empty() && config.model.path.empty()) {
    config.model.path = models::adapter_base(config.lora.path);
  }
  if (config.data.tokenizer != "bytes") {
    config.data.tokenizer = resolve_path(config.data.tokenizer, config_file);
  }
}

std::string tokenizer_name(const config::TrainConfig& config) {
  const std::string& given = config.data.tokenizer;
  return given.empty() ? data::default_tokenizer(config.model.path) : given;
}

int64_t vocabulary_of(const config::TrainConfig& config) {
  const bool published =
      !config.model.preset.empty() && config.data.train.empty() && config.data.tokenizer.empty();
  return published ? models::preset(config.model.preset).vocabulary
                   : data::make_tokenizer(tokenizer_name(config))->vocab_size();
}

TrainData::TrainData(comm::Communicator& world, const config::TrainConfig& config,
                     const std::function<void(const data::Tokenizer&)>& before_text)
    : config_(config) {
  agree(world, [&] {
    FSDP_CHECK(!config.data.train.empty(), "data.train: expected at least one file");
    check_files(config, "data.train", config.data.train);
    check_files(config, "data.validation", config.data.validation);
    check_formats(config);
    tokenizer_name_ = tools::tokenizer_name(config);
    tokenizer_ = data::make_tokenizer(tokenizer_name_);
  });
  if (before_text) before_text(*tokenizer_);
  std::optional<data::RowSubset> subset;
  if (const config::SubsetSection& c = config.data.subset; c.n) {
    subset = {.n = *c.n, .seed = static_cast<uint64_t>(c.seed)};
  }
  train_ = open(world, config.data.train, subset);
  if (!config.data.validation.empty()) validation_ = open(world, config.data.validation, {});
  agree(world, [&] {
    train_loader_ = loader(*train_, world, true);
    if (validation_) validation_loader_ = loader(*validation_, world, false);
    if (!has_bigrams() || world.rank() != 0) return;
    // Rank 0 reads all tokens at the end: that they are damaged is better known now.
    train_->check(0, train_->unchecked().size());
    validation_->check(0, validation_->unchecked().size());
  });
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

std::string TrainData::check_vocabulary(int64_t model_vocabulary) const {
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
  const data::TokenSource source = {
      .files = {files.begin(), files.end()},
      .text = {.format = c.format, .field = c.field, .bad_rows = c.bad_rows},
      .document_separator = c.document_separator,
      .subset = subset};
  return open_token_cache(world, c.cache_dir, source, *tokenizer_);
}

data::Loader TrainData::loader(const data::TokenCache& cache, comm::Communicator& world,
                               bool training) const {
  const config::StepShape shape = config::step_shape(config_, world.size());
  return data::Loader(
      {.tokens = cache.unchecked(),
       .before_use = [&cache](size_t first, size_t count) { cache.check(first, count); },
       .name = training ? name_of("data.train", config_.data.train)
                        : name_of("data.validation", config_.data.validation),
       .sequence_length = config_.data.sequence_length,
       .batch = shape.batch,
       .shuffle = training && config_.data.shuffle,
       .seed = static_cast<uint64_t>(config_.train.seed),
       .last = training ? config_.data.last_batch : data::LastBatch::kShort,
       .rows_per_pass = shape.rows_per_pass,
       .rank = world.rank(),
       .world = world.size()});
}

std::map<std::string, std::string> TrainData::hashes() const {
  return {{"tokens of data.train",
           fmt::format("{} {:016x}", train_->unchecked().size(), train_->checksum_of_tokens())},
          {"tokenizer", fmt::format("{:016x}", tokenizer_->identity())}};
}

std::string TrainData::validation_hash() const {
  if (!validation_) return "";
  return fmt::format("{} {:016x}", validation_->unchecked().size(),
                     validation_->checksum_of_tokens());
}

std::vector<data::SkippedRow> TrainData::skipped_rows() const {
  std::vector<data::SkippedRow> out = train_->skipped_rows();
  if (!validation_) return out;
  for (data::SkippedRow& row : validation_->skipped_rows()) out.push_back(std::move(row));
  return out;
}

std::vector<std::string> TrainData::remarks() const {
  std::vector<std::string> out = {files_text("data.train", config_.data.train)};
  if (const config::SubsetSection& c = config_.data.subset; c.n) {
    out.back() += fmt::format("; {} of the rows, by seed {}", *c.n, c.seed);
  }
  if (validation_) out.push_back(files_text("data.validation", config_.data.validation));
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
            return train_loader_->batch(step, shifted_labels);
          }};
}

int64_t TrainData::validation_sequences() const {
  return validation_loader_ ? validation_loader_->sequences() : 0;
}

BatchSource TrainData::validation(bool shifted_labels) const {
  if (!validation_loader_) return {};
  const int64_t all = validation_loader_->steps_per_epoch();
  const int64_t limit = config_.train.eval_batches;
  const int64_t batches = limit > 0 ? std::min(limit, all) : all;
  return {.batches = batches,
          .sequences = validation_loader_->samples_after(batches),
          .get = [this, shifted_labels](int64_t i) {
            return validation_loader_->batch(i, shifted_labels);
          }};
}

bool TrainData::has_bigrams() const {
  return validation_ && tokenizer_->vocab_size() <= BigramModel::kMaxVocabulary;
}

std::optional<double> TrainData::bigram_entropy() const {
  if (!has_bigrams()) return {};
  return tools::bigram_entropy(train_->tokens(), validation_->tokens(),
                               config_.data.sequence_length, tokenizer_->vocab_size());
}

}  // namespace fsdp::tools
