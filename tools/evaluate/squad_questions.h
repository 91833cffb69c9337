// The questions of files of SQuAD v1.1 as an evaluation asks them: what the model reads, and the
// answers that are right. Not here: the form of the files (tools/data/squad.h), scores
// (tools/report/answer_metric.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/data/prompts.h"
#include "tools/data/tokenizer/tokenizer.h"

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

}  // namespace fsdp::tools
