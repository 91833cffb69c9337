// From the configuration to what a session needs: the model's shape and the session's options.
// Not here: reading the configuration (tools/config), the loop (tools/train/trainer.h).
#pragma once

#include <optional>
#include <string>

#include "tools/config/config.h"
#include "tools/train/session.h"

namespace fsdp::tools {

// `vocabulary`: of the tokenizer, for a model from scratch that does not name one. Whether text and
// model fit together is checked by TrainData.
models::ModelConfig model_config(const config::TrainConfig& config, int64_t vocabulary);
// Nothing without LoRA; of lora.path what its files say.
std::optional<models::LoraConfig> lora_config(const config::TrainConfig& config);
SessionOptions session_options(const config::TrainConfig& config, const models::ModelConfig& model,
                               int ranks, const BackendOptions& backend);

// What the model, the number of ranks or the size of the data makes of options, where that may
// surprise; a line each. `sequences`: of the training data, if it is known.
std::vector<std::string> remarks(const config::TrainConfig& config,
                                 const models::ModelConfig& model, int ranks,
                                 std::optional<int64_t> sequences = std::nullopt);

// AgreedError when ranks were started with different configurations: they would train different
// models or wait for each other for ever. What may differ: config::keys_of_each_rank(). Collective.
void check_same_config(comm::Communicator& world, const config::TrainConfig& config);

// What --model NAME stands for, as a text of --set: a folder's path, or else the name of a preset.
std::string model_override(const std::string& name);
// Which preset is meant, where the name is the hub's; "" where there is nothing to say.
std::string preset_note(const std::string& name);

// "llama, 4 layers, 1.2 M parameters"
std::string describe(const models::ModelConfig& model);
// "896 of 21,600 parameters are trained (4.1481 %)", or "" when all are.
std::string describe_trained(const std::vector<Parameter*>& parameters);

}  // namespace fsdp::tools
