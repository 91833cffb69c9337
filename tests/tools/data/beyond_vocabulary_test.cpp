// A tokenizer that is larger than its model: texts that have such a token, and padding.
#include "tools/data/beyond_vocabulary.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

// Bytes, of which the model lacks those from 'x' on.
constexpr int64_t kRows = 'x';

struct Fixture {
  // What is said of a file of this text.
  std::string error(const std::string& name, const std::string& text) {
    source.files = {folder.write(name, text)};
    const auto cache = folder / (name + ".tokens");
    make_token_cache(cache, source, tokenizer);
    const TokenCache opened(cache, tokenizer);
    const std::string all =
        test::error_of([&] { check_tokens_below(kRows, opened, source, tokenizer); });
    CHECK(
        (all.empty() || all.starts_with(source.subset ? "data.subset" : source.files[0].string())));
    return all.substr(std::min(all.size(), source.files[0].string().size()));
  }
  test::TempFolder folder;
  ByteTokenizer tokenizer;
  TokenSource source{.document_separator = false};
};

TEST_CASE_FIXTURE(Fixture, "beyond the vocabulary: the token and its place are named") {
  CHECK(error("a.txt", "abc\nw") == "");
  CHECK(error("b.txt", "abc\nwwxyz") ==
        ":2: token 120 (\"x\") is beyond the model's vocabulary of 120");
  source.form = RowForm::kWhole;
  CHECK(error("c.jsonl", "{\"text\": \"w\"}\n\n{\"text\": \"az\"}\n{\"text\": \"x\"}\n") ==
        ":3: token 122 (\"z\") is beyond the model's vocabulary of 120");
  source.document_separator = true;
  CHECK(
      error("d.jsonl", "{\"text\": \"w\"}\n") ==
      ":1: token 256 (\"\") is beyond the model's vocabulary of 120; data.document_separator puts "
      "it behind each document");
}

TEST_CASE_FIXTURE(Fixture, "beyond the vocabulary: beside a file that is empty") {
  source.files = {folder.write("0.txt", ""), folder.write("1.txt", "a"),
                  folder.write("2.txt", "a\nz")};
  const auto cache = folder / "tokens";
  make_token_cache(cache, source, tokenizer);
  const TokenCache opened(cache, tokenizer);
  CHECK(test::error_of([&] { check_tokens_below(kRows, opened, source, tokenizer); }) ==
        source.files[2].string() + ":2: token 122 (\"z\") is beyond the model's vocabulary of 120");
}

TEST_CASE_FIXTURE(Fixture, "beyond the vocabulary: of a subset the row is counted in its order") {
  source.form = RowForm::kWhole;
  const std::string rows = "{\"text\": \"w\"}\n{\"text\": \"x\"}\n";
  std::vector<bool> told;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    source.subset = RowSubset{.n = 1, .seed = seed};
    told.push_back(!error(fmt::format("a{}.jsonl", seed), rows).empty());
  }
  CHECK(std::count(told.begin(), told.end(), true) > 0);  // only where the second row is taken
  CHECK(std::count(told.begin(), told.end(), false) > 0);
}

// As a tokenizer with a pad_token of its own.
struct Padded : ByteTokenizer {
  int32_t padding() const override { return 300; }
};

TEST_CASE("beyond the vocabulary: padding is a token that the model has") {
  CHECK(padding_below(301, Padded()) == 300);
  CHECK(padding_below(300, Padded()) == 256);
  CHECK(padding_below(256, Padded()) == 0);
  CHECK(padding_below(INT64_MAX, ByteTokenizer()) == 256);
}

}  // namespace
}  // namespace fsdp::data
