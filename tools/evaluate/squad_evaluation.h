// A model's answers to the questions of SQuAD v1.1 files, and how many are right: a model folder
// and files in, figures out, the same on any number of ranks. What `fsdp eval --task squad` does.
// Read next: tools/report/answer_metric.h (scores), tools/generate/generation.h (whose questions
// are dealt to ranks). Not here: the form of the files (tools/data/squad.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/data/prompts.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"
#include "tools/report/answer_metric.h"

namespace fsdp::tools {

struct SquadQuestion {
  std::string where;  // "file:line", for errors
  std::string id;
  Json row;                          // fields of the template
  std::vector<std::string> answers;  // references, at least one
};

// In the order of the files, the first `limit`; 0: all. Error that names file and line for a file
// of another form, a question without id or reference answers, an id that was there before.
std::vector<SquadQuestion> read_questions(const std::vector<std::string>& files, int64_t limit);

struct SquadPrompts {
  std::vector<data::Prompt> prompts;  // of the questions, in their order
  int64_t cut = 0;                    // prompts that are not whole
};
// The template "squad" up to the answer: "Question: ... Context: ... Answer:". Of a prompt that has
// more than `room` tokens the context is cut at its end. Error that names the question which is too
// long without any context.
SquadPrompts make_prompts(const std::vector<SquadQuestion>& questions,
                          const data::Tokenizer& tokenizer, int64_t room);

struct SquadEvaluationOptions {
  ModelOptions model;
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
