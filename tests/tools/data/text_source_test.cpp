// Documents of text and JSONL files; every mistake is named with file and line.
// Requirements: S0.1, S3.5.
#include "tools/data/text_source.h"

#include <chrono>
#include <fstream>

#include <doctest/doctest.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/refused.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::vector<std::string> documents(const std::filesystem::path& file,
                                   const TextOptions& options = {}) {
  std::vector<std::string> out;
  for_each_document(file, options,
                    [&](const Document& document) { out.push_back(whole(document)); });
  return out;
}

// The error without the folder's name.
std::string refusal(std::string_view name, std::string_view content,
                    const TextOptions& options = {}) {
  test::TempFolder folder;
  const auto file = folder.write(name, content);
  const std::string error = test::error_of([&] { documents(file, options); });
  const std::string prefix = folder.path().string() + "/";
  REQUIRE(error.rfind(prefix, 0) == 0);
  return error.substr(prefix.size());
}

using Texts = std::vector<std::string>;

TEST_CASE("what is refused of a file") {
  test::check_refused("texts_refused.json", [](const Json& each) {
    return refusal(each["name"].text(), each["content"].text());
  });
}

TEST_CASE("a text file is one document") {
  test::TempFolder folder;
  CHECK(documents(folder.write("a.txt", "one\r\ntwo\n\n")) == Texts{"one\r\ntwo\n\n"});
  CHECK(documents(folder.write("b.txt", "\xef\xbb\xbfmark")) == Texts{"mark"});
}

TEST_CASE("a JSONL file is a document a row") {
  test::TempFolder folder;
  const char* rows =
      "{\"text\": \"a\\nb\", \"n\": 1}\n\n  \r\n{\"n\": 2, \"text\": \"\"}\r\n"
      "{\"text\": \"\\u20ac\xe2\x82\xac\"}";
  const Texts expected{"a\nb", "", "\xe2\x82\xac\xe2\x82\xac"};
  CHECK(documents(folder.write("a.jsonl", rows)) == expected);
  CHECK(documents(folder.write("a.json", rows)) == expected);
  CHECK(documents(folder.write("a.txt", rows), {.format = TextFormat::kJsonl}) == expected);
  CHECK(documents(folder.write("b.jsonl", "{\"moves\": \"e2e4\"}\n"), {.field = "moves"}) ==
        Texts{"e2e4"});
  CHECK(documents(folder.write("c.jsonl", "plain"), {.format = TextFormat::kText}) ==
        Texts{"plain"});
}

TEST_CASE("the lines of a text as rows: without their ends, or all of them with their ends") {
  test::TempFolder folder;
  const auto file = folder.write("a.txt", "\xef\xbb\xbf one\r\n \n\ntwo \nthree");
  CHECK(documents(file, {.lines = Lines::kApart}) == Texts{" one", "two ", "three"});
  CHECK(documents(file, {.lines = Lines::kAll}) == Texts{" one\r\n", "", "", "two \n", "three"});
  for (const Lines lines : {Lines::kApart, Lines::kAll}) {
    const TextOptions options{.lines = lines};
    const MappedFile mapped(file);
    for_each_document(file, options, [&](const Document& document) {
      CHECK(document_at(mapped, document.place, options).text == document.text);
    });
    CHECK(refusal("b.txt", "a\nb\xff\n", options) ==
          "b.txt:2: invalid UTF-8: byte 0xff at offset 3");
    const auto bad = folder.write("b.txt", "a\nb\xff\nc\n");
    TextOptions skip = options;
    skip.bad_rows = BadRows::kSkip;
    CHECK(for_each_document(bad, skip, [](const Document&) {}).size() == 1);
  }
  // Rows of JSON are rows in any case.
  CHECK(documents(folder.write("a.jsonl", "{\"text\": \"a\\nb\"}\n"), {.lines = Lines::kAll}) ==
        Texts{"a\nb"});
}

TEST_CASE("a malformed row is named by its line") {
  std::string rows;
  for (int line = 1; line <= 20; ++line) {
    rows += line == 17 ? "{\"text\": \"cut\n" : "{\"text\": \"fine\"}\n";
  }
  CHECK(test::contains(refusal("a.jsonl", rows), "a.jsonl:17: malformed JSON: "));
}

