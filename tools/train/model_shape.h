// The model of a configuration: its sizes, from a preset, a folder or keys; its name on the command
// line; how it is described. Next: config_to_session.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/module.h"
#include "models/config.h"
#include "tools/config/config.h"

namespace fsdp::tools {

// `vocabulary`: of the tokenizer, for a model from scratch that does not name one. Whether text and
// model fit together is checked by TrainData.
models::ModelConfig model_config(const config::TrainConfig& config, int64_t vocabulary);

// What --model NAME stands for, as a text of --set: a folder's path, or else the name of a preset.
std::string model_override(const std::string& name);
// Which preset is meant, where the name is the hub's; "" where there is nothing to say.
std::string preset_note(const std::string& name);

// "llama, 4 layers, 1.2 M parameters"
std::string describe(const models::ModelConfig& model);
// "896 of 21,600 parameters are trained (4.1481 %)", or "" when all are.
std::string describe_trained(const std::vector<Parameter*>& parameters);

}  // namespace fsdp::tools
