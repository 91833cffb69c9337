// Text to token ids and back. A further tokenizer derives from Tokenizer and gets its line in
// make_tokenizer. Not here: documents (text_source.h), files of tokens (token_cache.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int32_t end_of_text() const = 0;  // closes a document
  // Changes whenever the same text may get other ids; part of a token cache's identity.
  virtual uint64_t identity() const = 0;
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Bytes; UTF-8 only if the tokens end where a character does. end_of_text gives nothing; Error
  // for ids outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens) const = 0;
};

// Every byte is a token, end-of-text is number 256.
class ByteTokenizer : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  uint64_t identity() const override;
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> tokens) const override;
};

// By the configuration's data.tokenizer.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace fsdp::data
