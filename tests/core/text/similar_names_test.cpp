// Which known name a mistyped one probably meant.
#include "core/text/similar_names.h"

#include <doctest/doctest.h>

namespace fsdp {
namespace {

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
