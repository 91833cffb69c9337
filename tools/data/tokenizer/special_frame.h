// What is put before and after the ids of a text: by the post-processor of a tokenizer.json
// (TemplateProcessing for a single text; ByteLevel adds nothing). Not here: classes of transformers
// that do it in its place (class_rules.h).
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
