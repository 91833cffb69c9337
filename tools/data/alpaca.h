// The texts of Stanford Alpaca's data set: an instruction, an input that may be missing, and the
// answer, in the two prompts that its models are asked with. Not here: how the rows are read
// (text_source.h), end-of-text after each text (token_cache.h).
#pragma once

#include <string>

namespace fsdp::data {

std::string alpaca_text(const std::string& instruction, const std::string& input,
                        const std::string& output);

}  // namespace fsdp::data
