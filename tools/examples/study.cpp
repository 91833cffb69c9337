// Contract: tools/examples/study.h.
#include "tools/examples/study.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/cpu/cpu_backend.h"
#include "models/family.h"
#include "models/weights.h"

namespace fsdp::study {
namespace {

constexpr std::string_view kText =
    "A rank that has three words to learn and a rank that has thirty must not count alike: the "
    "mean over all words is not the mean of the means. ";
constexpr int64_t kLength = 24;  // tokens of a row; a byte is a token
constexpr int32_t kNoLabel = -100;

// Of the answer, which ends the row.
int64_t tokens_of_answer(int64_t row) {
  constexpr std::array<int64_t, kRows> kTokens = {1, 2, 20, 3, 1, 12, 2, 1};
  return kTokens[static_cast<size_t>(row)];
}

int64_t tokens_of_all_answers() {
  int64_t sum = 0;
  for (int64_t row = 0; row < kRows; ++row) sum += tokens_of_answer(row);
  return sum;
}

}  // namespace

SessionOptions small_llama(optim::OptimizerKind optimizer) {
  SessionOptions options;
  options.model = models::family_defaults("llama");
  options.model.vocabulary = 256;
  options.model.hidden = 32;
  options.model.layers = 2;
  options.model.heads = options.model.kv_heads = 4;
  options.model.head_dim = 8;
  options.model.ffn = 64;
  options.model.max_positions = kLength;
  models::validate(options.model);
  options.max_length = kLength;
  options.optimizer.kind = optimizer;
  options.optimizer.weight_decay = 0;
  options.clip_norm = 0;
  return options;
}

std::unique_ptr<Session> make_session(comm::Communicator& world, const SessionOptions& options) {
  Places places;
  places.device = std::make_unique<cpu::CpuBackend>();
  auto session = std::make_unique<Session>(world, std::move(places), options);
  session->initialise(models::from_scratch(/*seed=*/1));
  return session;
}

Batch batch_of(const comm::Communicator& world, const models::ModelConfig& model, uint32_t step) {
  const RowRange mine = deal_rows(kRows, world.rank(), world.size());
  LabelledRows own = {.length = kLength};
  for (int64_t row = mine.first; row < mine.first + mine.count; ++row) {
    const auto places = static_cast<int64_t>(kText.size()) - kLength;
    const auto place = static_cast<size_t>((step * kRows + row) * 7 % places);
    for (const char c : kText.substr(place, static_cast<size_t>(kLength))) own.tokens.push_back(c);
    own.labels.insert(own.labels.end(), own.tokens.end() - kLength, own.tokens.end());
    std::fill_n(own.labels.end() - kLength, kLength - tokens_of_answer(row), kNoLabel);
    own.samples.push_back(step * kRows + row);
  }
  return make_batch(std::move(own), models::input_rules(model), tokens_of_all_answers());
}

}  // namespace fsdp::study
