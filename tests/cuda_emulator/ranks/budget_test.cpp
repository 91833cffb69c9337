// What a training step asks of a GPU's driver, by operation: kernels and library calls,
// allocations, events, waits. To the last one, so that a change that adds some is seen, and looked
// at: each costs the host about 2 to 10 us, and a wait stops it. The tables below are what the
// program does, not a goal; a change that lowers a number lowers it here.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/sharded_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::test {
namespace {

Batch batch_of(int rank) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, rank};
  return make_batch({.length = 8, .tokens = tokens, .labels = tokens}, {}, 10);
}

std::string between(const emulator::Counts& before, emulator::Counts after) {
  std::string out;
  for (const auto& [operation, count] : before.launches) after.launches[operation] -= count;
  for (const auto& [operation, count] : after.launches) {
    if (count > 0) out += fmt::format("{} {}, ", operation, count);
  }
  return out + fmt::format("allocations {}, events {}, stream waits {}, host waits {}",
                           after.allocations - before.allocations, after.events - before.events,
                           after.stream_waits - before.stream_waits,
                           after.host_waits - before.host_waits);
}

// Of rank 0: the third step. The first makes what stays.
std::string step_of(const models::ModelConfig& model, int ranks) {
  std::string out;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    tools::PlacedOptions options;
    options.model = model;
    options.max_length = 8;
    options.fsdp = {.param_dtype = DType::kBF16};
    options.backend = {.cuda = cuda::CudaOptions{.attention = cuda::AttentionChoice::kOwn},
                       .nccl = comm::NcclOptions{}};
    Session session = tools::place_session(world, options);
    session.initialise(models::from_scratch(3));
    for (uint32_t step = 0; step < 3; ++step) {
      const emulator::Counts before = emulator::counts();
      const auto handle = session.train_step(batch_of(world.rank()), 1e-2, step);
      const emulator::Counts after = emulator::counts();
      handle.read();
      if (world.rank() == 0 && step == 2) out = between(before, after);
    }
  });
  return out;
}

models::ModelConfig without_dropout(models::ModelConfig model) {
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0;
  return model;
}

TEST_CASE("a step of GPT-2 on one GPU keeps its budget") {
  CHECK(step_of(without_dropout(small_gpt2()), 1) ==
        "activation_backward 6, activation_forward 3, adamw 8, add 4, advance_steps 4, "
        "attention_backward 9, attention_forward 3, cast 1, clip_coefficient 1, cross_entropy 3, "
        "divide 1, embedding_backward 3, embedding_forward 2, layer_norm_backward 14, "
        "layer_norm_forward 7, matmul 42, position_backward 1, power_sum 8, sum_rows 18, "
        "allocations 150, events 27, stream waits 12, host waits 0");
}

TEST_CASE("a step of Llama on one GPU keeps its budget, and on two over NCCL") {
  const std::string same =
      "clip_coefficient 1, cross_entropy 3, divide 1, embedding_backward 3, embedding_forward 2, "
      "glu_backward 3, glu_forward 3, matmul 48, power_sum 8, rms_norm_backward 14, "
      "rms_norm_forward 7, rope 12, allocations 146, ";
  const std::string before =
      "adamw 8, add 7, advance_steps 4, attention_backward 9, attention_forward 3, ";
  CHECK(step_of(without_dropout(small_llama()), 1) ==
        before + "cast 1, " + same + "events 27, stream waits 12, host waits 0");
  CHECK(step_of(without_dropout(small_llama()), 2) ==
        before + "cast 8, " + same + "events 73, stream waits 33, host waits 0");
}

}  // namespace
}  // namespace fsdp::test
