// The training and validation text of a run as batches of one rank. Makes the token caches on the
// way. Not here: the steps of that (tools/data).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/config/config.h"
#include "tools/data/loader.h"
#include "tools/data/token_cache.h"
#include "tools/data/token_file.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/train/trainer.h"

namespace fsdp::tools {

// What is read. kAll: for a run. kTraining: to look at what is trained; there is no validation().
// kValidation: to evaluate; what is trained is read only where the validation data is a share of
// it, data.subset is one of the validation data, and training(), sequences(), steps_per_epoch() and
// hashes() are not asked for.
enum class DataUse : uint8_t { kAll, kTraining, kValidation };

// Figures of the rows, or sequences, of data.train or of one source.
struct DataFigures {
  std::string name;                    // "data.train (a.jsonl)"
  int64_t rows = 0, cut = 0;           // cut: longer than data.sequence_length
  int64_t tokens = 0, trained = 0;     // of rows as they are cut
  int64_t longest = 0;                 // tokens of a row before it is cut
  std::map<int64_t, int64_t> lengths;  // rows by the next power of two of their tokens
};

class TrainData {
 public:
  // Paths are resolved already. `before_text` is called when the tokenizer is known and no text has
  // been read. Collective; throws AgreedError.
  TrainData(comm::Communicator& world, const config::TrainConfig& config,
            const std::function<void(const data::Tokenizer&)>& before_text = nullptr,
            DataUse use = DataUse::kAll);

  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& tokenizer_name() const { return tokenizer_name_; }  // for make_tokenizer
  int64_t vocabulary() const;                                            // see vocabulary_with
  std::string check_vocabulary(int64_t model_vocabulary) const;          // as below, and tokens
  // Error on rank 0 for a token that a model of this vocabulary does not have: its place.
  void check_tokens(int64_t model_vocabulary) const;
  int64_t sequences() const { return train_loader_->sequences(); }  // of the training data
  int64_t validation_sequences() const;                             // 0: there is none
  int64_t steps_per_epoch() const { return train_loader_->steps_per_epoch(); }
  int64_t samples_after(int64_t steps) const { return train_loader_->samples_after(steps); }
  // Of so many steps, and of an evaluation (none without validation): see Loader.
  std::vector<data::BatchShape> largest_batches(int64_t steps) const {
    return train_loader_->largest_batches(steps);
  }
  std::vector<data::BatchShape> largest_validation_batches() const;
  data::BatchShape shape_of(int64_t batch) const { return train_loader_->shape_of(batch); }
  int64_t validation_batches() const;  // of an evaluation; 0: there is none
  data::BatchShape validation_shape_of(int64_t batch) const {
    return validation_loader_->shape_of(batch);
  }
  // Of the training tokens and the tokenizer: equal for the same ones, wherever they lie.
  std::map<std::string, std::string> hashes() const;
  std::string validation_hash() const;  // of its tokens; "" without
  // Which files there are, what became of their rows, what surprises about labels: a line each.
  std::vector<std::string> remarks() const;
  std::vector<data::SkippedRow> skipped_rows() const;  // of training, then of validation
  // Looks for sequences of which nothing is trained or predicted by these rules of a model; the
  // remarks have their number where they are many. Error for data, a source or an evaluation of
  // such sequences alone, where they are not just looked at. Collective; throws AgreedError.
  void check_trained(comm::Communicator& world, const models::InputRules& rules,
                     bool looked_at = false);

  // `rules`: of the model. Two threads may use the batches of the two.
  BatchSource training(const models::InputRules& rules) const;
  // Without batches when there is no validation text.
  BatchSource validation(const models::InputRules& rules) const;
  // The training data by source; rules of a model that predicts the next token.
  std::vector<DataFigures> figures() const;
  // Pairs of a query and a key that it sees in a sequence of training data, on average over some.
  double pairs_in_sequence() const;
  // Roles of conversations of data.validation that have a turn; none for a share of data.train.
  std::vector<data::Role> validation_roles() const;
  // The validation data with the turns of a role as labels.
  BatchSource validation_of(data::Role role, const models::InputRules& rules) const;
  // A training batch as the data has it.
  LabelledRows labelled_rows(int64_t step) const;
  // See tools/data/bigram.h; nothing for large vocabularies or without validation text.
  std::optional<double> bigram_entropy() const;

 private:
  bool has_bigrams() const;
  // Files that are read as one: data.train, one of data.sources, or data.validation.
  struct Part {
    std::vector<std::string> files;
    double weight = 1;
    data::TokenSource source = {};                               // of the cache
    std::unique_ptr<data::TokenCache> cache = nullptr;           // null: no text
    std::string cache_note = {};                                 // of open_token_cache
    std::optional<data::TokenFile> tokens = {};                  // none: no file of tokens
    std::shared_ptr<const data::Sequences> rows = nullptr;       // of documents that are packed
    std::shared_ptr<const data::Sequences> sequences = nullptr;  // without a share that is held out

