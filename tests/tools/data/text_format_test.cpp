// Formats by ending, and files that are something else than their ending says.
#include "tools/data/text_format.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using std::string_view_literals::operator""sv;

TEST_CASE("the ending decides, in small or capital letters; the option wins") {
  const std::pair<const char*, TextFormat> files[] = {
      {"a.jsonl", TextFormat::kJsonl},     {"a.json", TextFormat::kJsonl},
      {"a.ndjson", TextFormat::kJsonl},    {"a.jsonlines", TextFormat::kJsonl},
      {"A.JSONL", TextFormat::kJsonl},     {"a.csv", TextFormat::kCsv},
      {"a.Csv", TextFormat::kCsv},         {"a.tsv", TextFormat::kTsv},
      {"a.txt", TextFormat::kText},        {"a.json.txt", TextFormat::kText},
      {"a.md", TextFormat::kText},         {"json", TextFormat::kText},
      {"a.jsonl.part1", TextFormat::kText}};
  for (const auto& [file, format] : files) {
    CAPTURE(file);
    CHECK(format_of(file, TextFormat::kAuto) == format);
    CHECK(format_of(file, TextFormat::kTsv) == TextFormat::kTsv);
  }
  CHECK(has_data_ending("a.NDJSON"));
  CHECK(!has_data_ending("README.md"));
  CHECK(data_endings() == ".jsonl, .json, .ndjson, .jsonlines, .csv, .tsv or .txt");
  CHECK(name_of(TextFormat::kTsv) == "tsv");
  CHECK(name_of(TextFormat::kSynthetic) == "synthetic");
}

struct Fixture {
  test::TempFolder folder;
  // The error without the folder's name.
  std::string refusal(std::string_view name, std::string_view content,
                      TextFormat format = TextFormat::kAuto) {
    const auto file = folder.write(name, content);
    std::string error = test::error_of([&] { check_kind(MappedFile(file), format); });
    const std::string prefix = folder.path().string() + "/";
    for (size_t at = error.find(prefix); at != error.npos; at = error.find(prefix)) {
      error.erase(at, prefix.size());
    }
    return error;
  }
};

TEST_CASE_FIXTURE(Fixture, "files of other kinds are named, with the command that converts") {
  CHECK(refusal("rows.jsonl.gz", "\x1f\x8b\x08") ==
        "rows.jsonl.gz: expected a text of UTF-8, got a file compressed by gzip; convert it: gzip "
        "-dk rows.jsonl.gz");
  CHECK(
      refusal("my table.parquet", "PAR1 .. PAR1") ==
      "my table.parquet: expected a text of UTF-8, got a table of Parquet; convert it: python3 -c "
      "'import sys, datasets as d; d.Dataset.from_parquet(sys.argv[1]).to_json(sys.argv[2])' "
      "'my table.parquet' 'my table.jsonl'");
  const std::tuple<std::string_view, const char*, const char*> kinds[] = {
      {"\x28\xb5\x2f\xfd"sv, "zstd", "zstd -dc a.txt > a.unpacked.txt"},
      {"\xfd"
       "7zXZ\0\0"sv,
       "xz", "xz -dc a.txt > "},
      {"BZh91AY&SY"sv, "bzip2", "bzip2 -dc a.txt > "},
      {"PK\x03\x04"sv, "zip", "unzip a.txt"},
      {"ARROW1\0\0"sv, "Arrow", "read_feather"},
      {"\xff\xff\xff\xff\x10"sv, "Arrow", "from_file"},
      {"SQLite format 3\0"sv, "SQLite", "sqlite3 "},
      {"%PDF-1.4"sv, "PDF", "pdftotext "},
      {"\x93NUMPY"sv, "NumPy", "write it as JSONL or CSV"},
      {"version https://git-lfs.github.com/spec/v1\noid"sv, "Git LFS", "git lfs pull"},
      {"\xff\xfe"
       "a\0"sv,
       "UTF-16", "iconv -f UTF-16 -t UTF-8 a.txt > a.utf8.txt"},
      {"\xfe\xff\0a"sv, "UTF-16", "iconv -f UTF-16 "},
      {"a\0b\0c\0"sv, "UTF-16", "iconv -f UTF-16LE "},
      {"\0a\0b\0c"sv, "UTF-16", "iconv -f UTF-16BE "},
      {"\xff\xfe\0\0a\0\0\0"sv, "UTF-32", "iconv -f UTF-32 "}};
  for (const auto& [content, name, command] : kinds) {
    CAPTURE(name);
    for (const TextFormat format : {TextFormat::kAuto, TextFormat::kText, TextFormat::kJsonl}) {
      const std::string error = refusal("a.txt", content, format);
      CHECK(test::contains(error, name));
      CHECK(test::contains(error, command));
    }
  }
  CHECK(test::contains(refusal("a.txt", "../../blobs/01ab"sv),
                       "a.txt: the text ../../blobs/01ab in the place of a link"));
  CHECK(test::contains(refusal("a.tar", std::string(257, 'x') + "ustar"), "an archive of tar"));
}

