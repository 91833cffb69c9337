// What a tokenizer.json's post-processor puts before and after the ids of a text
// (TemplateProcessing for a single text; ByteLevel adds nothing).
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace fsdp::data {

class JsonNode;

struct SpecialFrame {
  std::vector<int32_t> before, after;
};

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size);

// Some classes of transformers build the post-processor anew from add_bos_token and add_eos_token
// of the tokenizer_config.json in `folder` (empty: none), Llama's above all. Error where these
// contradict `frame`, for the ids would be others there.
void check_special_frame(const std::filesystem::path& folder, const SpecialFrame& frame);

}  // namespace fsdp::data