TEST_CASE("invalid UTF-8 is named by line and byte") {
  CHECK(refusal("a.txt", "ab\ncd\xff") == "a.txt:2: invalid UTF-8: byte 0xff at offset 5");
  CHECK(refusal("a.txt", "\xef\xbb\xbf\n\xc3") == "a.txt:2: invalid UTF-8: byte 0xc3 at offset 4");
  CHECK(refusal("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xe2\x82\"}\n") ==
        "a.jsonl:2: invalid UTF-8: byte 0xe2 at offset 24");
}

// tests/fixtures/alpaca.json: what Stanford Alpaca's own program makes of these rows.
TEST_CASE("Alpaca's rows as its prompts, of an array and of lines") {
  test::TempFolder folder;
  const Json fixture = read_json_file(test::fixture_path("alpaca.json"));
  const auto expected = fixture["texts"].get<Texts>();
  REQUIRE(expected.size() == 4);
  std::string lines, array = "\xef\xbb\xbf [";
  for (const Json& row : fixture["rows"]) {
    lines += row.dump() + "\n";
    array += (array.ends_with('[') ? "\n" : ",\n") + row.dump({.indent = 2});
  }
  const TextOptions alpaca{.format = TextFormat::kAlpaca};
  CHECK(documents(folder.write("a.jsonl", lines), alpaca) == expected);
  const auto file = folder.write("a.json", array + "\n]\n");
  CHECK(documents(file, alpaca) == expected);
  const MappedFile mapped(file);
  TextOptions complete = alpaca;
  complete.row_template = alpaca.template_of_rows();
  for_each_document(file, alpaca, [&](const Document& document) {
    const RowParts again = document_at(mapped, document.place, complete);
    CHECK(again.whole() == whole(document));
    CHECK(again.answer == document.answer);
  });
}

TEST_CASE("Alpaca's rows: what is wrong with them, and which can be skipped") {
  const TextOptions alpaca{.format = TextFormat::kAlpaca};
  TextOptions skip = alpaca;
  skip.bad_rows = BadRows::kSkip;
  const char* const good = "{\"instruction\": \"a\", \"output\": \"b\"}";
  const auto array = [&](const char* row) { return fmt::format("[{},\n\n {}]", good, row); };
  const std::pair<const char*, const char*> bad[] = {
      {"{\"instruction\": \"a\"}", "no field \"output\" (fields: instruction)"},
      {"{\"instruction\": \"a\", \"output\": null, \"input\": null}",
       "field \"output\": expected a text, got null"},
      {"[{}]", "expected an object, got array"},
      {"{\"instruction\": }", "malformed JSON: "},
      {"", "malformed JSON: "},  // a comma at the end
      {"\"\xff\"", "invalid UTF-8: byte 0xff at offset "}};
  for (const auto& [row, reason] : bad) {
    CAPTURE(row);
    CHECK(
        test::contains(refusal("a.json", array(row), alpaca), std::string("a.json:3: ") + reason));
    test::TempFolder folder;
    const auto skipped =
        for_each_document(folder.write("a.json", array(row)), skip, [](const Document&) {});
    REQUIRE(skipped.size() == 1);
    CHECK(skipped[0].line == 3);
    CHECK(skipped[0].reason.starts_with(reason));
    CHECK(skipped[0].reason.ends_with(" (row 2)"));  // all rows may stand in one line
  }
  CHECK(refusal("a.json", fmt::format("[{}, {}, 5]", good, good), alpaca) ==
        "a.json:1: expected an object, got number (row 3)");
  // Where a row ends cannot be told.
  for (const TextOptions& options : {alpaca, skip}) {
    CHECK(refusal("a.json", array("{\"instruction\": \"a}"), options) ==
          "a.json:3: malformed JSON: the array does not end");
    CHECK(refusal("a.json", array("1") + " x",
                  {.format = TextFormat::kAlpaca, .bad_rows = BadRows::kSkip}) ==
          "a.json:3: malformed JSON: text behind the end of the array");
    CHECK(refusal("a.json", " []\n", options) == "a.json: no rows");
  }
}

