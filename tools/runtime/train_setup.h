// From the configuration to what a session needs: the model's shape and the session's options.
// Not here: reading the configuration (tools/config), the loop (tools/runtime/trainer.h).
#pragma once

#include <string>

#include "tools/config/config.h"
#include "tools/runtime/session.h"

namespace fsdp::tools {

// `vocabulary`: of the tokenizer, for a model from scratch that does not name one. Whether text and
// model fit together is checked by TrainData.
models::ModelConfig model_config(const config::TrainConfig& config, int64_t vocabulary);
SessionOptions session_options(const config::TrainConfig& config, const models::ModelConfig& model,
                               int ranks, int threads);

// "llama, 4 layers, 1.2 M parameters"
std::string describe(const models::ModelConfig& model);
std::string name_of(comm::Strategy strategy);  // as in the configuration

}  // namespace fsdp::tools
