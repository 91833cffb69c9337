// The byte tokenizer as a tokenizer.json: Hugging Face's library makes the same ids of it
// (fixtures/byte_tokenizer.json), and it is read back as the byte tokenizer.
#include "tools/data/tokenizer/byte_tokenizer_file.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/hugging_face.h"
#include "tools/data/tokenizer/tokenizer_check.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

TEST_CASE(
    "byte tokenizer file: the library's ids are the bytes, also of what it reads of the file") {
  const test::TempFolder folder;
  write_byte_tokenizer(folder.path());
  const HuggingFaceTokenizer read(folder / "tokenizer.json");
  const ByteTokenizer bytes;
  for (const Tokenizer* tokenizer :
       {static_cast<const Tokenizer*>(&read), static_cast<const Tokenizer*>(&bytes)}) {
    const auto check = tools::check_tokenizer(tokenizer, test::fixture_path("byte_tokenizer.json"));
    for (const std::string& difference : check.differences) FAIL_CHECK(difference);
    CHECK(check.cases == 4);
  }
  CHECK(read.vocab_size() == 257);
  CHECK(read.end_of_text() == 256);
}

TEST_CASE("byte tokenizer file: transformers gives a model what every family takes") {
  const test::TempFolder folder;
  write_byte_tokenizer(folder.path());
  CHECK(read_json_file(folder / "tokenizer_config.json")["model_input_names"] ==
        Json::array({"input_ids", "attention_mask"}));
}

TEST_CASE("byte tokenizer file: it is the byte tokenizer again, also as transformers writes it") {
  const test::TempFolder folder;
  write_byte_tokenizer(folder.path());
  const fs::path file = folder / "tokenizer.json";
  for (const int version : {0, 4, 5}) {
    Json json = Json::parse(read_file(file));
    if (version >= 4) {
      json["added_tokens"] = Json::array({Json{{"id", 256}, {"content", "<|endoftext|>"}}});
    }
    if (version >= 5) {
      json["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", Json::array({Json{{"Sequence", {{"id", "A"}}}}})},
                                {"special_tokens", Json::object()}};
    }
    folder.write("tokenizer.json", json.dump());
    CHECK(is_byte_tokenizer(file));
    CHECK(default_tokenizer(folder.path().string()) == "bytes");
    CHECK(make_tokenizer(file.string())->identity() == ByteTokenizer().identity());
  }
}

TEST_CASE("byte tokenizer file: what is another tokenizer") {
  const test::TempFolder folder;
  write_byte_tokenizer(folder.path());
  const fs::path file = folder / "tokenizer.json";
  const Json own = Json::parse(read_file(file));
  const auto is_other = [&](const std::function<void(Json&)>& change) {
    Json json = own;
    change(json);
    folder.write("tokenizer.json", json.dump());
    return !is_byte_tokenizer(file);
  };
  CHECK_FALSE(is_other([](Json&) {}));
  CHECK(is_other([](Json& json) { json["model"]["vocab"]["hi"] = 257; }));
  CHECK(is_other([](Json& json) { json["normalizer"] = {{"type", "NFC"}}; }));
  CHECK(is_other([](Json& json) { json["pre_tokenizer"]["add_prefix_space"] = true; }));
  CHECK(is_other([](Json& json) {
    json["added_tokens"] = Json::array({Json{{"id", 257}, {"content", "<|im_end|>"}}});
  }));
  CHECK(is_other([](Json& json) {
    json["post_processor"] = {{"single", Json::array({Json{{"SpecialToken", {{"id", "a"}}}}})}};
  }));
  folder.write("tokenizer.json", "[");
  CHECK_FALSE(is_byte_tokenizer(file));
  CHECK_FALSE(is_byte_tokenizer(folder / "none.json"));
  CHECK_FALSE(is_byte_tokenizer(test::fixture_path("tokenizers/qwen2/tokenizer.json")));
}

}  // namespace
}  // namespace fsdp::data
