// Spaces that a decoded text is written without.
#include <doctest/doctest.h>

#include "tools/data/tokenizer/decoder.h"

namespace fsdp::data {
namespace {

TEST_CASE("clean up: spaces before marks and endings") {
  CHECK(clean_up_spaces("Hi , he 's it . do n't ! I 'm ' a ' ?") == "Hi, he's it. don't! I'm'a '?");
  CHECK(clean_up_spaces("") == "");
  CHECK(clean_up_spaces(" ") == " ");
}

// Where each one moved the rest, this took minutes.
TEST_CASE("clean up: as many as there are") {
  constexpr int kTimes = 1 << 20;
  std::string text, expected;
  for (int i = 0; i < kTimes; ++i) text += "a .", expected += "a.";
  CHECK(clean_up_spaces(text) == expected);
}

TEST_CASE("clean up: what more text may change") {
  CHECK(may_be_cleaned_up("a "));
  CHECK(may_be_cleaned_up("a n'"));
  CHECK(!may_be_cleaned_up("an'"));
  CHECK(!may_be_cleaned_up("a n't"));
}

}  // namespace
}  // namespace fsdp::data
