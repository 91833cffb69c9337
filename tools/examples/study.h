// What accumulation.cpp and gradient_norm.cpp have in common, which show a mistake beside what is
// right: a small model, and rows of which only the answers are trained, short and long ones. Not
// here: what is wrong and why (tools/recipes/study/README.md).
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "tools/engine/session.h"

namespace fsdp::study {

inline constexpr int64_t kRows = 8;  // of a batch of all ranks

// Without clipping.
SessionOptions small_llama(optim::OptimizerKind optimizer);

// On the CPU; the first values are the same on any number of ranks.
std::unique_ptr<Session> make_session(comm::Communicator& world, const SessionOptions& options);

// This rank's rows of the batch of all ranks. Answers have 1 to 20 tokens.
Batch batch_of(const comm::Communicator& world, const models::ModelConfig& model, uint32_t step);

}  // namespace fsdp::study
