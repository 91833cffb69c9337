// Decoders of a tokenizer.json: the contents of tokens to text.
// A further one: a case in decoder.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace fsdp::data {

class JsonNode;

class Decoder {
 public:
  Decoder() = default;  // tokens with spaces between them
  explicit Decoder(const JsonNode& node);

  std::string decode(std::vector<std::string> tokens) const;

 private:
  using Step = std::function<void(std::vector<std::string>& tokens)>;
  void add(const JsonNode& node);

  std::vector<Step> steps_;
  bool given_ = false;
};

// clean_up_tokenization_spaces of transformers (class_rules.h): " ." to ".", " n't" to "n't", ...
std::string clean_up_spaces(std::string text);
// Whether more text behind it may change the end of a text that was cleaned up.
bool may_be_cleaned_up(std::string_view text);

}  // namespace fsdp::data
