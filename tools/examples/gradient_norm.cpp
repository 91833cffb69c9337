// Clipping by the gradient norm, wrong beside right: a rank of a sharded model has a part of the
// gradient, and the norm of this part is not the norm. The sum of squares belongs to all ranks; a
// rank that clips by its own part changes the direction of the step, and the result depends on the
// ranks.
//   gradient_norm            1, 2 and 4 ranks as threads of this process
// What it shows: tools/recipes/study/README.md. Read next: study.h; optim/clip.h is what is right.
#include <algorithm>
#include <exception>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "comm/local_transport.h"
#include "optim/clip.h"
#include "optim/optimizer_kind.h"
#include "tools/examples/study.h"

namespace {

using namespace fsdp;

constexpr double kMaxNorm = 0.5;
constexpr double kRate = 0.3;
constexpr uint32_t kSteps = 30;

// The mistake: nobody adds over the ranks. Without a group, optim::Clipper measures what is here.
double norm_of_own_part(const std::vector<OptimizerShard>& shards) {
  optim::Clipper own(shards, /*group=*/nullptr, /*max_norm=*/0);
  own.measure();
  return own.norm().item();
}

void multiply(const Tensor& gradient, double factor) {
  std::vector<float> values;
  for (const double value : gradient.to_doubles()) {
    values.push_back(static_cast<float>(value * factor));
  }
  gradient.write(values.data());
}

struct Result {
  std::vector<double> parts;  // norms of the ranks' parts of the first gradient
  double norm = 0;            // of the whole first gradient
  double loss = 0;            // after training
};

Result train(comm::Communicator& world, bool each_rank_clips_its_part) {
  SessionOptions options = study::small_llama(optim::OptimizerKind::kSgd);
  if (!each_rank_clips_its_part) options.clip_norm = kMaxNorm;
  const auto session = study::make_session(world, options);
  Result result;
  for (uint32_t step = 0; step < kSteps; ++step) {
    session->forward_backward(study::batch_of(world, options.model, step), step, true);
    const std::vector<OptimizerShard> shards = session->sharded().optimizer_shards();
    const double own = norm_of_own_part(shards);
    if (each_rank_clips_its_part) {
      const double factor = std::min(1.0, kMaxNorm / (own + 1e-6));
      for (const OptimizerShard& shard : shards) multiply(shard.gradient, factor);
    }
    const StepValues values = session->update(kRate).read();
    if (step > 0) continue;
    result.parts = comm::exchange_values(world, own);
    result.norm = values.grad_norm;
  }
  for (uint32_t step = 0; step < 4; ++step) {
    result.loss += session->evaluate(study::batch_of(world, options.model, step)) / 4;
  }
  return result;
}

void compare(comm::Communicator& world) {
  const Result right = train(world, /*each_rank_clips_its_part=*/false);
  const Result wrong = train(world, /*each_rank_clips_its_part=*/true);
  if (world.rank() != 0) return;
  fmt::print("{:<8}{:<12.4f}{:<14.4f}{:<16.4f}{:.4f}\n", world.size(), right.norm, right.loss,
             wrong.loss, fmt::join(right.parts, " "));
}

}  // namespace

int main() {
  try {
    fmt::print("clipped at {}; the loss of a token after {} steps\n", kMaxNorm, kSteps);
    fmt::print("{:<8}{:<12}{:<14}{:<16}{}\n", "ranks", "first norm", "right: loss", "wrong: loss",
               "norms of the ranks' parts of it");
    for (const int ranks : {1, 2, 4}) comm::run_local_ranks(ranks, compare);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gradient_norm: {}\n", error.what());
    return 1;
  }
  return 0;
}
