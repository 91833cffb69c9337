// What is known of a generation before it begins. Prompts and stop tokens by themselves:
// encoded_prompts_test.cpp.
#include "tools/generate/generation_plan.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Ids = std::vector<int32_t>;

const std::vector<data::Prompt> kPrompts = {{"a", "a", std::nullopt}, {"b", "abc", std::nullopt}};

TEST_CASE(
    "generation plan: stop tokens, vocabulary, how long a text grows and what is seen of it") {
  const test::TempFolder folder;
  folder.write("config.json",
               R"({"model_type": "llama", "vocab_size": 257, "eos_token_id": [7, 300],
                                  "max_position_embeddings": 8})");
  const ModelSource source = {folder.path(), ""};
  const auto plan_of = [&](int64_t tokens, bool ignore_end) {
    return plan_generation(source, kPrompts, "", ignore_end, {.tokens = tokens, .stop = {5}});
  };
  const GenerationPlan plan = plan_of(5, false);
  CHECK(plan.prompts.ids == std::vector<Ids>{{97}, {97, 98, 99}});
  CHECK(plan.options.stop == Ids{5, 7, 300, 256});
  CHECK(plan.options.vocabulary == 257);
  CHECK(plan.longest == 8);
  CHECK(plan.seen == 8);
  REQUIRE(plan.notes.size() == 1);
  CHECK(test::contains(plan.notes[0], "eos_token_id: 300: ends no text"));
  const GenerationPlan longer = plan_of(6, true);
  CHECK(longer.options.stop == Ids{5});
  CHECK(longer.longest == 9);
  CHECK(longer.seen == 8);
  CHECK(note_on_unknown_ids(plan.prompts, {{.ids = {98}}, {.ids = {1}}}) == "");
  CHECK(note_on_unknown_ids(plan.prompts, {{.ids = {98}}, {.ids = {1, 999}}}) ==
        "bytes: it has no token 999: left out of the text");
}

TEST_CASE("generation plan: prompts that are made with the tokenizer at hand") {
  const test::TempFolder folder;
  folder.write(
      "config.json",
      R"({"model_type": "llama", "vocab_size": 257, "max_position_embeddings": 8, "eos_token_id": 7})");
  const auto make = [](const data::Tokenizer& tokenizer, const models::ModelConfig& model) {
    return std::vector<data::Prompt>{
        {"a", std::string(static_cast<size_t>(model.max_positions), 'a'), std::nullopt},
        {"b", std::to_string(tokenizer.vocab_size()), std::nullopt}};
  };
  const GenerationPlan plan = plan_generation({folder.path(), ""}, make, "", false, {.tokens = 2});
  CHECK(plan.prompts.ids == std::vector<Ids>{Ids(8, 97), {50, 53, 55}});
  CHECK(plan.prompts.texts[1] == "257");
  CHECK(plan.options.stop == Ids{7, 256});
  CHECK(plan.longest == 10);
  CHECK(plan.seen == 8);
}

TEST_CASE("generation plan: no model that predicts the token it sees, and no odd sampling") {
  const test::TempFolder folder;
  folder.write(
      "config.json",
      R"({"model_type": "workshop_gpt", "vocab_size": 257, "hidden_size": 8, "num_layers": 1,
                                  "num_heads": 2, "dim_feedforward": 8, "shift_labels": false})");
  const auto error = [&](const GenerationOptions& options) {
    return test::error_of([&] {
      plan_generation({folder.path(), ""}, kPrompts, "", false, options);
    });
  };
  CHECK(test::contains(error({}), "config.json: shift_labels: false"));
  CHECK(test::contains(error({.sampling = {.top_p = 2}}), "top-p: expected"));
}

}  // namespace
}  // namespace fsdp::tools
