// The byte tokenizer. Contract: tools/data/tokenizer.h.
#include "tools/data/tokenizer.h"

#include "core/error.h"
#include "core/rng.h"

namespace fsdp::data {

uint64_t ByteTokenizer::identity() const { return hash_name("bytes, end of text 256"); }

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> out(text.size());
  for (size_t i = 0; i < text.size(); ++i) out[i] = static_cast<uint8_t>(text[i]);
  return out;
}

std::string ByteTokenizer::decode(std::span<const int32_t> tokens) const {
  std::string out;
  for (const int32_t token : tokens) {
    FSDP_CHECK(token >= 0 && token < vocab_size(), "[decode] token: expected 0 to {}, got {}",
               vocab_size() - 1, token);
    if (token != end_of_text()) out += static_cast<char>(token);
  }
  return out;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  fail("data.tokenizer: expected bytes, got \"{}\"", name);
}

}  // namespace fsdp::data
