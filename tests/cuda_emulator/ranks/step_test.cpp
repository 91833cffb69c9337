// Whole training steps on ranks with a GPU each, against the same steps on the CPU backend: results
// up to rounding, and memory to the byte. Against PyTorch: tests/cuda_emulator/verify.sh.
#include <doctest/doctest.h>

#include "kernels/cuda/cuda_backend.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/support/sharded_run.h"

namespace fsdp::test {
namespace {

// Two passes a step, each with two rows of eight tokens: seconds on the emulator.
RunSpec spec_of(const models::ModelConfig& model, DType dtype, comm::Strategy strategy) {
  RunSpec spec;
  spec.subject = causal_lm(model);
  spec.steps = 2;
  spec.rows = 8;
  spec.training = true;
  spec.fsdp.strategy = strategy;
  spec.fsdp.param_dtype = dtype;
  spec.fsdp.micro_steps = 2;
  return spec;
}

RunSpec on_gpus(RunSpec spec, const cuda::CudaOptions& options = {}) {
  spec.backend = [options](int) { return std::make_unique<cuda::CudaBackend>(options); };
  return spec;
}

// What rank 0 holds: of its construction, and of two steps.
std::vector<MemoryUsage> memory_of(const RunSpec& spec) {
  std::vector<MemoryUsage> usages;
  comm::run_local_ranks(spec.ranks, [&](comm::Communicator& world) {
    RankRun run(world, spec);
    std::vector<MemoryUsage> mine = {run.backend().ledger().usage()};
    for (int step = 0; step < spec.steps; ++step) {
      run.backend().ledger().reset_peak();
      run.step(step);
      mine.push_back(run.backend().ledger().usage());
    }
    run.wait();
    if (world.rank() == 0) usages = mine;
  });
  return usages;
}

TEST_CASE("steps on GPUs are those of the CPU backend") {
  for (const models::ModelConfig& model : {small_gpt2(), small_llama()}) {
    CAPTURE(model.family);
    const RunSpec spec = spec_of(model, DType::kF32, comm::Strategy::kFullShard);
    const RunResult cpu = train(spec), gpu = train(on_gpus(spec));
    CHECK(loss_difference(gpu, cpu) < 1e-6);
    CHECK(norm_difference(gpu, cpu) < 1e-5);
    CHECK(largest_difference(gpu.parameters, cpu.parameters) < 1e-4);
  }
}

// By name, so that an attention that cuDNN did not do would be an error.
TEST_CASE("steps with cuDNN's attention are those of the CPU backend, up to bf16") {
  models::ModelConfig gpt2 = small_gpt2(), llama = small_llama();
  gpt2.hidden = 8 * gpt2.heads;
  llama.hidden = 8 * llama.heads;
  for (models::ModelConfig& model : {std::ref(gpt2), std::ref(llama)}) {
    CAPTURE(model.family);
    model.head_dim = 8;
    model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0;
    const RunSpec spec = spec_of(model, DType::kBF16, comm::Strategy::kFullShard);
    const RunResult cpu = train(spec);
    for (const bool deterministic : {true, false}) {
      const RunResult gpu = train(on_gpus(spec, {.attention = cuda::AttentionChoice::kCudnn,
                                                 .attention_deterministic = deterministic}));
      CHECK(loss_difference(gpu, cpu) < 1e-3);
      CHECK(norm_difference(gpu, cpu) < 1e-2);
    }
  }
}

TEST_CASE("a GPU holds the bytes that the CPU backend holds, but for workspace and staging") {
  using enum MemoryCategory;
  for (const models::ModelConfig& model : {small_gpt2(), small_llama()}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const comm::Strategy strategy :
           {comm::Strategy::kFullShard, comm::Strategy::kShardGradOp}) {
        const RunSpec spec = spec_of(model, dtype, strategy);
        const std::vector<MemoryUsage> cpu = memory_of(spec), gpu = memory_of(on_gpus(spec));
        REQUIRE(cpu.size() == gpu.size());
        for (size_t moment = 0; moment < cpu.size(); ++moment) {
          for (size_t i = 0; i < kMemoryCategories; ++i) {
            const auto category = static_cast<MemoryCategory>(i);
            if (category == kWorkspace || category == kTransportStaging) continue;
            CAPTURE(model.family);
            CAPTURE(name_of(dtype));
            CAPTURE(choice_name(strategy));
            CAPTURE(moment);
            CAPTURE(name_of(category));
            CHECK(gpu[moment].peak[i] == cpu[moment].peak[i]);
            CHECK(gpu[moment].current[i] == cpu[moment].current[i]);
          }
        }
        CHECK(cpu.back().peak[static_cast<size_t>(kActivation)] > 0);
        CHECK(cpu.back().peak[static_cast<size_t>(kGradient)] > 0);
      }
    }
  }
}

}  // namespace
}  // namespace fsdp::test
