// How well an answer agrees with the reference answers of a SQuAD question, by two rules: that of
// the official evaluation of SQuAD v1.1, and that of the KAUST workshop on FSDP, whose figures
// differ. Pure functions. Not here: questions and answers (tools/evaluate).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/report/answer_metric.h"

namespace fsdp::tools {

// Both rules compare words: lower case, without ASCII punctuation and without a, an, the.
enum class SquadRule : uint8_t {
  kOfficial,  // punctuation goes before articles; words are counted; the best of all references
  kKaust,     // articles go before punctuation; each word counts once; the first reference alone
};

// What of an answer is compared. `answer`: valid UTF-8.
std::vector<std::string> compared_words(std::string_view answer, SquadRule rule);

AnswerScore score_answer(std::string_view answer, const std::vector<std::string>& references,
                         SquadRule rule);

// The workshop's script takes what follows the last "Answer:" of the whole text.
extern const AnswerMetric kOfficialSquad, kKaustSquad;

}  // namespace fsdp::tools
