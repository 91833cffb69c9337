// The byte tokenizer gives every byte its own number and back.
#include "tools/data/tokenizer.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

TEST_CASE("bytes there and back") {
  const auto tokenizer = make_tokenizer("bytes");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::vector<int32_t> ids = tokenizer->encode(all);
  REQUIRE(ids.size() == 256);
  for (int32_t i = 0; i < 256; ++i) CHECK(ids[static_cast<size_t>(i)] == i);
  CHECK(tokenizer->decode(ids) == all);
  CHECK(tokenizer->encode("").empty());
}

TEST_CASE("end of text is the last of the vocabulary and prints as nothing") {
  const ByteTokenizer tokenizer;
  CHECK(tokenizer.vocab_size() == 257);
  CHECK(tokenizer.end_of_text() == 256);
  const std::vector<int32_t> ids{'a', 256, 'b'};
  CHECK(tokenizer.decode(ids) == "ab");
}

TEST_CASE("ids outside the vocabulary and unknown tokenizers") {
  const ByteTokenizer tokenizer;
  for (const int32_t id : {-1, 257}) {
    const std::vector<int32_t> ids{id};
    CHECK(test::error_of([&] { tokenizer.decode(ids); }) ==
          "[decode] token: expected 0 to 256, got " + std::to_string(id));
  }
  CHECK(test::error_of([] { make_tokenizer("gpt2"); }) ==
        "tokenizer: expected bytes or the path of a tokenizer.json, got \"gpt2\"");
}

}  // namespace
}  // namespace fsdp::data
