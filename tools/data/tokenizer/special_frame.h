// What a tokenizer.json's post-processor puts before and after the ids of a text
// (TemplateProcessing for a single text; ByteLevel adds nothing).
#pragma once

#include <cstdint>
#include <vector>

namespace fsdp::data {

class JsonNode;

struct SpecialFrame {
  std::vector<int32_t> before, after;
};

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size);

}  // namespace fsdp::data
