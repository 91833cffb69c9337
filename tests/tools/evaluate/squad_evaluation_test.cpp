// Answers of a model to questions, the same on any number of ranks, also where a rank gets none;
// scores that Python computed of given answers. The program, and mistakes: tests/e2e/squad.sh.
// Requirements: S1.7.
#include "tools/evaluate/squad_evaluation.h"

#include <cstdio>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/guides/squad_metrics.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::contains;

constexpr int kQuestions = 5;
constexpr std::string_view kCharacters =
    " .:?0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// The fixture's model with a tokenizer of these characters, and five questions that it has no idea
// of.
struct Case {
  Case() {
    const fs::path fixture = test::fixture_path("models/llama_gqa_llama3");
    for (const char* const name : {"config.json", "model.safetensors"}) {
      fs::copy_file(fixture / name, folder / name);
    }
    Json vocabulary = Json::object();
    for (const char c : kCharacters) vocabulary[std::string(1, c)] = vocabulary.size();
    const Json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}};
    const Json tokenizer = {
        {"version", "1.0"},        {"added_tokens", Json::array()}, {"normalizer", Json()},
        {"pre_tokenizer", Json()}, {"post_processor", Json()},      {"decoder", {{"type", "Fuse"}}},
        {"model", model}};
    folder.write("tokenizer.json", tokenizer.dump());
    // Else the class that the model_type names adds its own tokens.
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  }

  // The questions with these right answers.
  void write_questions(const SquadAnswers& right) const {
    Json questions = Json::array();
    for (int i = 0; i < kQuestions; ++i) {
      const std::string id = fmt::format("q{}", kQuestions - i);
      const auto found = right.find(id);
      const std::string answer = found == right.end() ? "nothing like it" : found->second;
      Json references = Json::array();
      for (const std::string& text : {std::string("first"), answer}) {
        references.push_back({{"text", text}, {"answer_start", 0}});
      }
      questions.push_back(
          {{"id", id},
           {"question", "What is " + std::string(static_cast<size_t>(i), 'x') + "?"},
           {"answers", references}});
    }
    const Json paragraph = {{"context", "A long line. A short one."}, {"qas", questions}};
    Json paragraphs = Json::array();
    paragraphs.push_back(paragraph);
    Json articles = Json::array();
    articles.push_back({{"title", "t"}, {"paragraphs", paragraphs}});
    folder.write("dev.json", Json({{"version", "1.1"}, {"data", articles}}).dump());
  }

  SquadFigures evaluate(int ranks, SquadEvaluationOptions options) {
    options.model.folder = folder.path().string();
    options.model.dtype = "f64";
    options.files = {(folder / "dev.json").string()};
    options.tokens = 6;
    options.metrics = {&kOfficialSquad, &kKaustSquad};
    options.predictions = (folder / "answers.json").string();
    SquadFigures out;
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      RankContext rank{.world = world, .local_ranks = ranks};
      const SquadFigures figures = evaluate_squad(
          options, rank,
          {.note = [&](const std::string& text) { notes.push_back(text); },
           .progress = [&](int64_t done, int64_t, double) { heard.push_back(done); }});
      if (world.rank() == 0) out = figures;
    });
    return out;
  }
  Json answers() const { return read_json_file(folder / "answers.json"); }

  test::TempFolder folder;
  std::vector<std::string> notes;
  std::vector<int64_t> heard;
};

TEST_CASE("squad evaluation: every question once, the same answers on any number of ranks") {
  Case c;
  c.write_questions({});
  const SquadFigures none = c.evaluate(1, {});
  CHECK(none.scores[0].exact_match == 0);
  CHECK(none.questions == kQuestions);
  CHECK(none.cut == 0);
  const Json alone = c.answers();
  REQUIRE(alone.size() == kQuestions);
  // The model's own answers to two of five questions are right: the second reference.
  const SquadAnswers right = {{"q2", alone["q2"].text()}, {"q5", alone["q5"].text()}};
  for (const auto& [id, answer] : right) {
    REQUIRE(!compared_words(answer, SquadRule::kOfficial).empty());
  }
  c.write_questions(right);
  for (const int ranks : {1, 2, 3, 7}) {
    CAPTURE(ranks);
    c.heard.clear();
    const SquadFigures figures = c.evaluate(ranks, {.batch = ranks == 7 ? 8 : 2});
    CHECK(c.answers() == alone);
    CHECK(c.heard == std::vector<int64_t>{1, 2, 3, 4, 5});
    CHECK(figures.scores[0].exact_match == doctest::Approx(0.4));
    CHECK(figures.scores[0].f1 == doctest::Approx(0.4));
    CHECK(figures.scores[1].exact_match == 0);
    CHECK(figures.seconds > 0);
  }
  const SquadFigures limited = c.evaluate(2, {.limit = 1});
  CHECK(limited.questions == 1);
  CHECK(limited.scores[0].exact_match == 1);  // the first question of the file is q5
  CHECK(c.answers() == Json({{"q5", alone["q5"].text()}}));
}