    // For figures: rows, else sequences.
    const data::Sequences& counted() const { return rows ? *rows : *sequences; }
    std::string hash() const;  // of the tokens, wherever they lie; not of random ones
  };
  void open(comm::Communicator& world, Part& part, std::optional<data::RowSubset> subset) const;
  void check_files_and_formats() const;
  void name_parts();
  void open_texts(comm::Communicator& world);
  void make_sequences(int ranks);
  void hold_out(std::vector<std::shared_ptr<const data::Sequences>>& held_out);
  void make_loaders();
  data::Loader loader(std::shared_ptr<const data::Sequences> sequences, bool training) const;
  // Before any packing: a sequence for each document.
  std::shared_ptr<const data::Sequences> sequences(
      const data::TokenCache& cache, std::optional<data::Role> role = std::nullopt) const;
  std::shared_ptr<const data::Sequences> packed(std::shared_ptr<const data::Sequences> rows) const;
  void check_source(const Part& part) const;
  void check_long_rows(const Part& part) const;
  void check_padding_tokens(const models::InputRules& rules) const;
  std::shared_ptr<const data::Sequences> sequences_of_tokens(Part& part, int ranks) const;
  std::string training_key() const, validation_key() const;
  std::string training_name() const;
  bool is_mixed() const { return !config_.data.sources.empty(); }
  std::optional<data::RowSubset> validation_subset() const;
  void add_remarks_on_parts(std::vector<std::string>& out) const;
  void add_remarks_on_labels(std::vector<std::string>& out) const;
  std::vector<data::SkippedRow> left_out() const;  // files and rows
  void add_untrained(const std::string& name, data::Untrained found, int64_t of, bool looked_at);
  void add_remarks_on_turns(std::vector<std::string>& out) const;
  void add_remarks_on_doubled(std::vector<std::string>& out) const;
  void add_remarks_on_borders(std::vector<std::string>& out) const;

  config::TrainConfig config_;
  DataUse use_;
  int rank_, ranks_;
  std::string tokenizer_name_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  data::TextOptions text_;
  int32_t padding_ = 0;             // token that fills up rows
  std::vector<Part> train_;         // of data.train, each of data.sources; or random tokens
  std::optional<Part> validation_;  // none, or a share of train_
  mutable std::mutex mutex_;        // of the loaders, which may read one cache
  std::vector<std::shared_ptr<const data::Sequences>> validated_rows_;  // of packed documents
  std::optional<data::Loader> train_loader_;  // none with DataUse::kValidation
  std::optional<data::Loader> validation_loader_;
  std::vector<std::string> untrained_;  // remarks of check_trained()
};

// The first of the files without documents among these, and how many more there are; "": none.
std::string note_on_files(std::vector<data::SkippedRow> left_out);

// "data.train (a.txt and 2 more)"
std::string name_with_files(const std::string& key, const std::vector<std::string>& files);

// The tokens of `source`; one rank of every host makes the file in `folder` (empty: .cache/tokens)
// unless it is there. Where no folder is given and the usual one cannot be written, the tokens lie
// in a temporary file while they are used; `note` then says so on rank 0. Collective; throws
// AgreedError.
std::unique_ptr<data::TokenCache> open_token_cache(
    comm::Communicator& world, const std::string& folder, const data::TokenSource& source,
    const data::Tokenizer& tokenizer, const IoPatience& patience = {}, std::string* note = nullptr);
// A model's vocabulary may be larger than the tokenizer's, as published models are; more than
// rounding up explains is worth a note, which is returned (empty: none). It may be smaller, which
// is a note, too: only a text that has such a token is an error. With the built-in byte tokenizer,
// which a folder without a tokenizer gets, both are an error. `where` begins the message.
std::string check_vocabulary(const std::string& where, const std::string& tokenizer_name,
                             const data::Tokenizer& tokenizer, int64_t model_vocabulary);
// Whether a model of this vocabulary can be one of bytes: up to the next multiple of 1024.
bool fits_bytes(int64_t model_vocabulary);

// Which tokenizer the configuration means: its own, the model folder's, or bytes.
std::string tokenizer_name(const config::TrainConfig& config);
// Of the model, where no text is read: without a text to train on, a preset is as it was published.
int64_t vocabulary_of(const config::TrainConfig& config);

// The same for a run, whose tokenizer is known: of random tokens it says nothing.
int64_t vocabulary_with(const config::TrainConfig& config, const data::Tokenizer& tokenizer);

}  // namespace fsdp::tools
