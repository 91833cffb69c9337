// How well an answer agrees with its reference answers, by the rule of a published script: what
// such a rule is. Not here: the rules (tools/guides), answers (tools/evaluate).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

// From 0 to 1, of one answer or the mean over several.
struct AnswerScore {
  double exact_match = 0;  // of one answer 0 or 1
  double f1 = 0;           // 0 where no word is the same, also where there is none
};

struct AnswerMetric {
  // What is compared of an answer: what follows the last such text; "": all.
  std::string_view cue;
  // `answer`: valid UTF-8. `references`: at least one.
  AnswerScore (*score)(std::string_view answer, const std::vector<std::string>& references);
};

}  // namespace fsdp::tools