TEST_CASE("squad evaluation: an end-of-text ends an answer") {
  Case c;
  c.write_questions({});
  CHECK(c.evaluate(1, {}).stopped == 0);
  const Json whole = c.answers();
  const char end = '7';
  c.folder.write("generation_config.json",
                 fmt::format(R"({{"eos_token_id": {}}})", kCharacters.find(end)));
  int64_t stopped = 0;
  const SquadFigures figures = c.evaluate(2, {});
  for (const auto& [id, answer] : whole.items()) {
    const size_t length = answer.text().find(end);
    stopped += length != std::string::npos ? 1 : 0;
    CHECK(c.answers()[id].text() == answer.text().substr(0, length));
  }
  CHECK(stopped > 0);
  CHECK(figures.stopped == stopped);
}

TEST_CASE("squad evaluation: contexts are cut to the length, and that is said once") {
  Case c;
  c.write_questions({});
  c.notes.clear();
  // Question and "Answer:" alone have 36 characters and up to 4 of the question; answers have 6.
  const SquadFigures figures = c.evaluate(2, {.length = 69});
  CHECK(figures.cut == 3);
  CHECK(figures.length == 69);
  CHECK(std::count(c.notes.begin(), c.notes.end(),
                   "3 of 5 contexts are cut at their end: a prompt and its answer of 6 tokens have "
                   "69 tokens at most") == 1);
  const auto error = [&](const SquadEvaluationOptions& options) {
    return test::error_of([&] { c.evaluate(2, options); });
  };
  CHECK(contains(error({.length = 46}), "dev.json:1: the question has"));
  CHECK(contains(error({.length = 6}),
                 "--tokens: expected fewer than the 6 tokens of a prompt and its answer, got 6"));
}

TEST_CASE("squad evaluation: answers that another program scored") {
  const fs::path shared = test::source_folder() / "../shared";
  const fs::path file = shared / "data/squad/dev-v1.1.json";
  const fs::path given = shared / "fixtures/squad/dev_predictions.json";
  if (!fs::exists(file) || !fs::exists(given)) {
    std::printf("[SKIP] ../shared/data/squad or ../shared/fixtures/squad is not there\n");
    return;
  }
  const Json fixture = read_json_file(given);
  const std::vector<SquadQuestion> questions = read_questions({file.string()}, 0);
  CHECK(questions.size() == fixture["expected"]["total"].get<size_t>());
  SquadAnswers answers;
  for (const SquadQuestion& question : questions) {
    // Without an answer the score is 0, as that of an empty one.
    answers[question.id] = fixture["predictions"].value(question.id, "");
  }
  const AnswerScore score = mean_score(questions, answers, kOfficialSquad);
  CHECK(100 * score.exact_match ==
        doctest::Approx(fixture["expected"]["exact_match"].get<double>()).epsilon(1e-13));
  CHECK(100 * score.f1 == doctest::Approx(fixture["expected"]["f1"].get<double>()).epsilon(1e-13));
}

TEST_CASE("squad evaluation: the KAUST workshop's answer follows the last \"Answer:\"") {
  const std::vector<SquadQuestion> questions = {{.id = "x", .answers = {"blue"}}};
  const SquadAnswers answers = {{"x", "red Question: Why? Answer: blue"}};
  CHECK(mean_score(questions, answers, kKaustSquad).exact_match == 1);
  const AnswerScore official = mean_score(questions, answers, kOfficialSquad);
  CHECK(official.exact_match == 0);
  CHECK(official.f1 == doctest::Approx(2 * 0.2 / 1.2));  // one word of five
}

std::string file_of(std::string_view context, std::string_view questions) {
  return fmt::format(
      "{{\"version\": \"1.1\", \"data\": [{{\"title\": \"t\", \"paragraphs\": [\n{{\"context\": "
      "\"{}\", \"qas\": [\n{}\n]}}]}}]}}",
      context, questions);
}

std::string question(std::string_view id, std::string_view answers = R"({"text": "a"})") {
  return fmt::format(R"({{"id": "{}", "question": "Who?", "answers": [{}]}})", id, answers);
}

