// Text to token ids and back. A further tokenizer derives from Tokenizer and gets its line in
// make_tokenizer. Read next: tokenizer/hugging_face.h. Not here: documents (text_source.h), files
// of tokens (token_cache.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/data/tokenizer/span.h"

namespace fsdp::data {

// Whether the tokens that are no text (begin and end of a text, ...) are put around an encoded
// text, or kept in a decoded one.
enum class SpecialTokens : uint8_t { kOmit, kInclude };

// The tokens that a model's config.json names, too. Of each: what the tokenizer's files say.
struct NamedTokens {
  std::optional<int32_t> begin, end, padding;  // none: they say nothing; -1: that there is none
  bool end_is_said = true;                     // by a key; else the end is found by its usual names
};

// Each token with the bytes of the text that it stands for. Where the tokenizer changes nothing the
// spans are exact: the tokens of one character have different bytes. If a normalizer replaced
// several bytes, each resulting token has all these bytes. A token that stands for no byte (a begin
// token, a space that is put in front) has an empty span at its place. Bytes that the tokenizer
// drops belong to no token. The spans ascend, except for an unknown token that is written late.
struct EncodedText {
  std::vector<int32_t> ids;
  std::vector<Span> bytes;  // of each id
};
// The tokens that cover a byte of `part` of the text, or that begin in it: the number of the first
// token, and of the token behind the last. {0, 0} if no token does.
Span tokens_that_cover(std::span<const Span> bytes, Span part);
Span tokens_that_begin_in(std::span<const Span> bytes, Span part);

// One thread at a time.
class Tokenizer {
 public:
  using UseIds = std::function<void(std::span<const int32_t> ids)>;

  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;         // the largest id and 1
  virtual int32_t end_of_text() const = 0;        // closes a document; -1: this tokenizer has none
  virtual int32_t padding() const { return -1; }  // fills up rows; -1: it names none
  virtual NamedTokens named() const { return {}; }
  // Changes whenever the same text may get other ids; part of a token cache's identity.
  virtual uint64_t identity() const = 0;
  // Hands on the ids of a text in stretches, so that a long text needs no memory for all of them. A
  // text that cannot be cut is one stretch; meanwhile empty ones tell that it goes on.
  virtual void encode_to(std::string_view text, SpecialTokens special, const UseIds& use) const = 0;
  std::vector<int32_t> encode(std::string_view text,
                              SpecialTokens special = SpecialTokens::kInclude) const;
  // No special token has bytes of the text on both sides of a place of `apart`: its text is text.
  virtual EncodedText encode_with_bytes(std::string_view text,
                                        SpecialTokens special = SpecialTokens::kInclude,
                                        std::span<const size_t> apart = {}) const = 0;
  // The bytes of each special token that the text has.
  virtual std::vector<Span> special_in(std::string_view) const { return {}; }
  // Bytes; UTF-8 only if the tokens end where a character does. Error for ids outside the
  // vocabulary.
  virtual std::string decode(std::span<const int32_t> tokens,
                             SpecialTokens special = SpecialTokens::kOmit) const = 0;
  virtual bool has(int32_t id) const { return id >= 0 && id < vocab_size(); }
  // Whether this token, where it stands in a text, cuts the text: the tokens before it depend on
  // nothing behind it.
  virtual bool cuts(int32_t) const { return false; }
  // "NAME: ..." where the tokenizer's files can be read in several ways; "": they cannot.
  virtual std::string note() const { return ""; }
  // Whether more tokens may change the end of a decoded text.
  virtual bool may_change_end(std::string_view) const { return false; }
};

// For a note: "NAME: it has no token 7, 8: left out of the text", of ids that this tokenizer
// does not have and decode() passes over; "": there are none.
std::string note_on_unknown_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// Every byte is a token, end-of-text is number 256.
class ByteTokenizer : public Tokenizer {
 public:
  std::string_view name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_text() const override { return 256; }
  NamedTokens named() const override { return {.end = end_of_text()}; }
  bool cuts(int32_t) const override { return true; }
  uint64_t identity() const override;
  void encode_to(std::string_view text, SpecialTokens special, const UseIds& use) const override;
  EncodedText encode_with_bytes(std::string_view text,
                                SpecialTokens special = SpecialTokens::kInclude,
                                std::span<const size_t> apart = {}) const override;
  std::string decode(std::span<const int32_t> tokens,
                     SpecialTokens special = SpecialTokens::kOmit) const override;
};

// "bytes", or the path of a tokenizer.json, of a vocab.json beside merges.txt, or of a folder with
// one. A file that the byte tokenizer was written to is that tokenizer again.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);
// The name to use where none is given: the model folder's file if it has a tokenizer, also one that
// is not read, "bytes" otherwise, and where that file is the byte tokenizer's.
// `model_folder` may be "".
std::string default_tokenizer(const std::string& model_folder);
// Copies what make_tokenizer(name) reads to a model folder, and the files beside it that other
// programs read; "bytes" is written as a tokenizer.json. The copy names the class of the tokenizer,
// and the token that ends a text.
void copy_tokenizer_files(const std::string& name, const Tokenizer& tokenizer,
                          const std::filesystem::path& model_folder);
// The tokenizer's files that a model folder has, also files that this program does not read.
void copy_tokenizer_folder(const std::filesystem::path& from, const std::filesystem::path& to);
// Of these files, those with chat templates. Returns whether there are any.
bool copy_chat_templates(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fsdp::data
