// The byte tokenizer gives every byte its own number and back.
#include "tools/data/tokenizer/tokenizer.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

void copy_files(const std::filesystem::path& name, const std::filesystem::path& to) {
  copy_tokenizer_files(name.string(), *make_tokenizer(name.string()), to);
}

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

TEST_CASE("the bytes of tokens, and the tokens of bytes") {
  const EncodedText got = make_tokenizer("bytes")->encode_with_bytes("h\u00e9");
  CHECK(got.ids == std::vector<int32_t>{'h', 0xc3, 0xa9});
  CHECK(got.bytes == std::vector<Span>{{0, 1}, {1, 2}, {2, 3}});

  // A begin token, a prefix, "abc", nothing of "de", a blank put before "fg", and "h" of two.
  const std::vector<Span> tokens{{0, 0}, {0, 0}, {0, 3}, {5, 5}, {5, 7}, {7, 8}, {7, 8}};
  CHECK(tokens_that_cover(tokens, {0, 1}) == Span{2, 3});
  CHECK(tokens_that_cover(tokens, {2, 6}) == Span{2, 5});
  CHECK(tokens_that_cover(tokens, {7, 8}) == Span{5, 7});
  CHECK(tokens_that_cover(tokens, {3, 5}) == Span{});
  CHECK(tokens_that_cover(tokens, {6, 6}) == Span{});
  CHECK(tokens_that_begin_in(tokens, {0, 5}) == Span{0, 3});
  CHECK(tokens_that_begin_in(tokens, {1, 6}) == Span{3, 5});
  CHECK(tokens_that_begin_in(tokens, {6, 99}) == Span{5, 7});
  CHECK(tokens_that_begin_in(tokens, {1, 5}) == Span{});
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
          "token " + std::to_string(id) + ": the tokenizer bytes has the ids 0 to 256");
  }
  CHECK(test::error_of([] { make_tokenizer("gpt2"); }) ==
        "tokenizer: expected bytes or the path of a tokenizer.json, got \"gpt2\"");
}

TEST_CASE("the tokenizer of a folder") {
  const test::TempFolder folder;
  CHECK(default_tokenizer("") == "bytes");
  CHECK(default_tokenizer(folder.path().string()) == "bytes");
  const std::filesystem::path source = test::fixture_path("tokenizers/qwen2/tokenizer.json");
  copy_tokenizer_files(source.string(), *make_tokenizer(source.string()), folder.path());
  const std::string name = default_tokenizer(folder.path().string());
  CHECK(name == (folder / "tokenizer.json").string());
  for (const std::string& same : {name, folder.path().string()}) {
    const auto tokenizer = make_tokenizer(same);
    CHECK(tokenizer->name() == name);
    CHECK(tokenizer->identity() == make_tokenizer(source.string())->identity());
  }
}

TEST_CASE("a copy is the same tokenizer beside a model of any type") {
  const test::TempFolder from, to;
  const auto check = [&](const std::string& expected) {
    to.write("config.json", R"({"model_type": "llama"})");
    copy_files(from.path(), to.path());
    CHECK(read_json_file(to / "tokenizer_config.json") == Json::parse(expected));
    const auto copy = make_tokenizer(to.path().string());
    CHECK(copy->identity() == make_tokenizer(from.path().string())->identity());
    CHECK(copy->note() == "");
  };
  Json file = read_json_file(test::fixture_path("tokenizers/gpt_neox/tokenizer.json"));
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  from.write("tokenizer.json", file.dump());
  check(R"({"add_prefix_space": true, "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|endoftext|>"})");
  from.write("config.json", R"({"model_type": "gpt_neox"})");
  check(R"({"tokenizer_class": "GPTNeoXTokenizerFast"})");
  from.write("tokenizer_config.json", R"({"eos_token": "<|endoftext|>"})");
  check(R"({"eos_token": "<|endoftext|>", "tokenizer_class": "GPTNeoXTokenizerFast"})");
  from.write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})");
  check(R"({"tokenizer_class": "GPT2Tokenizer"})");
}

TEST_CASE("ids that a tokenizer does not have, which its text leaves out") {
  const std::string file = test::fixture_path("tokenizers/qwen2/tokenizer.json").string();
  const auto tokenizer = make_tokenizer(file);
  const std::vector<int32_t> known{39, 672}, some{39, 70'000, -1, 70'000, 672};
  CHECK(note_on_unknown_ids(*tokenizer, known) == "");
  CHECK(note_on_unknown_ids(*tokenizer, some) ==
        file + ": it has no token -1, 70000: left out of the text");
  CHECK(tokenizer->decode(some) == tokenizer->decode(known));
  std::vector<int32_t> many(10);
  for (int32_t i = 0; i < 10; ++i) many[static_cast<size_t>(i)] = 80'000 + i;
  CHECK(test::contains(note_on_unknown_ids(*tokenizer, many), "80006, 80007 and 2 more: left"));
  CHECK(note_on_unknown_ids(ByteTokenizer(), std::vector<int32_t>{256}) == "");
}

TEST_CASE("which files are copied") {
  const test::TempFolder from, to, other;
  const std::string text = read_file(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  from.write("tokenizer.json", text);
  from.write("tokenizer_config.json", "{}");
  from.write("config.json", "{}");
  copy_files(from.path(), to.path());
  CHECK(read_file(to / "tokenizer.json") == text);
  CHECK(std::filesystem::exists(to / "tokenizer_config.json"));
  CHECK(!std::filesystem::exists(to / "config.json"));
  from.write("mine.json", text);
  copy_files(from / "mine.json", other.path());
  CHECK(read_file(other / "tokenizer.json") == text);
  CHECK(read_json_file(other / "tokenizer_config.json") ==
        Json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", "<|endoftext|>"}});
  const test::TempFolder bytes;
  copy_files("bytes", bytes.path());
  CHECK(default_tokenizer(bytes.path().string()) == "bytes");
  CHECK(std::filesystem::exists(bytes / "tokenizer.json"));
}

TEST_CASE("a copy names the token that ends a text, in each file that says it") {
  const test::TempFolder from, to;
  const auto eos_of = [&](const char* file) { return read_json_file(to / file).at("eos_token"); };
  from.write("tokenizer.json", read_file(test::fixture_path("tokenizers/gpt_neox/tokenizer.json")));
  from.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  from.write("special_tokens_map.json", R"({"pad_token": "<|padding|>"})");
  copy_files(from.path(), to.path());
  CHECK(eos_of("tokenizer_config.json") == "<|endoftext|>");
  CHECK(eos_of("special_tokens_map.json") == "<|endoftext|>");
  const auto copied = make_tokenizer(to.path().string());
  CHECK(copied->end_of_text() == make_tokenizer(from.path().string())->end_of_text());
  CHECK(copied->named().end_is_said);
}

TEST_CASE("all chat templates are copied") {
  const test::TempFolder from, to;
  std::filesystem::create_directory(from / "additional_chat_templates");
  CHECK_FALSE(copy_chat_templates(from.path(), to.path()));
  from.write("chat_template.jinja", "usual");
  from.write("additional_chat_templates/tool_use.jinja", "tools");
  CHECK(copy_chat_templates(from.path(), to.path()));
  CHECK(read_file(to / "chat_template.jinja") == "usual");
  CHECK(read_file(to / "additional_chat_templates/tool_use.jinja") == "tools");
}

}  // namespace
}  // namespace fsdp::data
