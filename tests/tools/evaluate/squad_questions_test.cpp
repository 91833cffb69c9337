// Questions of files, and the prompts that they become; what is wrong with files is named by line.
#include "tools/evaluate/squad_questions.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

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
        fmt::format(":4: the id \"x\" is that of the question at {}:3, too",
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
        fmt::format("{}:3: the question has {} tokens without its context, there is room for {}",
                    file, fixed, fixed - 1));
}

}  // namespace
}  // namespace fsdp::tools
