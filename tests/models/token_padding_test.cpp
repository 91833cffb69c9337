// Which tokens are padding, and the positions of the others.
#include "models/token_padding.h"

#include <doctest/doctest.h>

#include "models/causal_lm.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("padding: fairseq finds it in the tokens and counts the others without it") {
  const ModelConfig fairseq = test::tiny_fairseq();
  const Ids tokens = {5, 1, 7, 9, 1, 1, 4, 2};
  const Ids mask = padding_mask(fairseq, tokens, {});
  CHECK(mask == Ids{1, 0, 1, 1, 0, 0, 1, 1});
  CHECK(counted_positions(fairseq, mask, 4) == Ids{2, 1, 3, 4, 1, 1, 2, 3});
  CHECK(padding_mask(fairseq, tokens, {1, 1, 0, 1, 0, 1, 1, 1}) == Ids{1, 0, 0, 1, 0, 0, 1, 1});
  CHECK(padding_mask(fairseq, {5, 2, 7}, {}).empty());
  CHECK(padding_mask(fairseq, {5, 2, 7}, {0, 1, 1}) == Ids{0, 1, 1});
  CHECK(test::error_of([&] {
          padding_mask(fairseq, {5, 2}, {1});
        }) == "[attention_mask] expected 2 values, got 1");
}

TEST_CASE("padding: no target before the first token of a row, nor padding as one") {
  const ModelConfig fairseq = test::tiny_fairseq(), gpt2 = test::tiny_gpt2();
  const Ids tokens = {1, 1, 7, 1, 5, 1, 4, 2};
  const Ids labels = target_labels(fairseq, tokens, 2, 4);
  CHECK(labels == Ids{-100, 7, -100, -100, -100, 4, 2, -100});
  Ids targets = {3, 4, 5, 6, 7, 8, 9, 10};
  ignore_leading_padding(fairseq, padding_mask(fairseq, tokens, {}), 4, targets);
  CHECK(targets == Ids{-100, -100, 5, 6, 7, 8, 9, 10});
  ignore_leading_padding(fairseq, {1, 1, 1, 1, 0, 0, 0, 1}, 4, targets);
  CHECK(targets == Ids{-100, -100, 5, 6, -100, -100, -100, 10});
  ignore_leading_padding(fairseq, {}, 4, targets);
  CHECK(targets[2] == 5);
  targets = {3, 4, 5, 6};
  ignore_leading_padding(gpt2, {0, 0, 1, 1}, 4, targets);
  CHECK(targets == Ids{3, 4, 5, 6});
}

TEST_CASE("padding: the models of transformers know it by a mask alone") {
  for (ModelConfig config : {test::tiny_gpt2(), test::tiny_llama(), test::tiny_bloom()}) {
    config.padding_row = 1;  // pad_token_id
    CHECK_FALSE(is_padding(config, 1));
    CHECK(padding_mask(config, {1, 1, 2}, {}).empty());
    CHECK(padding_mask(config, {1, 1, 2}, {0, 1, 1}) == Ids{0, 1, 1});
    CHECK(counted_positions(config, {0, 0, 1, 1, 1, 1}, 3) == Ids{0, 0, 0, 0, 1, 2});
  }
}

}  // namespace
}  // namespace fsdp::models
