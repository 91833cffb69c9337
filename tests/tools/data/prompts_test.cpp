// Prompt files: lines, rows, and what is wrong with them by file and line.
#include "tools/data/prompts.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

TEST_CASE("prompts: lines of a text file, blank ones skipped") {
  const test::TempFolder folder;
  folder.write("p.txt", "Once upon\n\n  \na time\r\nlast");
  const std::vector<Prompt> prompts = read_prompts(folder / "p.txt");
  REQUIRE(prompts.size() == 3);
  CHECK(prompts[0].text == "Once upon");
  CHECK(prompts[1].text == "a time");
  CHECK(prompts[2].text == "last");
  CHECK(prompts[1].where == (folder / "p.txt").string() + ":4");
  CHECK_FALSE(prompts[0].ids);
}

TEST_CASE("prompts: rows of a JSONL file, text or ids") {
  const test::TempFolder folder;
  folder.write("p.jsonl", "{\"text\": \"a\\nb\"}\n{\"ids\": [3, 1]}\n{\"text\": \"\"}\n");
  const std::vector<Prompt> prompts = read_prompts(folder / "p.jsonl");
  REQUIRE(prompts.size() == 3);
  CHECK(prompts[0].text == "a\nb");
  CHECK(prompts[1].ids == std::vector<int32_t>{3, 1});
  CHECK(prompts[2].text.empty());
}

TEST_CASE("prompts: rows of other endings, and of a table") {
  const test::TempFolder folder;
  folder.write("p.ndjson", "\xef\xbb\xbf{\"text\": \"a\"}\n");
  folder.write("p.json", "[{\"text\": \"a\"},\n{\"ids\": [1]}]");
  folder.write("p.csv", "text\n\"a\nb\"\nc\n");
  CHECK(read_prompts(folder / "p.ndjson").at(0).text == "a");
  CHECK(read_prompts(folder / "p.json").at(1).ids == std::vector<int32_t>{1});
  CHECK(read_prompts(folder / "p.csv").at(0).text == "a\nb");
  CHECK(read_prompts(folder / "p.csv").at(1).where == (folder / "p.csv").string() + ":4");
  for (const char* rows :
       {"{\"text\": \"a\"}\n", "[\n{\"ids\": [1]},\n", "{\"text\": \"a\"}{\"text\": \"b\"}"}) {
    folder.write("p.txt", rows);
    CHECK(test::contains(test::error_of([&] { read_prompts(folder / "p.txt"); }),
                         "p.txt: it begins with a row of JSON, but its name is that of a plain "
                         "text: rows are read of a file whose name ends with .jsonl"));
  }
}

TEST_CASE("prompts: a prompt may be JSON itself, a file may not be another kind") {
  const test::TempFolder folder;
  folder.write("p.txt", "{\"name\": \"x\"}\n{\"text\": 1\n");
  const std::vector<Prompt> prompts = read_prompts(folder / "p.txt");
  REQUIRE(prompts.size() == 2);
  CHECK(prompts[0].text == "{\"name\": \"x\"}");
  CHECK(prompts[1].text == "{\"text\": 1");
  folder.write("p.jsonl", "{\"text\": \"{\\\"text\\\": 1}\"}\n");
  CHECK(read_prompts(folder / "p.jsonl").at(0).text == "{\"text\": 1}");
  folder.write("p.txt", "\x1f\x8b\x08");
  CHECK(test::contains(test::error_of([&] { read_prompts(folder / "p.txt"); }), "by gzip"));
}

TEST_CASE("prompts: mistakes are named with file and line") {
  const test::TempFolder folder;
  const auto error = [&](const std::string& row) {
    folder.write("p.jsonl", "{\"text\": \"a\"}\n" + row);
    const std::string message = test::error_of([&] { read_prompts(folder / "p.jsonl"); });
    const std::string where = (folder / "p.jsonl").string() + ":2";
    CHECK_MESSAGE(message.starts_with(where), message);
    return message.substr(std::min(message.size(), where.size()));
  };
  CHECK(error("{\"prompt\": \"a\"}") == ": unknown key \"prompt\": expected \"text\" or \"ids\"");
  CHECK(error("{}") == ": expected \"text\" or \"ids\", got neither");
  CHECK(error("{\"text\": \"a\", \"ids\": [1]}") == ": expected \"text\" or \"ids\", got both");
  CHECK(error("[1]") == ": expected an object, got array");
  CHECK(error("{\"ids\": []}") == ": \"ids\": expected a list of token ids, got []");
  CHECK(error("{\"ids\": [1, -2]}") == ": \"ids\": expected token ids, got -2");
  CHECK(error("{\"ids\": [1.5]}") == ": \"ids\": expected token ids, got 1.5");
  CHECK(error("{\"ids\": [3000000000]}") == ": \"ids\": expected token ids, got 3000000000");
  CHECK(error("{\"text\": 5}") == ": \"text\": expected a string, got 5");
  CHECK(test::contains(error("{\"text\": "), "malformed JSON"));
  CHECK(error("{\"text\": \"\xff\"}") == ": invalid UTF-8");
  folder.write("blank.txt", "\n \n");
  CHECK(test::contains(test::error_of([&] { read_prompts(folder / "blank.txt"); }), "no prompts"));
  CHECK(test::contains(test::error_of([&] { read_prompts(folder / "none"); }), "none"));
}

}  // namespace
}  // namespace fsdp::data
