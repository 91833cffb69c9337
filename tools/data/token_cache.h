// A data set as one file of tokens. The file is made once and mapped by every rank.
// The protocol on each host: the first rank of the host calls make_token_cache, all ranks meet at a
// barrier, then each makes its TokenCache. The file appears by a rename, so after any crash it is
// either whole or absent. Read next: packing.h (sequences of tokens), loader.h. Not here: which
// rank is the first of its host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tools/data/row_encoder.h"
#include "tools/data/row_subset.h"
#include "tools/data/text_source.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

// What the tokens are made from: the documents of all files in order, or the rows of the subset in
// its order; end-of-text after each. How they become sequences is not here: cutting, padding and
// labels take no new tokens.
struct TokenSource {
  std::vector<std::filesystem::path> files;
  TextOptions text{};
  bool document_separator = true;
  std::optional<RowSubset> subset{};
  RowForm form = RowForm::kStream;
  std::vector<int32_t> end_tokens{};  // of the model, which end a turn; of kTurns
};

// The same path for the same file names, options and tokenizer. make_token_cache compares contents.
std::filesystem::path token_cache_path(const std::filesystem::path& folder,
                                       const TokenSource& source, const Tokenizer& tokenizer);

// "file:line" of a row of such a cache, counted from 0. Reads the files.
std::string place_of_row(const TokenSource& source, int64_t row);

struct CacheResult {
  bool built = false;  // false: the file was there and up to date
  std::string reason;  // why it was built
  int64_t tokens = 0;
};

// The folder of a cache cannot be made, or cannot be written.
class CacheFolderError : public SystemError {
 public:
  using SystemError::SystemError;
};

// Makes the cache if it is absent, cut short, stale, or has a damaged footer. A cache is stale when
// the text files have other sizes or contents, or when the tokenizer or the options are others.
// Creates the folder; removes what a process that is gone has left of the file. Does not read the
// tokens of a cache that exists: see TokenCache::check. `source.text.progress` is told of what is
// done. Error that names the text file when it changes while its tokens are made; CacheFolderError.
CacheResult make_token_cache(const std::filesystem::path& cache, const TokenSource& source,
                             const Tokenizer& tokenizer);

// For one thread at a time.
class TokenCache {
 public:
  // Error when the file is absent, made by another tokenizer, or damaged outside its tokens.
  // `progress` is told of the tokens that are checked; null: nobody waits.
  TokenCache(const std::filesystem::path& cache, const Tokenizer& tokenizer,
             comm::WorkProgress* progress = nullptr);

  // Call it before tokens [first, first + count) are used. The first check of a block compares the
  // block with its checksum. Error that names the file when a block is damaged or holds a token
  // that the tokenizer does not have.
  void check(size_t first, size_t count) const;
  std::span<const int32_t> tokens() const;  // all of them, checked
  std::span<const int32_t> unchecked() const { return tokens_; }
  // Of each row; none with RowForm::kStream.
  std::span<const ExampleSpan> examples() const { return examples_; }
  std::span<const RowTurn> turns() const { return turns_; }  // of all rows, of kTurns
  // The checksum of the checksums of all blocks, and of the rows: two caches with the same one hold
  // the same tokens.
  uint64_t checksum_of_tokens() const { return checksum_; }
  int64_t vocab_size() const { return vocab_size_; }
  // Rows that TextOptions::bad_rows left out when the cache was made, and files without documents.
  std::vector<SkippedRow> skipped_rows() const { return parse_skipped_rows(skipped_); }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void check_block(size_t block) const;
  void check_rows() const;

  MappedFile file_;
  comm::WorkProgress* progress_;
  std::span<const int32_t> tokens_;        // of file_
  std::span<const ExampleSpan> examples_;  // of file_
  std::span<const RowTurn> turns_;         // of file_
  std::string_view skipped_;               // of file_
  int64_t vocab_size_ = 0;
  uint64_t checksum_ = 0;              // of tokens
  mutable std::vector<bool> checked_;  // by block
  mutable size_t read_bytes_ = 0;      // since pages were forgotten
};

}  // namespace fsdp::data
