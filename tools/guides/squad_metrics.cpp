// Python's string functions, as far as the two scripts use them. Contract: squad_metrics.h.
#include "tools/guides/squad_metrics.h"

#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/unicode_form.h"

namespace fsdp::tools {
namespace {

using Words = std::vector<std::string>;

// string.punctuation
constexpr std::string_view kPunctuation = R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~)";

std::string without_punctuation(std::string text) {
  std::erase_if(text, [](char c) { return kPunctuation.find(c) != kPunctuation.npos; });
  return text;
}

// \w
bool is_of_word(char32_t c) { return c == '_' || data::is_letter(c) || data::is_number(c); }

// str.isspace()
bool is_space(char32_t c) { return (c >= 0x1c && c <= 0x1f) || data::is_white_space(c); }

// The maximal runs of characters that `in_part` is true for, and what is between them, in order.
template <typename InPart, typename Use>
void for_each_part(std::string_view text, const InPart& in_part, const Use& use) {
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    const bool inside = in_part(data::character_at(text, begin));
    while (end < text.size() && in_part(data::character_at(text, end)) == inside) {
      end += data::character_length(text[end]);
    }
    use(text.substr(begin, end - begin), inside);
  }
}

// re.sub(r"\b(a|an|the)\b", " ", text): an article is all that is between two ends of words.
std::string without_articles(std::string_view text) {
  std::string out;
  for_each_part(text, is_of_word, [&](std::string_view part, bool) {
    const bool article = part == "a" || part == "an" || part == "the";
    out += article ? " " : part;
  });
  return out;
}

Words split(std::string_view text) {
  Words out;
  for_each_part(text, is_space, [&](std::string_view part, bool space) {
    if (!space) out.emplace_back(part);
  });
  return out;
}

// `once`: each word that both have counts once, else as often as both have it.
size_t words_in_both(Words a, Words b, bool once) {
  for (Words* const words : {&a, &b}) {
    std::sort(words->begin(), words->end());
    if (once) words->erase(std::unique(words->begin(), words->end()), words->end());
  }
  Words both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both.size();
}

AnswerScore score_words(const Words& answer, const Words& reference, SquadRule rule) {
  AnswerScore out = {.exact_match = answer == reference ? 1.0 : 0.0};
  const size_t same = words_in_both(answer, reference, rule == SquadRule::kKaust);
  if (same == 0) return out;
  const double precision = static_cast<double>(same) / static_cast<double>(answer.size());
  const double recall = static_cast<double>(same) / static_cast<double>(reference.size());
  out.f1 = 2 * precision * recall / (precision + recall);
  return out;
}

}  // namespace

Words compared_words(std::string_view answer, SquadRule rule) {
  std::string text;
  data::to_lower_case_with_final_sigma(answer, text);
  return split(rule == SquadRule::kOfficial ? without_articles(without_punctuation(text))
                                            : without_punctuation(without_articles(text)));
}

AnswerScore score_answer(std::string_view answer, const std::vector<std::string>& references,
                         SquadRule rule) {
  FSDP_CHECK(!references.empty(), "[squad] expected a reference answer");
  const Words words = compared_words(answer, rule);
  AnswerScore best;
  for (const std::string& reference : references) {
    const AnswerScore score = score_words(words, compared_words(reference, rule), rule);
    best.exact_match = std::max(best.exact_match, score.exact_match);
    best.f1 = std::max(best.f1, score.f1);
    if (rule == SquadRule::kKaust) break;
  }
  return best;
}

const AnswerMetric kOfficialSquad = {
    .score = [](std::string_view answer, const std::vector<std::string>& references) {
      return score_answer(answer, references, SquadRule::kOfficial);
    }};
const AnswerMetric kKaustSquad = {
    .cue = "Answer:",
    .score = [](std::string_view answer, const std::vector<std::string>& references) {
      return score_answer(answer, references, SquadRule::kKaust);
    }};

}  // namespace fsdp::tools
