// From the configuration to the options of a session.
// Not here: reading the configuration (tools/config), the model's sizes (model_shape.h), the loop
// (trainer.h).
#pragma once

#include <optional>
#include <string>

#include "tools/config/config.h"
#include "tools/train/model_shape.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

// nullopt without LoRA. With lora.path, what the files of that adapter say.
std::optional<models::LoraConfig> lora_config(const config::TrainConfig& config);
PlacedOptions session_options(const config::TrainConfig& config, const models::ModelConfig& model,
                              int ranks, const BackendOptions& backend);

// A line for each option that has another effect than one might expect, because of the model, the
// number of ranks or the size of the data. `sequences`: of the training data, if it is known.
std::vector<std::string> remarks(const config::TrainConfig& config,
                                 const models::ModelConfig& model, int ranks,
                                 std::optional<int64_t> sequences = std::nullopt);

// AgreedError when ranks were started with different configurations: they would train different
// models or wait for each other for ever. What may differ: config::keys_of_each_rank(). Collective.
void check_same_config(comm::Communicator& world, const config::TrainConfig& config);

}  // namespace fsdp::tools
