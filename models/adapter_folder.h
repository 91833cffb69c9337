// A LoRA adapter in the layout of Hugging Face's PEFT: adapter_config.json (which layers, rank,
// scale, the model it belongs to) and adapter_model.safetensors (A and B of every layer, named like
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"). Next: lora.h (what they mean),
// weights.h (where other values come from). Not here: who writes the tensors (tools/model_folders).
#pragma once

#include <filesystem>
#include <string>

#include "models/lora.h"
#include "models/weights.h"

namespace fsdp::models {

constexpr const char* kAdapterConfigFile = "adapter_config.json";
constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";

bool is_adapter_folder(const std::filesystem::path& folder);

// Error names the file and the key for anything that is wrong or that this program does not do:
// other kinds of adapter, DoRA, trained biases, ... Settings that it does not know
// are refused unless they are off.
LoraConfig read_adapter_config(const std::filesystem::path& folder);
// The same from the file's text; `path` names it in errors.
LoraConfig parse_adapter_config(const std::string& json, const std::string& path);
std::string adapter_config_json(const ModelConfig& model, const LoraConfig& lora);
// Folder of the model that it belongs to; a relative one is looked for beside the adapter's files,
// then in the current folder.
std::string adapter_base(const std::filesystem::path& folder);

// The name of A or B in the file.
std::string adapter_name(const ModelConfig& model, const Parameter& parameter);

// Both check all names and shapes of the file at once and list every missing, misshapen or
// unexpected tensor in one Error.
// Values of a model that has low-rank terms: theirs from `folder`, all others from `base`.
FillFunction with_adapter(const FillFunction& base, const std::filesystem::path& folder,
                          CausalLM& model);
// Values of a model without low-rank terms: W + scale B A where the adapter has a layer, formed in
// double and rounded once; all others from `base`.
FillFunction merged_with_adapter(const FillFunction& base, const std::filesystem::path& folder,
                                 CausalLM& model);

}  // namespace fsdp::models
