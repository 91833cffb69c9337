// A model so small that steps take microseconds, its batches, and the log of its steps. Not here:
// whole runs (tiny_run.h).
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/io/json.h"
#include "tools/train/evaluation.h"
#include "tools/train/placed_session.h"

namespace fsdp::test {

inline constexpr int64_t kLength = 6;

inline tools::PlacedOptions tiny_options() {
  tools::PlacedOptions options;
  options.model = models::family_defaults("llama");
  options.model.vocabulary = 11;
  options.model.hidden = 8;
  options.model.layers = 2;
  options.model.heads = options.model.kv_heads = 2;
  options.model.head_dim = 4;
  options.model.ffn = 16;
  options.model.max_positions = options.max_length = kLength;
  return options;
}

// Row `sample` counts up from its number, modulo the vocabulary.
inline Batch rows_of(const std::vector<int64_t>& samples, int64_t global_rows) {
  LabelledRows own = {.length = kLength, .samples = samples};
  for (const int64_t sample : samples) {
    for (int64_t t = 0; t < kLength; ++t) {
      own.tokens.push_back(static_cast<int32_t>((sample + t) % 11));
    }
  }
  own.labels = own.tokens;
  return make_batch(std::move(own), {}, global_rows * (kLength - 1));
}

// Two rows in a batch, dealt in turn.
inline tools::BatchSource training(const comm::Communicator& world) {
  return {.batches = 0, .get = [&world](int64_t step) {
            std::vector<int64_t> mine;
            for (int64_t row = world.rank(); row < 2; row += world.size()) {
              mine.push_back(2 * step + row);
            }
            return rows_of(mine, 2);
          }};
}

inline std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(parse_json(text.substr(begin, end - begin), "metrics"));
    begin = end + 1;
  }
  return lines;
}

}  // namespace fsdp::test
