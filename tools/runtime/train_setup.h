// From the configuration to what a session needs: the model's shape and the session's options.
// Not here: reading the configuration (tools/config), the loop (tools/runtime/trainer.h).
#pragma once

#include <string>

#include "tools/config/config.h"
#include "tools/runtime/session.h"

namespace fsdp::tools {

// `tokenizer` and its number of tokens decide the vocabulary of a model from scratch and must be the
// vocabulary of a model from a folder.
models::ModelConfig model_config(const config::TrainConfig& config, const std::string& tokenizer,
                                 int64_t tokens);
SessionOptions session_options(const config::TrainConfig& config,
                               const models::ModelConfig& model, int threads);

// "llama, 4 layers, 1.2 M parameters"
std::string describe(const models::ModelConfig& model);
std::string_view name_of(config::Strategy strategy);  // as in the configuration

}  // namespace fsdp::tools
