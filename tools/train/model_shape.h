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
// A name with a slash is a folder, also where none is there. A hub's name without one is taken
// where sizes may be all that is asked for: a run refuses it.
enum class HubNames : uint8_t { kTaken, kRefused };
std::string model_override(const std::string& name, HubNames hub = HubNames::kTaken);
// Of a configuration for later: that its model's folder is not here, and how to fetch it; "".
std::string note_on_absent_model(const config::TrainConfig& config);
// For commands that need sizes and no weights: a hub's name whose folder is not there becomes its
// preset, and a preset has its own vocabulary where nothing else says one. Returns notes on both.
std::vector<std::string> take_published_sizes(config::TrainConfig& config);

// "llama, 4 layers, 1.2 M parameters"
std::string describe(const models::ModelConfig& model);
// "896 of 21,600 parameters are trained (4.1481 %)", or "" when all are.
std::string describe_trained(const std::vector<Parameter*>& parameters);

}  // namespace fsdp::tools