TEST_CASE("bad rows are skipped and listed where that is wanted") {
  test::TempFolder folder;
  const TextOptions skip{.bad_rows = BadRows::kSkip};
  const std::string file =
      folder
          .write("a.jsonl",
                 "\xef\xbb\xbf{\"text\": \"one\"}\n{\"text\": \"cut\n\n[1]\n{\"b\": 1}\n"
                 "{\"text\": null}\n{\"text\": \"\xff\"}\n{\"text\": \"two\"}")
          .string();
  Texts texts;
  std::vector<RowPlace> places;
  const std::vector<SkippedRow> skipped =
      for_each_document(file, skip, [&](const Document& document) {
        texts.emplace_back(document.text);
        places.push_back(document.place);
      });
  CHECK(texts == Texts{"one", "two"});
  REQUIRE(skipped.size() == 5);
  CHECK(skipped[0].line == 2);
  CHECK(skipped[0].reason.starts_with("malformed JSON: "));
  CHECK(skipped[1] == SkippedRow{file, 4, "expected an object, got array"});
  CHECK(skipped[2] == SkippedRow{file, 5, "no field \"text\" (fields: b)"});
  CHECK(skipped[3] == SkippedRow{file, 6, "field \"text\": expected a string, got null"});
  CHECK(skipped[4].line == 7);
  CHECK(skipped[4].reason.starts_with("invalid UTF-8: byte 0xff at offset "));
  CHECK(parse_skipped_rows(to_jsonl(skipped)) == skipped);
  CHECK(to_jsonl({{"a\"\n", 3, "b"}}) == "{\"file\":\"a\\\"\\n\",\"line\":3,\"reason\":\"b\"}\n");

  const MappedFile mapped(file);
  CHECK(places[0] == RowPlace{3, 0});
  for (size_t i = 0; i < places.size(); ++i) {
    CHECK(document_at(mapped, places[i], skip) == RowParts{.text = texts[i]});
  }
  CHECK(test::contains(test::error_of([&] {
                         document_at(mapped, {mapped.size(), 0}, skip);
                       }),
                       "expected a row, got the end of the file"));
}

TEST_CASE("what skipping rows does not forgive") {
  const TextOptions skip{.bad_rows = BadRows::kSkip};
  CHECK(refusal("a.jsonl", "{\"b\": 1}\n\n{\"b\": 2}\n", skip) ==
        "a.jsonl: no row is left: all 2 would be skipped, the first in line 1: no field \"text\" "
        "(fields: b)");
  CHECK(refusal("a.jsonl", "\n", skip) == "a.jsonl: no rows");
  CHECK(refusal("a.jsonl", "", skip) == "a.jsonl: the file is empty");
  CHECK(refusal("a.txt", "\xff", skip) == "a.txt:1: invalid UTF-8: byte 0xff at offset 0");
  // What goes wrong with a good row is no bad row.
  test::TempFolder folder;
  const auto file = folder.write("a.jsonl", "{\"text\": \"a\"}\n");
  CHECK(test::error_of([&] {
          for_each_document(file, skip, [](const Document&) { fail("of the tokenizer"); });
        }) == "of the tokenizer");
}

TEST_CASE("a file of another format that is read as JSONL") {
  const std::string squad = "{\"data\": [{\"title\": \"t\", \"paragraphs\": []}]}\n";
  for (const char* within :
       {"{\"rows\": [{\"text\": \"a\"}]}", "{\n  \"rows\": [\n {\"text\": \"a\"}]}"}) {
    const std::string said = refusal("a.json", within);
    CHECK(
        said.starts_with("a.json:1: no field \"text\" (fields: rows); its rows seem to be in "
                         "\"rows\": jq -c '.rows[]' /"));
    CHECK(said.ends_with("/a.json makes a line of each"));
  }
}

// Each document, and whether its place leads to the same one again.
Texts found_again(const std::filesystem::path& file, const TextOptions& options = {}) {
  TextOptions complete = options;
  complete.row_template = options.template_of_rows();
  const MappedFile mapped(file);
  Texts out;
  for_each_document(file, options, [&](const Document& document) {
    CHECK(document_at(mapped, document.place, complete).whole() == whole(document));
    out.push_back(whole(document));
  });
  return out;
}

TEST_CASE("rows that are arrays have numbers as the names of their fields") {
  test::TempFolder folder;
  const TextOptions options{.row_template = std::make_shared<RowTemplate>("{0}={1}", "t")};
  for (const char* rows : {"[\"a\", 1]\n[\"b\", 2.50]\n", "[[\"a\", 1], [\"b\", 2.50]]",
                           "[\n [\"a\", 1],\n [\"b\", 2.50]\n]\n", "[\"a\", 1]\r\n[\"b\",2.50]"}) {
    CAPTURE(rows);
    CHECK(found_again(folder.write("a.json", rows), options) == Texts{"a=1", "b=2.50"});
  }
}

