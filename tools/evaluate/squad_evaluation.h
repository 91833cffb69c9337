// A model's answers to the questions of SQuAD files, and how many are right: a model folder and
// files in, figures out, the same on any number of ranks. What `fsdp eval --task squad` does. Read
// next: squad_questions.h, tools/report/answer_metric.h, tools/generate/generation.h (whose
// questions are dealt to ranks).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/evaluate/squad_questions.h"
#include "tools/launch/launch.h"
#include "tools/report/answer_metric.h"

namespace fsdp::tools {

struct SquadEvaluationOptions {
  std::string folder, base;  // as of find_model
  std::string tokenizer;     // "": the model folder's
  std::string dtype = "f32";
  std::string strategy;  // "": no_shard on one rank, full_shard on several
  std::vector<std::string> files;
  int64_t limit = 0;        // questions, the first ones; 0: all
  int64_t length = 0;       // tokens of a prompt and its answer together; 0: the model's positions
  int64_t tokens = 50;      // of an answer, at most
  int64_t batch = 8;        // questions at a time, over all ranks
  std::string predictions;  // a file for the answers; "": none
  std::vector<const AnswerMetric*> metrics = {};
};

struct SquadFigures {
  std::vector<AnswerScore> scores;  // by each of the metrics
  int64_t questions = 0;
  int64_t cut = 0;      // questions whose context is not whole
  int64_t stopped = 0;  // answers that end with an end-of-text
  int64_t length = 0;   // that bounds a prompt and its answer
  double seconds = 0;
  std::string tokenizer;
};

// By the id of its question: the text after the prompt.
using SquadAnswers = std::map<std::string, std::string>;
// Means over the questions, each of which has an answer.
AnswerScore mean_score(const std::vector<SquadQuestion>& questions, const SquadAnswers& answers,
                       const AnswerMetric& metric);

// What rank 0 hears meanwhile.
struct SquadListener {
  std::function<void(const std::string& text)> note;  // on the model's files and on cut contexts
  std::function<void(int64_t questions, int64_t of, double seconds)> progress;
};
// Collective. Rank 0 gets the figures, and writes the file of predictions: a JSON object as the
// official evaluation takes it.
SquadFigures evaluate_squad(const SquadEvaluationOptions& options, RankContext& rank,
                            const SquadListener& listener);

}  // namespace fsdp::tools
