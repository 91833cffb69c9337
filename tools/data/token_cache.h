// A data set as one file of tokens, mapped by every rank and made once.
// The protocol on each host: its first rank calls make_token_cache, all ranks meet at a barrier,
// all call TokenCache::open. The file appears by a rename, so it is whole or absent, whatever
// crashes. Read next: packing.h (sequences of it), loader.h. Not here: which rank is the first of
// its host.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tools/data/text_source.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

// What the tokens are made from: the documents of all files in order, end-of-text after each.
struct TokenSource {
  std::vector<std::filesystem::path> files;
  TextOptions text{};
  bool document_separator = true;
};

// Equal for equal file names, options and tokenizer; the contents are compared by make_token_cache.
std::filesystem::path token_cache_path(const std::filesystem::path& folder,
                                       const TokenSource& source, const Tokenizer& tokenizer);

struct CacheResult {
  bool built = false;  // false: an up-to-date one was there
  std::string reason;  // why it was built
  int64_t tokens = 0;
};

// Makes the cache if it is absent or stale: made of files with other sizes or contents, by another
// tokenizer or with other options; also if it is cut short or its footer is damaged. Creates the
// folder. The tokens themselves are not read here: see TokenCache.
CacheResult make_token_cache(const std::filesystem::path& cache, const TokenSource& source,
                             const Tokenizer& tokenizer);

// One thread at a time.
class TokenCache {
 public:
  // Error when the file is absent, made by another tokenizer, or damaged outside its tokens.
  TokenCache(const std::filesystem::path& cache, const Tokenizer& tokenizer);

  // Call it before tokens are used: the first use of a block compares it with its checksum. Error
  // that names the file when one of the blocks of [first, first + count) is damaged or holds a
  // token that the tokenizer does not have.
  void check(size_t first, size_t count) const;
  std::span<const int32_t> tokens() const;  // all of them, checked
  std::span<const int32_t> unchecked() const { return tokens_; }
  int64_t vocab_size() const { return vocab_size_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void check_block(size_t block) const;

  MappedFile file_;
  std::span<const int32_t> tokens_;  // of file_
  int64_t vocab_size_ = 0;
  mutable std::vector<bool> checked_;  // by block
};

}  // namespace fsdp::data