TEST_CASE("a file of columns is no row, unless that is said") {
  const TextOptions options{.row_template = std::make_shared<RowTemplate>("{q}{r}", "t")};
  const char* const columns = R"({"q": ["a", "b"], "r": ["c", "d"]})";
  test::TempFolder folder;
  const auto file = folder.write("a.json", columns);
  const std::string said = test::error_of([&] { documents(file, options); });
  CHECK(said.starts_with(file.string() + ": it holds columns, where rows are read; convert it: "));
  CHECK(said.ends_with("; data.format: jsonl takes it as one row"));
  CHECK(documents(file, {.format = TextFormat::kJsonl, .row_template = options.row_template}) ==
        Texts{"a bc d"});
}

// As datasets.load_dataset("json") reads them.
TEST_CASE("rows in an array, in one line or indented, and objects one behind another") {
  test::TempFolder folder;
  const Texts two{"a [,", "c\nd"};
  for (const char* rows : {"[{\"text\":\"a [,\"},{\"text\":\"c\\nd\"}]",
                           "\xef\xbb\xbf\n[\n  {\n    \"text\": \"a [,\"\n  },\n  {\n    \"n\": "
                           "[1, {\"a\": NaN}],\n    "
                           "\"text\": \"c\\nd\"\n  }\n]\n",
                           "{\n  \"text\": \"a [,\"\n}\n{\n  \"text\": \"c\\nd\"\n}\n",
                           "{ \"n\": [\r\n1],\r\n  \"text\": \"a [,\"}{\"text\":\r\n\"c\\nd\"}",
                           "[\"a [,\",\r\n\"c\\nd\"]"}) {
    CAPTURE(rows);
    CHECK(found_again(folder.write("a.json", rows)) == two);
    CHECK(found_again(folder.write("a.ndjson", rows)) == two);
    CHECK(found_again(folder.write("a", rows), {.format = TextFormat::kJsonl}) == two);
  }
  CHECK(
      test::contains(refusal("a.json", "{\n\"a\": \"" + std::string(size_t{65} << 20, 'x') + "\"}"),
                     "a.json:1: an object of more than 64 MiB: expected rows"));
  // A first row that is cut is one bad row.
  for (const char* cut : {"{", "{\"text\": \"a,", "{\"text\": [\"a {"}) {
    const auto file = folder.write("b.jsonl", std::string(cut) + "\n{\"text\": \"b\"}\n");
    CHECK(documents(file, {.bad_rows = BadRows::kSkip}) == Texts{"b"});
  }
}

TEST_CASE("rows of a table") {
  test::TempFolder folder;
  const auto file =
      folder.write("a.csv", "\xef\xbb\xbfid,text\r\n1,\"a \"\"b\"\",\r\nc\"\r\n2,\r\n");
  CHECK(found_again(file) == Texts{"a \"b\",\r\nc", ""});
  CHECK(found_again(file, {.field = "id"}) == Texts{"1", "2"});
  CHECK(found_again(folder.write("a.TSV", "text\tn\na, b\t1\n")) == Texts{"a, b"});
  CHECK(found_again(folder.write("a.dat", "text\na\n"), {.format = TextFormat::kCsv}) ==
        Texts{"a"});
  const char* const alpaca =
      "instruction,input,output\nSay it,,yes\n\"Add, then say\",\"1\n2\",3\n";
  const Texts prompts = found_again(folder.write("b.csv", alpaca), {.format = TextFormat::kAlpaca});
  REQUIRE(prompts.size() == 2);
  CHECK(test::contains(prompts[0], "### Instruction:\nSay it\n\n### Response:yes"));
  CHECK(test::contains(prompts[1], "Add, then say\n\n### Input:\n1\n2\n\n### Response:3"));
  CHECK(refusal("b.csv", alpaca) ==
        "b.csv:2: no field \"text\" (fields: instruction, input, output); its rows look like "
        "Alpaca's: data.format: alpaca");
  CHECK(refusal("d.csv", "text\na\n\xff\n") == "d.csv:3: invalid UTF-8: byte 0xff at offset 7");
  const auto bad = folder.write("f.csv", "text,n\na,1\nb\n\"c\"d,2\ne,3\n");
  Texts texts;
  const auto skipped = for_each_document(bad, {.bad_rows = BadRows::kSkip},
                                         [&](const Document& d) { texts.push_back(whole(d)); });
  CHECK(texts == Texts{"a", "e"});
  REQUIRE(skipped.size() == 2);
  CHECK(skipped[0].line == 3);
  CHECK(skipped[1].reason.starts_with("malformed table: text behind the closing quote"));
}

