// Scores of answers against those that Python computed by SQuAD v1.1's official rule and by the
// KAUST workshop's (fixtures/squad_metrics.json; more of them lie beside the repository), and what
// the rules differ in.
// Requirements: S1.7.
#include "tools/guides/squad_metrics.h"

#include <cstdio>

#include <doctest/doctest.h>
#include <fmt/ranges.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

std::string compared(std::string_view answer, SquadRule rule) {
  return fmt::format("{}", fmt::join(compared_words(answer, rule), " "));
}

void check_all(const std::filesystem::path& fixture, size_t cases) {
  const Json records = read_json_file(fixture)["cases"];
  CHECK(records.size() == cases);
  for (const Json& record : records) {
    CAPTURE(record.dump());
    const auto answer = record["prediction"].get<std::string>();
    const auto references = record["golds"].get<std::vector<std::string>>();
    const AnswerScore official = score_answer(answer, references, SquadRule::kOfficial);
    const AnswerScore kaust = score_answer(answer, references, SquadRule::kKaust);
    CHECK(compared(answer, SquadRule::kOfficial) == record["normalized"].text());
    CHECK(compared(answer, SquadRule::kKaust) == record["kaust_normalized"].text());
    CHECK(official.exact_match == record["exact_match"].get<double>());
    CHECK(kaust.exact_match == record["kaust_exact_match"].get<double>());
    CHECK(official.f1 == doctest::Approx(record["f1"].get<double>()).epsilon(1e-15));
    CHECK(kaust.f1 == doctest::Approx(record["kaust_f1"].get<double>()).epsilon(1e-15));
  }
}

TEST_CASE("squad: every answer of the fixtures, by both rules") {
  check_all(test::fixture_path("squad_metrics.json"), 44);
  const auto full = test::source_folder() / "../shared/fixtures/squad/metrics.json";
  if (std::filesystem::exists(full)) return check_all(full, 180);
  std::printf("[SKIP] ../shared/fixtures/squad is not there\n");
}

TEST_CASE("squad: the order of punctuation and articles") {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"The the-cat's", "thecats", "cats"},
      {"a-b", "ab", "b"},
      {"the cat-dog", "catdog", "catdog"}};
  for (const auto& [answer, official, kaust] : cases) {
    CHECK(compared(answer, SquadRule::kOfficial) == official);
    CHECK(compared(answer, SquadRule::kKaust) == kaust);
  }
}

TEST_CASE("squad: words counted, or each once") {
  struct Case {
    const char *answer, *reference;
    double exact_match, official_f1, kaust_f1;
  };
  const Case cases[] = {{"a a cat", "cat", 1, 1, 1},
                        {"cat cat", "cat", 0, 2.0 / 3, 2.0 / 3},
                        {"cat cat", "cat cat", 1, 1, 0.5},
                        {"the", "a", 1, 0, 0},  // no word on either side
                        {"dog", "cat", 0, 0, 0}};
  for (const Case& c : cases) {
    CAPTURE(c.answer);
    for (const SquadRule rule : {SquadRule::kOfficial, SquadRule::kKaust}) {
      const AnswerScore score = score_answer(c.answer, {c.reference}, rule);
      CHECK(score.exact_match == c.exact_match);
      CHECK(score.f1 == doctest::Approx(rule == SquadRule::kOfficial ? c.official_f1 : c.kaust_f1));
    }
  }
}

TEST_CASE("squad: the best reference, or the first") {
  const AnswerScore official =
      score_answer("red", {"red car", "blue", "red"}, SquadRule::kOfficial);
  CHECK(official.exact_match == 1);
  CHECK(official.f1 == 1);
  const AnswerScore kaust = score_answer("red", {"red car", "blue", "red"}, SquadRule::kKaust);
  CHECK(kaust.exact_match == 0);
  CHECK(kaust.f1 == doctest::Approx(2.0 / 3));
  CHECK(test::contains(test::error_of([] { score_answer("a", {}, SquadRule::kKaust); }),
                       "expected a reference answer"));
}

}  // namespace
}  // namespace fsdp::tools
