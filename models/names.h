// Names of parameters in Hugging Face files.
#pragma once

#include <string>
#include <string_view>

#include "models/config.h"

namespace fsdp::models {

// "blocks.3.attention.qkv.weight" -> "transformer.h.3.attn.c_attn.weight".
std::string hugging_face_name(const ModelConfig& config, std::string_view parameter);
// The part of those names that files may lack: "transformer.", "model.".
std::string_view base_prefix(const ModelConfig& config);
// Tensors that files may hold although they are no parameters (masks, rotary tables).
bool is_ignorable(const ModelConfig& config, std::string_view file_name);

}  // namespace fsdp::models
