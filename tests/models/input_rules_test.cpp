// Which token a position predicts, which tokens are padding, and the positions of the others.
#include "models/input_rules.h"

#include <doctest/doctest.h>

#include "core/kernel_args.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using Ids = std::vector<int32_t>;

TEST_CASE("padding: fairseq finds it in the tokens and counts the others without it") {
  const InputRules fairseq = input_rules(test::tiny_fairseq());
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
  const InputRules fairseq = input_rules(test::tiny_fairseq());
  const Ids tokens = {1, 1, 7, 1, 5, 1, 4, 2};
  const Ids shifted = shifted_labels(tokens, 2, 4);
  CHECK(predicted_targets(fairseq, shifted, {}, 4) == Ids{-100, 7, -100, -100, -100, 4, 2, -100});
  const Ids targets = {3, 4, 5, 6, 7, 8, 9, 10};
  CHECK(predicted_targets(fairseq, targets, padding_mask(fairseq, tokens, {}), 4) ==
        Ids{-100, -100, 5, 6, 7, 8, 9, 10});
  CHECK(predicted_targets(fairseq, targets, {1, 1, 1, 1, 0, 0, 0, 1}, 4) ==
        Ids{3, 4, 5, 6, -100, -100, -100, 10});
  CHECK(predicted_targets(fairseq, targets, {}, 4) == targets);
  const InputRules gpt2 = input_rules(test::tiny_gpt2());
  CHECK(predicted_targets(gpt2, {3, 4, 5, 6}, {0, 0, 1, 1}, 4) == Ids{3, 4, 5, 6});
}

TEST_CASE("padding: the models of transformers know it by a mask alone") {
  for (ModelConfig config : {test::tiny_gpt2(), test::tiny_llama(), test::tiny_bloom()}) {
    config.padding_row = 1;  // pad_token_id
    const InputRules rules = input_rules(config);
    CHECK_FALSE(rules.knows_padding());
    CHECK_FALSE(rules.is_padding(1));
    CHECK(padding_mask(rules, {1, 1, 2}, {}).empty());
    CHECK(padding_mask(rules, {1, 1, 2}, {0, 1, 1}) == Ids{0, 1, 1});
    CHECK(counted_positions(rules, {0, 0, 1, 1, 1, 1}, 3) == Ids{0, 0, 0, 0, 1, 2});
  }
}

TEST_CASE("documents: positions begin again, and nobody predicts a first token") {
  const Ids first_key = {0, 0, 0, 3, 3, 5, 5, 5};
  check_documents(first_key, 8);
  Ids labels = {5, 6, 7, 8, 9, -100, -100, -100};
  ignore_first_labels(labels, first_key, 8);
  CHECK(labels == Ids{-100, 6, 7, -100, 9, -100, -100, -100});
  CHECK(document_positions({}, first_key, 8) == Ids{0, 1, 2, 0, 1, 0, 1, 2});
  CHECK(document_positions({.first_position = 2}, {0, 0, 2, 0, 1, 1}, 3) == Ids{2, 3, 2, 2, 2, 3});
  CHECK(document_pairs(first_key, 8) == 6 + 3 + 6);
  CHECK(document_pairs({}, 8) == 0);
}

TEST_CASE("documents: an impossible first_key is named, with its row") {
  const auto refusal = [](const Ids& first_key) {
    return test::error_of([&] { check_documents(first_key, 3); });
  };
  CHECK(refusal({0, 1, 2, 0, 0, 0}) == "");
  CHECK(refusal({0, 0, 0, 0, 0, 1}) ==
        "[first_key] token 2 of row 1: expected 2, where a document begins, or the value of the "
        "token in front, got 1");
  for (const Ids& wrong : {Ids{1, 1, 1}, Ids{0, 2, 2}, Ids{0, 1, 0}, Ids{-1, 0, 0}}) {
    CHECK(refusal(wrong) != "");
  }
  // A document ends with its row.
  CHECK(refusal({0, 0, 2, 2, 1, 2}) != "");
}

TEST_CASE("shifted labels: each position predicts the next, the last of a row nothing") {
  CHECK(shifted_labels({1, 2, 3, kIgnoreIndex, 5, 6}, 2, 3) ==
        Ids{2, 3, kIgnoreIndex, 5, 6, kIgnoreIndex});
  CHECK(shifted_labels({7}, 1, 1) == Ids{kIgnoreIndex});
  CHECK(test::error_of([] {
          shifted_labels({1, 2, 3}, 2, 2);
        }) == "[labels] expected 2 x 2 values, got 3");
  ModelConfig workshop = test::tiny_workshop();
  CHECK(input_rules(workshop).targets_of_row(6) == 5);
  workshop.shifted_labels = false;
  CHECK(input_rules(workshop).targets_of_row(6) == 6);
}

}  // namespace
}  // namespace fsdp::models
