// The tokenizer of a tokenizer.json, as Hugging Face's tokenizers library reads it (0.22):
//   raw text - added tokens - normalizer - added tokens - pre-tokenizer - BPE - special tokens
// Each stage is one file of this folder; a component that is not known is an error that names it.
// The files beside it may change it as transformers changes it: class_rules.h.
// The file's truncation and padding are left aside. Not here: pairs of texts.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

struct ClassRules;

class HuggingFaceTokenizer : public Tokenizer {
 public:
  static constexpr size_t kStretch = 1 << 20;

  // `stretch`: about how many bytes of a text are encoded at a time; see hugging_face.cpp.
  explicit HuggingFaceTokenizer(const std::filesystem::path& file, size_t stretch = kStretch);
  // From the text of the file alone. `name`: the name of the file, for errors.
  HuggingFaceTokenizer(std::string_view json, std::string name, size_t stretch = kStretch);
  // `folder`: of the files that change it and say which token closes a document; "": none.
  HuggingFaceTokenizer(std::string_view json, std::string name, const std::filesystem::path& folder,
                       size_t stretch = kStretch);
  ~HuggingFaceTokenizer() override;

  std::string_view name() const override { return name_; }  // the file
  int64_t vocab_size() const override;
  int32_t end_of_text() const override { return end_of_text_; }
  int32_t padding() const override { return padding_; }
  NamedTokens named() const override { return named_; }
  uint64_t identity() const override { return identity_; }
  // Error for text that is not UTF-8.
  void encode_to(std::string_view text, SpecialTokens special, const UseIds& use) const override;
  EncodedText encode_with_bytes(std::string_view text,
                                SpecialTokens special = SpecialTokens::kInclude,
                                std::span<const size_t> apart = {}) const override;
  std::vector<Span> special_in(std::string_view text) const override;
  // Ids without a token give nothing, whatever they are: see note_on_unknown_ids().
  std::string decode(std::span<const int32_t> tokens,
                     SpecialTokens special = SpecialTokens::kOmit) const override;

  bool has(int32_t id) const override { return content_of(id) != nullptr; }
  bool cuts(int32_t id) const override;
  std::string note() const override;
  bool may_change_end(std::string_view text) const override;

  const std::string* content_of(int32_t id) const;  // null: no such token
  bool encodes_in_stretches() const;

 private:
  struct Stages;

  size_t end_of_stretch(std::string_view text, size_t begin) const;
  // The spans that encode_with_bytes returns, and its places.
  struct Bytes {
    std::vector<Span> of_ids;
    std::span<const size_t> apart;
  };
  // `bytes`: null: nobody asks.
  void encode_all(std::string_view text, SpecialTokens special, Bytes* bytes,
                  const UseIds& use) const;
  void encode_stretch(std::string_view text, size_t begin, std::vector<int32_t>& ids, Bytes* bytes,
                      const UseIds& use) const;

  void find_named_tokens(const std::filesystem::path& folder, const ClassRules& rules);

  std::string name_;
  std::vector<std::string> notes_;
  size_t stretch_;
  uint64_t identity_ = 0;
  int32_t end_of_text_ = -1, padding_ = -1;
  NamedTokens named_;
  std::unique_ptr<const Stages> stages_;
};

}  // namespace fsdp::data
