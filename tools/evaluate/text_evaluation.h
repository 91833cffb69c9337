// How well a model predicts a text: a model folder and files in, figures out, the same on any
// number of ranks. What `fsdp eval` does. Read next: tools/train/evaluation.h (the loss of
// batches).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/config/config.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"
#include "tools/train/evaluation.h"

namespace fsdp::tools {

constexpr int64_t kLongestByDefault = 1024;

struct TextEvaluationOptions {
  ModelOptions model;
  std::vector<std::string> files;
  std::string field = "text";  // of a row of JSON
  std::string cache;           // folder for the tokens; "": .cache/tokens
  int64_t length = 0;          // 0: what the model has, at most kLongestByDefault
  int64_t stride = 0;          // 0: the length
  int64_t batch = 8;           // sequences, over all ranks
  // As of a run, whose data.validation is evaluated, as the run does it: instead of files, field,
  // cache, length, stride and batch. Paths are resolved.
  std::optional<config::TrainConfig> config = {};
};

struct TextFigures {
  TextLoss loss;
  std::vector<std::pair<std::string, TextLoss>> by_role;  // of conversations: each role's turns
  int64_t tokens = 0;  // of the text, with the tokens that the tokenizer puts around documents
  int64_t bytes = 0;   // of the documents; 0: not counted, with a configuration
  int64_t sequences = 0, length = 0, stride = 0;
  double seconds = 0;
  std::string tokenizer;

  double perplexity() const;
  double bits_per_token() const;
  // Bits per token times tokens per byte of the text (Gao et al., "The Pile", 2020, section 3.1):
  // it does not depend on the tokenizer.
  double bits_per_byte() const;
};

// What rank 0 hears meanwhile.
struct EvaluationListener {
  std::function<void(const std::string& text)> note;  // on the model's files, on the data
  // After every batch.
  std::function<void(int64_t batches, int64_t of, const TextLoss& so_far, double seconds)> progress;
};
// Collective; every rank gets the figures, but for `bytes`, which rank 0 counts. AgreedError for a
// loss that is not finite, with status 76.
TextFigures evaluate_text(const TextEvaluationOptions& options, RankContext& rank,
                          const EvaluationListener& listener);

}  // namespace fsdp::tools
