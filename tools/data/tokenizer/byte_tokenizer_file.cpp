// Contract: tools/data/tokenizer/byte_tokenizer_file.h.
//
// [Note: the end in a text]
// The byte tokenizer never takes a text for its end-of-text token, not even "<|endoftext|>". So the
// token is an entry of the vocabulary, which a BPE without merges cannot make of a text, and not of
// added_tokens, which are looked for in texts. transformers adds it there by itself, as eos_token;
// split_special_tokens keeps it from looking.
#include "tools/data/tokenizer/byte_tokenizer_file.h"

#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnd = "<|endoftext|>";

Json vocabulary() {
  Json out = Json::object();
  for (size_t byte = 0; byte < byte_characters().size(); ++byte) {
    std::string character;
    append_utf8(character, byte_characters()[byte]);
    out[character] = byte;
  }
  out[kEnd] = ByteTokenizer().end_of_text();
  return out;
}

Json tokenizer_json() {
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary()},
            {"merges", Json::array()}}}};
}

}  // namespace

void write_byte_tokenizer(const fs::path& folder) {
  write_json_file(folder / "tokenizer.json", tokenizer_json());
  // model_input_names: without them transformers 4 gives token_type_ids, which Llama refuses.
  write_json_file(folder / "tokenizer_config.json",
                  {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"eos_token", kEnd},
                   {"model_input_names", Json::array({"input_ids", "attention_mask"})},
                   {"split_special_tokens", true},
                   {"clean_up_tokenization_spaces", false}});
}

bool is_byte_tokenizer(const fs::path& tokenizer_json_file) {
  constexpr uintmax_t kLargest = 1 << 16;  // bytes; the file has a sixth of them
  std::error_code unreadable;
  const uintmax_t size = fs::file_size(tokenizer_json_file, unreadable);
  if (unreadable || size > kLargest || tokenizer_json_file.extension() != ".json") return false;
  Json file;
  try {
    file = Json::parse(read_file(tokenizer_json_file));
  } catch (const std::exception&) {
    return false;  // who reads it as a tokenizer says what is wrong
  }
  const Json own = tokenizer_json();
  if (!file.is_object()) return false;
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "model"}) {
    const Json* part = file.find(key);
    if (!part || *part != own.at(key)) return false;
  }
  // transformers 5 writes a post-processor that puts nothing around a text.
  const std::string around = file.value("post_processor", Json()).dump();
  if (around.find("SpecialToken") != around.npos) return false;
  for (const Json& token : file.value("added_tokens", Json::array())) {
    if (token.value("content", "") != kEnd) return false;
  }
  return true;
}

}  // namespace fsdp::data
