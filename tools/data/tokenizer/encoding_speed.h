// How fast a tokenizer encodes a file, in the processor time of this process, and what other
// programs reached on the same text. Not here: measuring others (tools/bench/bench_tokenizers.sh).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace fsdp::tools {

struct EncodingSpeed {
  std::string_view way;  // "line by line", "whole file"
  size_t bytes = 0, tokens = 0;
  double first = 0, fastest = 0;  // MB/s (10^6 bytes): of the first pass, whose words are new
};
// Both ways, each with a tokenizer of its own, so that the first pass knows no words. Without the
// tokens that begin and end a text. `tokenizer`: as of make_tokenizer.
std::vector<EncodingSpeed> measure_encoding(const std::string& tokenizer,
                                            const std::filesystem::path& file);

// Rows of other programs' speeds, which others_like() reads; "": none. Error for anything else.
Json read_speeds(const std::string& file);

struct OtherSpeed {
  std::string library;
  double fastest = 0;  // MB/s, where it was measured
};
// Of the same text in the same way into as many tokens, whatever tokenizer and file are called.
std::vector<OtherSpeed> others_like(const EncodingSpeed& mine, const Json& others);

}  // namespace fsdp::tools
