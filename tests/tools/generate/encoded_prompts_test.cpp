// Prompts of a folder without tokenizer.json: bytes where the vocabulary is that of bytes, else
// ids.
#include "tools/generate/encoded_prompts.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

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
                 "its vocabulary of 2000 tokens is not that of the built-in byte tokenizer (257)"));
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
