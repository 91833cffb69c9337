// The plan of a generation before it begins, its prompts and its stop tokens.
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

using Ids = std::vector<int32_t>;
using test::contains;

struct Folder {
  explicit Folder(int vocabulary) {
    files.write("config.json", fmt::format(R"({{"model_type": "llama", "vocab_size": {},
                  "max_position_embeddings": 4, "eos_token_id": 7}})",
                                           vocabulary));
    model = source().config();
  }
  ModelSource source() const { return {files.path(), ""}; }
  EncodedPrompts encode(const data::Prompt& prompt, const std::string& tokenizer = "") const {
    return encode_prompts({prompt}, tokenizer, source(), model);
  }
  std::string error(const data::Prompt& prompt) const {
    return test::error_of([&] { encode(prompt); });
  }
  test::TempFolder files;
  models::ModelConfig model;
};

TEST_CASE("encoded prompts: texts, and ids that stand for texts") {
  const Folder bytes(257);
  EncodedPrompts text = bytes.encode({"--prompt", "ab", std::nullopt});
  CHECK(text.ids == std::vector<Ids>{{97, 98}});
  CHECK(text.tokenizer_name == "bytes");
  CHECK(bytes.encode({"--prompt", "", std::nullopt}).ids == std::vector<Ids>{{256}});
  const EncodedPrompts ids = bytes.encode({"--ids", "", Ids{97, 98}});
  CHECK(ids.ids == text.ids);
  CHECK(!ids.tokenizer);  // ids in, ids out
  CHECK(bytes.encode({"--ids", "", Ids{97, 98}}, "bytes").texts == std::vector<std::string>{"ab"});
}

TEST_CASE("encoded prompts: what the model cannot read names the prompt's place") {
  const Folder bytes(257);
  CHECK(bytes.error({"p.jsonl:3", "", Ids{1, 257}}) ==
        "p.jsonl:3: token 257 is not in the model's vocabulary of 257");
  CHECK(bytes.error({"p.jsonl:4", "", Ids{-1}}) ==
        "p.jsonl:4: token -1 is not in the model's vocabulary of 257");
  CHECK(bytes.error({"p.txt:1", "abcde", std::nullopt}) ==
        "p.txt:1: the prompt has 5 tokens, the model has 4 positions");
  CHECK(contains(Folder(2000).error({"--prompt", "a", std::nullopt}),
                 "its vocabulary of 2000 tokens is not the byte tokenizer's (257)"));
}

TEST_CASE("stop ids: those given, the folder's, the tokenizer's") {
  const Folder bytes(257);
  const EncodedPrompts text = bytes.encode({"--prompt", "ab", std::nullopt});
  const auto stop = [&](Ids given, bool ignore_end) {
    add_stop_ids(ignore_end, bytes.source(), bytes.model, text, given);
    return given;
  };
  CHECK(stop({5}, false) == Ids{5, 7, 256});
  CHECK(stop({5}, true) == Ids{5});
  CHECK(test::error_of([&] { stop({257}, true); }) ==
        "--stop-ids: token 257 is not in the model's vocabulary of 257");
}

}  // namespace
}  // namespace fsdp::tools
