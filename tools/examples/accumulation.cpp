// Gradient accumulation, wrong beside right: the same batch in one, two and four micro-steps must
// be the same step. It is where each token counts alike. It is not with the mean of each
// micro-step's mean, and still less where the means are added up and nobody divides.
//   accumulation [RANKS]     ranks as threads of this process (2)
// What it shows: tools/recipes/study/README.md. Read next: study.h; token_weight() in
// tools/engine/session.cpp is what is right.
#include <array>
#include <cmath>
#include <cstdlib>
#include <exception>

#include <fmt/format.h>

#include "comm/local_transport.h"
#include "optim/optimizer_kind.h"
#include "tools/examples/study.h"

namespace {

using namespace fsdp;

enum class Rule : uint8_t { kAllTokens, kMeanOfMeans, kSumOfMeans };
constexpr std::array kRules = {Rule::kAllTokens, Rule::kMeanOfMeans, Rule::kSumOfMeans};
constexpr uint32_t kSteps = 20;

std::unique_ptr<Session> session_of(comm::Communicator& world, Rule rule, int micro_steps,
                                    optim::OptimizerKind optimizer) {
  SessionOptions options = study::small_llama(optimizer);
  options.fsdp.micro_steps = micro_steps;
  options.loss_mean = rule == Rule::kAllTokens ? LossMean::kTokens : LossMean::kRanks;
  return study::make_session(world, options);
}

Batch batch_of(Session& session, Rule rule, int micro_steps, uint32_t step) {
  Batch batch = study::batch_of(session.world(), session.model().config(), step);
  if (rule == Rule::kSumOfMeans) batch.gradient_factor = micro_steps;
  return batch;
}

// Of the first step, which updates nothing.
StepValues first_step(comm::Communicator& world, Rule rule, int micro_steps) {
  const auto session = session_of(world, rule, micro_steps, optim::OptimizerKind::kSgd);
  return session->train_step(batch_of(*session, rule, micro_steps, 0), /*learning_rate=*/0, 0)
      .read();
}

// The loss of a token after training, measured alike for all.
double trained_loss(comm::Communicator& world, Rule rule, int micro_steps,
                    optim::OptimizerKind optimizer, double rate) {
  const auto session = session_of(world, rule, micro_steps, optimizer);
  for (uint32_t step = 0; step < kSteps; ++step) {
    session->train_step(batch_of(*session, rule, micro_steps, step), rate, step);
  }
  double sum = 0;
  for (uint32_t step = 0; step < 4; ++step) {
    sum += session->evaluate(batch_of(*session, Rule::kAllTokens, 1, step));
  }
  return sum / 4;
}

// A line of the first table; all ranks take part, rank 0 speaks.
std::string first_steps(comm::Communicator& world, int micro_steps) {
  std::string line = fmt::format("{:<14}", micro_steps);
  for (const Rule rule : kRules) {
    const StepValues values = first_step(world, rule, micro_steps);
    line += fmt::format("{:<8.4f}{:<14.4f}", values.loss, values.grad_norm);
  }
  return line;
}

std::string trainings(comm::Communicator& world, std::string_view name,
                      optim::OptimizerKind optimizer, double rate, int micro_steps) {
  std::string line = fmt::format("{:<7}{:<7}", name, micro_steps);
  for (const Rule rule : kRules) {
    const double loss = trained_loss(world, rule, micro_steps, optimizer, rate);
    line +=
        std::isfinite(loss) ? fmt::format("{:<22.4f}", loss) : fmt::format("{:<22}", "not finite");
  }
  return line;
}

void compare(comm::Communicator& world) {
  const auto say = [&](const std::string& line) {
    if (world.rank() == 0) fmt::print("{}\n", line);
  };
  say(fmt::format("the first step: {} rows on {} ranks, answers of 1 to 20 tokens", study::kRows,
                  world.size()));
  say("micro-steps   all tokens            mean of means         sum of means");
  say("              loss    norm          loss    norm          loss    norm");
  for (const int micro_steps : {1, 2, 4}) say(first_steps(world, micro_steps));
  say(fmt::format("the loss of a token after {} steps", kSteps));
  for (const int micro_steps : {1, 4})
    say(trainings(world, "sgd", optim::OptimizerKind::kSgd, 0.1, micro_steps));
  for (const int micro_steps : {1, 4})
    say(trainings(world, "adamw", optim::OptimizerKind::kAdamW, 3e-3, micro_steps));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    comm::run_local_ranks(argc > 1 ? std::atoi(argv[1]) : 2, compare);
  } catch (const std::exception& error) {
    fmt::print(stderr, "accumulation: {}\n", error.what());
    return 1;
  }
  return 0;
}
