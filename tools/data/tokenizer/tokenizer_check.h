// Compares tokenizers with what another implementation made of the same texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fsdp::data {
class Tokenizer;
}

namespace fsdp::tools {

struct TokenizerCheck {
  int64_t cases = 0;
  std::vector<std::string> differences;  // a line each
};

// A list of {text, ids_without_special, ids_with_special, decoded, decoded_skip_special}, or of
// {ids, decoded, decoded_skip_special}; or an object of lists `normalizers` {config, text, output},
// `pre_tokenizers` {config, text, pieces [[string, ...]]}, `decoders` {config, tokens, output},
// which needs no tokenizer. Error for anything else.
TokenizerCheck check_tokenizer(const data::Tokenizer* tokenizer,
                               const std::filesystem::path& vectors);

}  // namespace fsdp::tools
