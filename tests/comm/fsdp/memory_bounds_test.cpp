// PyTorch's own memory test, on its own model and at its own moments: `test_fully_shard_memory.py`
// (PyTorch 2.x, test/distributed/_composable/fsdp) bounds what a rank of two holds after
// construction, in forward, in backward, in the optimizer's step and after it. With the arena
// released we are below every bound, and hold exactly what the formulas here say.
// The calls of a step are written by hand, not by TrainStep: PyTorch's moments lie between
// them, and its optimizer makes its state in the first step.
// Not here: what is held with an arena that stays (memory_formula_test.cpp).
#include <doctest/doctest.h>

#include "models/weights.h"
#include "tests/support/sharded_run.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

constexpr size_t kLayers = 3;
constexpr size_t kRanks = 2;
constexpr int64_t kTokens = 4;

// Its Transformer: learned positions for 16 tokens, LayerNorms with bias, attention without biases,
// a GELU MLP of four times the width with biases, an untied head; vocabulary 32, width 768.
models::ModelConfig test_model() {
  models::ModelConfig c = models::family_defaults("gpt2");
  c.vocabulary = 32;
  c.hidden = 768;
  c.layers = kLayers;
  c.heads = c.kv_heads = 12;
  c.head_dim = 64;
  c.ffn = 4 * 768;
  c.max_positions = 16;
  c.packed_qkv = c.qkv_bias = c.attention_out_bias = false;
  c.tied_head = false;
  c.embedding_dropout = c.attention_dropout = c.residual_dropout = 0;
  models::validate(c);
  return c;
}

// By hand, in elements.
constexpr size_t kBlock = 4 * 768 * 768 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768;  // U
constexpr size_t kRoot = 2 * 32 * 768 + 16 * 768 + 2 * 768;                       // R
constexpr size_t kTotal = kLayers * kBlock + kRoot;                               // T
constexpr size_t kShard = (kTotal + 1) / 2;                                       // S
constexpr double kFloat = 4;
// Everything divides: no padding, so that the formulas need no rounding.
static_assert(kBlock % 256 == 0 && kRoot % 256 == 0);

constexpr double kBufferMb = 16;  // PyTorch's allowance for activations and fragmentation
// Step counters of every unit, the flags, and five scalars: 5 KB beside the moments.
constexpr size_t kCounters = kAllocationGranularity * (kLayers + 1 + 6);

struct Moments {
  MemoryUsage constructed, forward, backward, optimizer, rest;
};

Moments measure(Communicator& world, const FsdpOptions& options) {
  Moments moments;
  cpu::CpuBackend backend;
  MemoryLedger& ledger = backend.ledger();
  Tape tape(backend);
  models::CausalLM model(test_model(), backend, DType::kF32, kTokens);
  model.set_tape(&tape);
  FullySharded sharded(model, wrap_classes({model.config().block_class}), options, backend, world);
  initialise(sharded, models::from_scratch(42));
  moments.constructed = ledger.usage();
  {
    const std::vector<int32_t> ids = {3, 31, 7, 12};
    const Tensor tokens = Tensor::from_host(backend, Shape{1, kTokens}, ids);
    const Tensor labels = Tensor::from_host(backend, Shape{kTokens}, ids);
    const Tensor loss = model.loss(tokens, labels, {}, 1.0 / kTokens);
    moments.forward = ledger.usage();
    tape.backward(loss);
    sharded.finish_backward();
    moments.backward = ledger.usage();
  }
  ledger.reset_peak();
  // PyTorch's optimizer makes its state in its first step, ours when it is made.
  optim::Clipper clipper(sharded.optimizer_shards(), &sharded.mesh().scalars(), 0);
  const auto optimizer = optim::make_optimizer(sharded.optimizer_shards(), {});
  clipper.measure();
  optimizer->step(1e-2, clipper.coefficient(), clipper.skip(), 1);
  moments.optimizer = ledger.usage();
  sharded.finish_step();
  ledger.reset_peak();
  moments.rest = ledger.usage();
  backend.synchronize(backend.compute_stream());
  return moments;
}

size_t of(const std::array<size_t, kMemoryCategories>& bytes, MemoryCategory category) {
  return bytes[static_cast<size_t>(category)];
}

void check_bounds(const Moments& m, bool reshard) {
  const auto check = [](const char* moment, size_t bytes, double elements, double buffer_mb) {
    CAPTURE(moment);
    CHECK(static_cast<double>(bytes) / 1e6 <= elements * kFloat / 1e6 + buffer_mb);
  };
  constexpr double S = kShard, U = kBlock, R = kRoot, T = kTotal;
  check("constructed, peak", m.constructed.total_peak, S + U, 4);
  check("constructed", m.constructed.total_current, S + U, 0);
  check("forward", m.forward.total_peak, reshard ? S + 3 * U + R : S + T + U, kBufferMb);
  check("backward", m.backward.total_peak, reshard ? 2 * S + 3 * U + R : S + T + 1.5 * U,
        kBufferMb);
  check("optimizer", m.optimizer.total_peak, 4 * S, kBufferMb);
  check("rest", m.rest.total_peak, 3 * S, kCounters / 1e6);
}

// Exactly, by category.
void check_formulas(const Moments& m, bool reshard) {
  using enum MemoryCategory;
  constexpr size_t kShardBlock = kBlock / kRanks;
  CHECK(of(m.constructed.current, kParameterShard) == 4 * kShard);
  CHECK(of(m.constructed.current, kUnshardedParameter) == 0);
  CHECK(of(m.constructed.current, kGradient) == 0);
  // The root, and one block with the next one prefetched; or everything.
  const size_t unsharded = reshard ? kRoot + 2 * kBlock : kTotal;
  CHECK(of(m.forward.peak, kUnshardedParameter) == 4 * unsharded);
  CHECK(of(m.backward.peak, kUnshardedParameter) == 4 * unsharded);
  // The highest moment: the last but one block in backward, when the last but two are reduced
  // already, one is being reduced, and the last to come is prefetched.
  CHECK(of(m.backward.at_peak, kParameterShard) == 4 * kShard);
  CHECK(of(m.backward.at_peak, kUnshardedParameter) ==
        4 * (reshard ? kRoot + 2 * kBlock : kTotal - kBlock));
  CHECK(of(m.backward.at_peak, kGradient) == 4 * (kRoot + 2 * kBlock + kShardBlock));
  CHECK(of(m.backward.peak, kGradient) == 4 * (kShard + kRoot + 2 * kBlock));
  CHECK(of(m.backward.current, kUnshardedParameter) == 0);
  CHECK(of(m.backward.current, kGradient) == 4 * kShard);
  CHECK(of(m.backward.current, kActivation) == 3 * kAllocationGranularity);  // tokens, labels, loss
  // Two moments, and the counters.
  const size_t state = 4 * 2 * kShard + kCounters;
  CHECK(of(m.optimizer.current, kOptimizerState) == state);
  CHECK(m.optimizer.total_peak == 4 * 2 * kShard + state);
  CHECK(m.rest.total_current == 4 * kShard + state);
}

}  // namespace

TEST_CASE("PyTorch's bounds on memory, on PyTorch's test model") {
  for (const bool reshard : {true, false}) {
    CAPTURE(reshard);
    const FsdpOptions options = {.reshard_after_forward = reshard, .release_arena = true};
    std::vector<Moments> moments(kRanks);
    run_local_ranks(kRanks, [&](Communicator& world) {
      moments[static_cast<size_t>(world.rank())] = measure(world, options);
    });
    for (const Moments& m : moments) {
      check_bounds(m, reshard);
      check_formulas(m, reshard);
    }
  }
}