TEST_CASE("squad questions: in the order of the files, all their answers, the first few") {
  const test::TempFolder folder;
  const std::string one = folder.write(
      "one.json",
      "\xef\xbb\xbf" + file_of("c", question("x") + ",\n" + question("y", R"({"text": "b"},
      {"text": "c"})")));
  const std::string two = folder.write("two.json", file_of("d", question("z")));
  const std::vector<SquadQuestion> all = read_questions({one, two}, 0);
  REQUIRE(all.size() == 3);
  CHECK(all[0].where == one + ":3");
  CHECK(all[1].where == one + ":4");
  CHECK(all[1].id == "y");
  CHECK(all[1].answers == std::vector<std::string>{"b", "c"});
  CHECK(all[2].id == "z");
  CHECK(all[2].row["context"] == "d");
  CHECK(read_questions({one, two}, 1).size() == 1);
  CHECK(read_questions({one, two}, 3).size() == 3);
  CHECK(read_questions({one, two}, 9).size() == 3);
  // A file that the limit leaves out is not read.
  CHECK(read_questions({one, "nowhere.json"}, 2).size() == 2);
}

TEST_CASE("squad questions: a row for each, as on the hub") {
  const test::TempFolder folder;
  const std::string file = folder.write(
      "rows.jsonl",
      R"({"id": "1", "context": "c", "question": "q", "answers": {"text": ["a", "b"], )"
      R"("answer_start": [0, 1]}})");
  const std::vector<SquadQuestion> all = read_questions({file}, 0);
  REQUIRE(all.size() == 1);
  CHECK(all[0].row["context"] == "c");
  CHECK(all[0].id == "1");
  CHECK(all[0].answers == std::vector<std::string>{"a", "b"});
  const std::string none = folder.write(
      "none.jsonl", R"({"id": "1", "context": "c", "question": "q", "answers": {"text": []}})");
  CHECK(test::contains(test::error_of([&] { read_questions({none}, 0); }),
                       "none.jsonl:1: field \"answers\": expected an answer to compare with"));
}

TEST_CASE("squad questions: mistakes by file and line") {
  const test::TempFolder folder;
  const auto error = [&](const std::string& content) {
    const std::string file = folder.write("q.json", content);
    const std::string message = test::error_of([&] { read_questions({file}, 0); });
    CHECK(message.starts_with(file));
    return message.substr(std::min(message.size(), file.size()));
  };
  CHECK(error("") == ": the file is empty");
  CHECK(error("[]") == ":1: expected an object");
  CHECK(error(file_of("c", "")) == ": no questions");
  CHECK(error(file_of("c", question("x") + ",\n" + question("x"))) ==
        fmt::format(":4: the id \"x\" also belongs to the question at {}:3",
                    (folder / "q.json").string()));
  CHECK(test::contains(error(file_of("c", R"({"question": "Who?", "answers": [{"text": "a"}]})")),
                       ":3: no field \"id\""));
  CHECK(error(file_of("c", R"({"id": 5, "question": "Who?", "answers": [{"text": "a"}]})")) ==
        ":3: field \"id\": expected a string, got number");
  CHECK(test::contains(error(file_of("c", question("x", ""))),
                       ":3: field \"answers\": expected an answer to compare with, got none"));
  CHECK(test::contains(error(file_of("c", question("x", R"({"text": "a"}, {})"))),
                       ":3: no field \"text\""));
  CHECK(test::contains(error(file_of("\xff", question("x"))), ":3: invalid UTF-8: byte 0xff"));
}

TEST_CASE("squad prompts: the template up to the answer; of a long context the beginning") {
  const test::TempFolder folder;
  // Characters of one to four bytes; the tokenizer's tokens are bytes.
  const std::string context = "ab \u00fc\u20ac \U0001f600 end";
  const std::string file = folder.write("q.json", file_of(context, question("x")));
  const std::vector<SquadQuestion> questions = read_questions({file}, 0);
  const data::ByteTokenizer bytes;
  const std::string before = "Question: Who? Context: ", after = " Answer:";
  const auto fixed = static_cast<int64_t>(before.size() + after.size());
  const auto whole = fixed + static_cast<int64_t>(context.size());
  for (int64_t room = fixed; room < whole + 2; ++room) {
    const SquadPrompts made = make_prompts(questions, bytes, room);
    REQUIRE(made.prompts.size() == 1);
    CHECK(made.prompts[0].where == file + ":3");
    CHECK(made.cut == (room < whole ? 1 : 0));
    const std::string& text = made.prompts[0].text;
    CHECK(text.starts_with(before));
    CHECK(text.ends_with(after));
    const std::string kept = text.substr(before.size(), text.size() - static_cast<size_t>(fixed));
    CHECK(context.starts_with(kept));
    // Whole characters, as many as there is room for.
    const size_t ends[] = {0, 1, 2, 3, 5, 8, 9, 13, 14, 15, 16, 17};
    size_t longest = 0;
    for (const size_t end : ends) {
      if (static_cast<int64_t>(end) <= room - fixed) longest = end;
    }
    CHECK(kept.size() == longest);
  }
  CHECK(test::error_of([&] { make_prompts(questions, bytes, fixed - 1); }) ==
        fmt::format("{}:3: the question has {} tokens without its context, and only {} fit", file,
                    fixed, fixed - 1));
}

}  // namespace
}  // namespace fsdp::tools
