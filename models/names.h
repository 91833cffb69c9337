// Names of parameters in Hugging Face files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/autograd.h"
#include "models/config.h"

namespace fsdp {
class SafetensorsFolder;
}

namespace fsdp::models {

// "blocks.3.attention.qkv.weight" -> "transformer.h.3.attn.c_attn.weight".
std::string hugging_face_name(const ModelConfig& config, std::string_view parameter);
// The part of a Hugging Face name that files may lack: "transformer.", "model.".
std::string_view base_prefix(const ModelConfig& config);
// Tensors that files may hold although they are no parameters (masks, rotary tables).
bool is_ignorable(const ModelConfig& config, std::string_view file_name);

// A copy of the tied head is compared with the table, a part of it by each of the ranks that agree
// on the result: none reads more than its share. By default all of it.
struct ComparedPart {
  int64_t index = 0;
  int64_t parts = 1;
};

// The tensor of the folder that holds each parameter, by our name: names may lack the base prefix.
// Every missing, misshapen, unreadable or unexpected tensor, and a tied head whose values are not
// the table's, is in one Error; masks, rotary tables and a copy of the tied head are passed over.
// Names are read without the parts in `stripped`, which stand at their beginning or behind a dot.
// Where wrappers of modules, or PEFT, have changed all names, the Error is one line that says so.
std::map<std::string, std::string> names_in_folder(const SafetensorsFolder& folder,
                                                   const ModelConfig& config,
                                                   const std::vector<Parameter*>& parameters,
                                                   ComparedPart compared = {},
                                                   const std::vector<std::string>& stripped = {});

}  // namespace fsdp::models