TEST_CASE("a file without documents beside files that have some") {
  test::TempFolder folder;
  std::vector<std::filesystem::path> files = {
      folder.write("0.jsonl", ""), folder.write("1.json", "[]"), folder.write("2.csv", "text\n"),
      folder.write("3.txt", "\xef\xbb\xbf"), folder.write("4.jsonl", "\n \n")};
  CHECK(test::error_of([&] { for_each_document(files, {}, [](const Document&) {}); }) ==
        files[0].string() + ": the file is empty, as in the other 4 files");
  files.insert(files.begin() + 2, folder.write("a.jsonl", "{\"text\": \"a\"}\n"));
  files.push_back(folder.write("b.txt", "b"));
  Texts texts;
  const auto left_out = for_each_document(files, {}, [&](const Document& document) {
    texts.push_back(fmt::format("{} of {}", document.text, document.file_number));
  });
  CHECK(texts == Texts{"a of 2", "b of 6"});
  REQUIRE(left_out.size() == 5);
  CHECK(left_out[0] == SkippedRow{files[0].string(), 0, "the file is empty"});
  CHECK(left_out[2] == SkippedRow{files[3].string(), 0, "no rows"});
  CHECK(parse_skipped_rows(to_jsonl(left_out)) == left_out);
}

TEST_CASE("fields that are no JSON are no matter where they are not read") {
  test::TempFolder folder;
  const char* const row = "{\"text\": \"a\", \"score\": NaN, \"best\": -Infinity}\n";
  CHECK(found_again(folder.write("a.jsonl", row)) == Texts{"a"});
}

// Once it was 64 GB that were looked at.
TEST_CASE("many bad rows of a large text cost no look at all of it each") {
  test::TempFolder folder;
  std::string rows = "[{\"text\": \"a\"}";
  for (int row = 0; row < 4000; ++row) rows += ",1";
  const auto file = folder.write("a.json", rows + std::string(size_t{16} << 20, ' ') + "]");
  const auto begin = std::chrono::steady_clock::now();
  CHECK(for_each_document(file, {.bad_rows = BadRows::kSkip}, [](const Document&) {}).size() ==
        4000);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
}

// Of mapped files, in bytes.
size_t resident_of_files() {
  std::ifstream statm("/proc/self/statm");
  size_t all = 0, resident = 0, shared = 0;
  statm >> all >> resident >> shared;
  return shared * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_CASE("skipped rows leave memory as good ones do") {
  test::TempFolder folder;
  constexpr size_t kRow = size_t{1} << 20;
  std::string rows = "{\"text\": \"a\"}\n";
  for (int row = 0; row < 110; ++row) rows += "\xff" + std::string(kRow, 'x') + "\n";
  const auto file = folder.write("a.jsonl", rows + "{\"text\": \"b\"}\n");
  rows.clear();
  size_t first = 0, grown = 0;
  for_each_document(file, {.bad_rows = BadRows::kSkip}, [&](const Document& document) {
    if (document.text == "a") first = resident_of_files();
    if (document.text == "b") grown = resident_of_files() - std::min(first, resident_of_files());
  });
  CHECK(first > 0);
  CHECK(grown < 80 * kRow);
}

// Characters of two bytes, the first of which lies before the end of a piece of 64 MiB.
TEST_CASE("a text that is looked at in pieces") {
  test::TempFolder folder;
  std::string text = "x\n\n";
  while (text.size() < (size_t{65} << 20)) text += "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4";
  size_t bytes = 0;
  const auto read = [&](const std::filesystem::path& file) {
    for_each_document(file, {}, [&](const Document& document) {
      bytes = document.text.size();
      CHECK(document.file != nullptr);
    });
  };
  read(folder.write("a.txt", text));
  CHECK(bytes == text.size());
  text.back() = 'x';
  CHECK(test::contains(
      test::error_of([&] { read(folder.write("a.txt", text)); }),
      fmt::format("a.txt:3: invalid UTF-8: byte 0xc3 at offset {}", text.size() - 2)));
}

TEST_CASE("empty and missing files") {
  CHECK(test::error_of([] {
          for_each_document(std::vector<std::filesystem::path>(), {}, [](const Document&) {});
        }) == "[data] expected at least one file");
  CHECK(refusal("a.txt", "\xef\xbb\xbf") == "a.txt: the file is empty");
  CHECK(test::error_of([] { documents("/no/such.txt"); }) ==
        "/no/such.txt: cannot open: No such file or directory");
  CHECK(test::error_of([] { documents("/"); }) == "/: expected a file, got a folder");
}

}  // namespace
}  // namespace fsdp::data
