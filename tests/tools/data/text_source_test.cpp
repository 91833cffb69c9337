// Documents of text and JSONL files; every mistake is named with file and line.
#include "tools/data/text_source.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

std::vector<std::string> documents(const std::filesystem::path& file,
                                   const TextOptions& options = {}) {
  std::vector<std::string> out;
  for_each_document(file, options, [&](std::string_view text) { out.emplace_back(text); });
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

TEST_CASE("a malformed row is named by its line") {
  std::string rows;
  for (int line = 1; line <= 20; ++line) {
    rows += line == 17 ? "{\"text\": \"cut\n" : "{\"text\": \"fine\"}\n";
  }
  CHECK(test::contains(refusal("a.jsonl", rows), "a.jsonl:17: malformed JSON: "));
  CHECK(test::contains(refusal("a.jsonl", "{\"text\": \"a\"} x\n"), "a.jsonl:1: malformed JSON: "));
  CHECK(test::contains(refusal("a.jsonl", "\n{\"text\": \"\\ud800\"}\n"),
                       "a.jsonl:2: malformed JSON: "));
  CHECK(test::contains(refusal("a.jsonl", "{\"text\": \"a\", \"text\": \"b\"}\n"),
                       "a.jsonl:1: malformed JSON: duplicate key \"text\""));
}

TEST_CASE("rows of another form") {
  CHECK(refusal("a.jsonl", "{\"text\": \"\"}\n{\"b\": 1, \"a\": 2}\n") ==
        "a.jsonl:2: no field \"text\" (fields: a, b)");
  CHECK(refusal("a.jsonl", "{}") == "a.jsonl:1: no field \"text\" (fields: none)");
  CHECK(refusal("a.jsonl", "{\"text\": 5}") ==
        "a.jsonl:1: field \"text\": expected a string, got number");
  CHECK(refusal("a.jsonl", "[1]") == "a.jsonl:1: expected an object, got array");
  CHECK(refusal("a.jsonl", "\n \n") == "a.jsonl: no rows");
}

TEST_CASE("invalid UTF-8 is named by line and byte") {
  CHECK(refusal("a.txt", "ab\ncd\xff") == "a.txt:2: invalid UTF-8: byte 0xff at offset 5");
  CHECK(refusal("a.txt", "\xef\xbb\xbf\n\xc3") == "a.txt:2: invalid UTF-8: byte 0xc3 at offset 4");
  CHECK(refusal("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\xe2\x82\"}\n") ==
        "a.jsonl:2: invalid UTF-8: byte 0xe2 at offset 24");
}

TEST_CASE("empty and missing files") {
  CHECK(refusal("a.txt", "") == "a.txt: the file is empty");
  CHECK(refusal("a.jsonl", "") == "a.jsonl: the file is empty");
  CHECK(refusal("a.txt", "\xef\xbb\xbf") == "a.txt: the file is empty");
  CHECK(test::error_of([] { documents("/no/such.txt"); }) ==
        "/no/such.txt: cannot open: No such file or directory");
  CHECK(test::error_of([] { documents("/"); }) == "/: expected a file, got a folder");
}

}  // namespace
}  // namespace fsdp::data