TEST_CASE_FIXTURE(Fixture, "compressed files whose names do not say so") {
  const std::pair<const char*, const char*> files[] = {
      {"a.jsonl", "gzip -dc a.jsonl > a.unpacked.jsonl"},
      {"my rows.GZ", "gzip -dc 'my rows.GZ' > 'my rows.unpacked.GZ'"},
      {"rows", "gzip -dc rows > rows.unpacked"}};
  for (const auto& [name, command] : files) {
    CHECK(refusal(name, "\x1f\x8b\x08").ends_with(std::string("convert it: ") + command));
  }
  CHECK(test::contains(refusal("a.json", "\x28\xb5\x2f\xfd"), "zstd -dc a.json > a.unpacked.json"));
  CHECK(test::contains(refusal("a.zst", "\x28\xb5\x2f\xfd"), "zstd -d a.zst"));
  CHECK(test::contains(refusal("a.csv", "\x04\x22\x4d\x18"), "lz4 -dc a.csv > a.unpacked.csv"));
}

TEST_CASE_FIXTURE(Fixture, "a text that begins as another kind does") {
  for (const char* text :
       {"PAR1 is the magic of Parquet", "BZh is a river", "PK", "Object", "7z", ""}) {
    CHECK(refusal("a.txt", text) == "");
  }
  CHECK(test::contains(refusal("ids.bin", "\1\0\2\0\3\0"sv), "a zero byte at offset 1"));
  CHECK(
      test::contains(refusal("a.txt", "abc\0d"sv), "got a binary file (a zero byte at offset 3)"));
  CHECK(refusal("a.txt", "abc\0d"sv, TextFormat::kText) == "");
}

TEST_CASE_FIXTURE(Fixture, "a web page in the place of data, and a table with zero bytes") {
  const char* const page = "<!DOCTYPE html><title>Sign in</title>";
  CHECK(refusal("a.txt", page) ==
        "a.txt: it begins as a web page (HTML), which a download without its login leaves; "
        "data.format: text takes it as it is");
  CHECK(refusal("a.jsonl", page).ends_with("which a download without its login leaves"));
  CHECK(refusal("a.json", page, TextFormat::kSquad) != "");
  CHECK(refusal("a.txt", page, TextFormat::kText) == "");
  CHECK(refusal("a.html", page) == "");
  CHECK(test::contains(refusal("a.csv", "text\na\0"sv),
                       "a zero byte at offset 6); data.format: csv "));
}

TEST_CASE_FIXTURE(Fixture, "rows of JSON in a file whose name says something else") {
  const std::string lines = "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n";
  CHECK(refusal("a.json.txt", lines) ==
        "a.json.txt: it begins with a row of JSON, but its name is that of a plain text: "
        "data.format: "
        "jsonl reads rows, data.format: text takes it as it is");
  CHECK(test::contains(refusal("a.csv", lines),
                       "that of a table: data.format: jsonl reads rows, "
                       "data.format: csv takes it as it is"));
  for (const char* rows :
       {"\xef\xbb\xbf \n{\"a\": NaN}", "[{\"a\": 1}, {", "[\n  {\n \"a\": [1]\n }\n]",
        "{\n  \"a\": 1\n}\n{\n", "{\"a\": 1}{\"a\": 2}", "{\"a\": 1} {\"a\": 2}\n"}) {
    CAPTURE(rows);
    CHECK(refusal("a.txt", rows) != "");
    CHECK(refusal("a.txt", rows, TextFormat::kText) == "");
    CHECK(refusal("a.jsonl", rows) == "");
  }
  for (const char* text : {"{}", "{a}\n", "[1, 2]", "[\"a\"]", "{\"a\": 1} and more\n", "{\"a\": 1",
                           "# {\"a\": 1}", "[link]{\"a\": 1}", "{{\"a\": 1}}"}) {
    CAPTURE(text);
    CHECK(refusal("a.txt", text) == "");
  }
  const std::string tail = std::string(size_t{17} << 20, 'x');
  CHECK(
      test::contains(refusal("a.txt", "{\"a\": \"" + tail + "\"}\n"), "begins with a row of JSON"));
  CHECK(refusal("a.txt", "{ " + tail) == "");
}

}  // namespace
}  // namespace fsdp::data
