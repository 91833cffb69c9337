// Texts for users: numbers of bytes, counts with their nouns, lists that stop at ten lines, words
// of a shell, the name that a mistyped one probably meant.
#include <limits>

#include <doctest/doctest.h>

#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "core/text/listed.h"
#include "core/text/numbers.h"
#include "core/text/shell_word.h"
#include "core/text/similar_names.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("byte size: as a user writes it") {
  const auto parsed = [](const char* text) { return parse_byte_size(text, "size"); };
  CHECK(parsed("5GB") == 5'000'000'000);
  CHECK(parsed("300mb") == 300'000'000);
  CHECK(parsed("2GiB") == int64_t{2} << 30);
  CHECK(parsed("4096") == 4096);
  CHECK(parsed("1.5GiB") == int64_t{3} << 29);
  CHECK(parsed("0.3MB") == 300'000);
  for (const char* bad : {"", "GB", "0GB", "-1GB", "1.5", "0.1", "1e3MB", "infGB", "nan", "5 GB",
                          "5XB", "9999999999TB"}) {
    CHECK(test::error_of([&] {
            parsed(bad);
          }).starts_with("size: expected one like 5GB, 300MB or 2GiB, got \""));
  }
}

TEST_CASE("byte size: as a message says it") {
  CHECK(byte_size_text(0) == "0 bytes");
  CHECK(byte_size_text(1048575) == "1048575 bytes");
  CHECK(byte_size_text(1048576 + 262144) == "1.25 MiB");
  CHECK(byte_size_text(size_t{40} << 30) == "40.00 GiB");
}

TEST_CASE("counted: one of a noun, or several") {
  CHECK(counted(1, "rank") == "1 rank");
  CHECK(counted(0, "rank") == "0 ranks");
  CHECK(counted(2, "GPU") == "2 GPUs");
  CHECK(counted(3, "pass") == "3 passes");
}

TEST_CASE("listed: each on its line, behind its kind") {
  CHECK(listed({}, "missing") == "");
  CHECK(listed({"a", "b"}, "missing") == "\n  missing: a\n  missing: b");
  CHECK(listed({"a"}) == "\n  a");
}

TEST_CASE("listed: of more than ten the rest is a number") {
  std::string lines;
  for (size_t i = 0; i < kMostListed; ++i) lines += "\n  odd: x";
  CHECK(listed(std::vector<std::string>(10, "x"), "odd") == lines);
  CHECK(listed(std::vector<std::string>(26, "x"), "odd") == lines + "\n  odd: 16 more");
}

TEST_CASE("a count has a comma before every three digits") {
  CHECK(format_count(7) == "7");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(1234567) == "1,234,567");
  CHECK(format_count(-999) == "-999");
  CHECK(format_count(-1000) == "-1,000");
}

TEST_CASE("a value has every digit, and no sign where it is no number") {
  CHECK(format_value(0.1) == "0.1");
  CHECK(format_value(-std::numeric_limits<double>::infinity()) == "-inf");
  CHECK(format_value(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(format_fixed(-std::numeric_limits<double>::quiet_NaN(), 4) == "nan");
  CHECK(format_fixed(2.00006, 4) == "2.0001");
  CHECK(format_fixed(-std::numeric_limits<double>::infinity(), 4) == "-inf");
}

TEST_CASE("shell word: what the shell reads as it is, and what it does not") {
  CHECK(shell_word("models/my-model_1.0/x.json") == "models/my-model_1.0/x.json");
  CHECK(shell_word("my model") == "'my model'");
  CHECK(shell_word("$HOME") == "'$HOME'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("") == "''");
}

TEST_CASE("edit distance") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("same", "same") == 0);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("stpes", "steps") == 1);  // neighbours swapped
}

TEST_CASE("the nearest key, also when it belongs to another section") {
  const std::vector<std::string> keys{"train.lr", "train.steps", "data.train", "train"};
  CHECK(nearest_key("train.step", keys) == "train.steps");
  CHECK(nearest_key("lr", keys) == "train.lr");
  CHECK(nearest_key("data.steps", keys) == "train.steps");
  CHECK(nearest_key("trian", keys) == "train");
  CHECK(nearest_key("x", {}) == "");
}

TEST_CASE("what may have been meant") {
  CHECK(resembles("trian", "train"));
  CHECK(resembles("max-tokens", "tokens") == false);
  CHECK(resembles("gpt2-mediun", "gpt2-medium"));
  CHECK(!resembles("amsgrad", "lora"));
  CHECK(!resembles("walk", "trace"));
}

}  // namespace
}  // namespace fsdp
