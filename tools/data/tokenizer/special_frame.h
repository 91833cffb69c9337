// What is put before and after the ids of a text: by the post-processor of a tokenizer.json
// (TemplateProcessing for a single text; ByteLevel adds nothing), or by a class of transformers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace fsdp::data {

class JsonNode;

struct SpecialFrame {
  std::vector<int32_t> before, after;
};

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size);

// Some classes of transformers, Llama's above all, do not use the post-processor: they put their
// begin and end token by add_bos_token and add_eos_token of the tokenizer_config.json in `folder`
// (empty: none). The frame of such a class where that file names one, `of_file` otherwise.
// `id_of`: of a token by its content, -1 for none.
SpecialFrame frame_by_class(const std::filesystem::path& folder, const SpecialFrame& of_file,
                            const std::function<int32_t(std::string_view)>& id_of);

}  // namespace fsdp::data
