// Subsets of rows, against those of Hugging Face datasets.
// Requirements: S1.4.
#include "tools/data/row_subset.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Texts = std::vector<std::string>;

Texts rows_of(const RowSubset& subset, const std::vector<std::filesystem::path>& files,
              const TextOptions& options = {}) {
  Texts out;
  for_each_row_of(subset, files, options,
                  [&](const Document& document) { out.push_back(whole(document)); });
  return out;
}

// datasets.load_dataset("json", data_files=[...]).shuffle(seed).select(range(n)) of three files.
TEST_CASE("the rows and their order are those of datasets") {
  const test::TempFolder folder;
  const Json fixture = read_json_file(test::fixture_path("row_subsets.json"));
  std::vector<std::filesystem::path> files;
  for (const Json& rows : fixture["files"]) {
    // A byte order mark and blank lines move the rows and are none.
    std::string text = files.empty() ? "\xef\xbb\xbf\n" : "";
    for (const Json& row : rows) {
      text += "{\"text\": " + row.dump() + "}\n" + (row.get<std::string>() == "a3" ? " \r\n" : "");
    }
    if (files.size() == 2) text.pop_back();  // no end of the last line
    files.push_back(folder.write(fmt::format("{}.jsonl", files.size()), text));
  }
  int compared = 0;
  for (const Json& subset : fixture["subsets"]) {
    CAPTURE(subset.dump());
    CHECK(rows_of({.n = subset["n"], .seed = subset["seed"]}, files) ==
          subset["rows"].get<Texts>());
    ++compared;
  }
  CHECK(compared == 6);
}

TEST_CASE("rows of an array") {
  const test::TempFolder folder;
  std::string array, lines;
  for (int i = 0; i < 10; ++i) {
    const std::string row = fmt::format("{{\"instruction\": \"[{}, \\\"\", \"output\": \"\"}}", i);
    array += (i == 0 ? "[" : " ,\n") + row;
    lines += row + "\n";
  }
  const auto of_array = folder.write("a.json", array + "]"),
             of_lines = folder.write("b.json", lines);
  const RowSubset subset{.n = 7, .seed = 42};
  const TextOptions alpaca{.format = TextFormat::kAlpaca};
  const Texts rows = rows_of(subset, {of_array}, alpaca);
  CHECK(rows == rows_of(subset, {of_lines}, alpaca));
  CHECK(test::contains(rows[0], "[5, "));  // numpy: default_rng(42).permutation(10)
}

TEST_CASE("rows that are lines, and questions of several paragraphs") {
  const test::TempFolder folder;
  const auto lines = folder.write("a.txt", "0\n\n1\r\n2"), more = folder.write("b.txt", "3\n");
  TextOptions apart{.lines = Lines::kApart};
  // numpy: default_rng(42).permutation(4)
  CHECK(rows_of({.n = 4, .seed = 42}, {lines, more}, apart) == Texts{"3", "2", "1", "0"});
  std::string articles, straight;
  for (int i = 0; i < 10; ++i) {
    const std::string question =
        fmt::format("{{\"question\": \"q{}\", \"answers\": [{{\"text\": \"a{}\"}}]}}", i, i);
    straight += (i == 0 ? "" : ", ") + question;
    articles += fmt::format("{}{{\"paragraphs\":\n[{{\"qas\": [{}], \"context\": \"c{}]\"}}]}}",
                            i == 0 ? "" : ",\n", question, i);
  }
  const auto file = folder.write("s.json", "\xef\xbb\xbf{\"data\": [" + articles + "]}");
  const TextOptions squad{.format = TextFormat::kSquad};
  const Texts rows = rows_of({.n = 10, .seed = 42}, {file}, squad);
  // numpy: default_rng(42).permutation(10)
  CHECK(rows[0] == "Question: q5 Context: c5] Answer: a5");
  CHECK(rows[1] == "Question: q6 Context: c6] Answer: a6");
  CHECK(rows[2] == "Question: q0 Context: c0] Answer: a0");
}

TEST_CASE("rows of arrays and tables, beside files without rows") {
  const test::TempFolder folder;
  const std::vector<std::filesystem::path> files = {
      folder.write("a.jsonl", ""),
      folder.write("b.json", "[{\"text\": \"0\"},\n{\"text\": \"1\"}]"),
      folder.write("c.csv", "text\n"), folder.write("d.csv", "n,text\n1,\"2\n\"\n2,3\n"),
      folder.write("e.jsonl", "\n")};
  // numpy: default_rng(42).permutation(4)
  CHECK(rows_of({.n = 4, .seed = 42}, files) == Texts{"3", "2\n", "1", "0"});
}

TEST_CASE("more rows than there are, and files without rows") {
  const test::TempFolder folder;
  const auto one = folder.write("one.jsonl", "{\"text\": \"a\"}\n"),
             two = folder.write("two.jsonl", "{\"text\": \"b\"}\n{\"text\": \"c\"}\n"),
             text = folder.write("plain.txt", "one\ntwo\n");
  const auto refusal = [&](int64_t n, const std::vector<std::filesystem::path>& files) {
    return test::error_of([&] { rows_of({.n = n}, files); });
  };
  CHECK(refusal(3, {one, two}) == "");
  CHECK(refusal(4, {one, two}) ==
        "data.subset.n: expected 1 to 3, the rows of " + one.string() + " and 1 more files, got 4");
  CHECK(refusal(2, {one}) ==
        "data.subset.n: expected 1 to 1, the rows of " + one.string() + ", got 2");
  CHECK(refusal(1, {one, text}) ==
        "data.subset.n: expected files of rows (of JSON or a table), got " + text.string() +
            ", a text without rows");
}

TEST_CASE("a bad row is an error wherever it is, or no row of the subset") {
  const test::TempFolder folder;
  const auto file = folder.write("a.jsonl",
                                 "{\"text\": \"0\"}\n{\"text\": 1}\n{\"text\": \"1\"}\n"
                                 "{\n{\"text\": \"2\"}\n");
  const auto clean = folder.write("b.jsonl",
                                  "{\"text\": \"0\"}\n{\"text\": \"1\"}\n"
                                  "{\"text\": \"2\"}\n");
  for (const uint64_t seed : {0, 1, 2}) {
    const RowSubset subset{.n = 1, .seed = seed};
    CHECK(test::error_of([&] { rows_of(subset, {file}); }) ==
          file.string() + ":2: field \"text\": expected a string, got number");
    CHECK(rows_of({.n = 3, .seed = seed}, {file}, {.bad_rows = BadRows::kSkip}) ==
          rows_of({.n = 3, .seed = seed}, {clean}));
  }
  const auto skipped = for_each_row_of({.n = 1}, {clean, file}, {.bad_rows = BadRows::kSkip},
                                       [](const Document&) {});
  REQUIRE(skipped.size() == 2);
  CHECK(skipped[1].line == 4);
}

}  // namespace
}  // namespace fsdp::data
