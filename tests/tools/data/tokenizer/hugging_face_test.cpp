// tokenizer.json files against the results of Hugging Face's own library
// (tests/fixtures/tokenizers; the whole set, with real vocabularies, lies beside the repository),
// and what is wrong with files.
// Requirements: S1.2.
#include "tools/data/tokenizer/hugging_face.h"

#include <cstdio>
#include <random>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/normalizer.h"
#include "tools/data/tokenizer/tokenizer_check.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_of(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory()) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

void check_equal(const Tokenizer* tokenizer, const fs::path& vectors, int64_t at_least) {
  const tools::TokenizerCheck check = tools::check_tokenizer(tokenizer, vectors);
  for (const std::string& difference : check.differences) FAIL_CHECK(difference);
  CHECK(check.cases >= at_least);
}

TEST_CASE("ids and text of every kind of tokenizer") {
  const std::vector<fs::path> folders = folders_of(test::fixture_path("tokenizers"));
  CHECK(folders.size() == 10);
  for (const fs::path& folder : folders) {
    const HuggingFaceTokenizer tokenizer(folder / "tokenizer.json");
    check_equal(&tokenizer, folder / "vectors.json", 100);
    check_equal(&tokenizer, folder / "decode.json", 50);
  }
  check_equal(nullptr, test::fixture_path("tokenizers/components.json"), 900);
}

TEST_CASE("the whole set") {
  const fs::path shared = test::source_folder() / "../shared";
  const fs::path vectors = shared / "fixtures/tokenizers", files = shared / "data/tokenizers";
  if (!fs::exists(vectors) || !fs::exists(files)) {
    std::printf("[SKIP] ../shared/fixtures/tokenizers or ../shared/data/tokenizers is not there\n");
    return;
  }
  check_equal(nullptr, vectors / "components.json", 900);
  for (const fs::path& folder : folders_of(vectors)) {
    const fs::path own = folder / "tokenizer.json";
    const HuggingFaceTokenizer tokenizer(
        fs::exists(own) ? own : files / (folder.filename().string() + ".json"));
    check_equal(&tokenizer, folder / "vectors.json", 100);
    check_equal(&tokenizer, folder / "decode.json", 50);
  }
}

TEST_CASE("a whole play with real vocabularies, also in stretches") {
  const fs::path data = test::source_folder() / "../shared/data";
  const fs::path play = data / "text/tinyshakespeare.txt";
  if (!fs::exists(play) || !fs::exists(data / "tokenizers")) {
    std::printf("[SKIP] ../shared/data/text or ../shared/data/tokenizers is not there\n");
    return;
  }
  const std::string text = read_file(play);
  const std::pair<const char*, size_t> tokens[] = {
      {"gpt2", 338025}, {"gpt_neox_20b", 340240}, {"llama2_plus_added", 368633}};
  for (const auto& [name, count] : tokens) {
    const fs::path file = data / "tokenizers" / (std::string(name) + ".json");
    const HuggingFaceTokenizer whole(file, text.size()), parts(file, 1000);
    const std::vector<int32_t> ids = whole.encode(text, SpecialTokens::kOmit);
    CHECK(ids.size() == count);  // what tokenizers 0.22.2 makes of the whole file
    CHECK(parts.encodes_in_stretches());
    CHECK(parts.encode(text, SpecialTokens::kOmit) == ids);
    CHECK(whole.decode(ids) == text);
  }
}

TEST_CASE("the comparison finds differences") {
  const fs::path folder = test::fixture_path("tokenizers");
  const HuggingFaceTokenizer tokenizer(folder / "qwen2/tokenizer.json");
  CHECK(tools::check_tokenizer(&tokenizer, folder / "llama3/vectors.json").differences.size() >
        100);
}

TEST_CASE("NFC") {
  const Json config = {{"type", "NFC"}};
  const Normalizer nfc(JsonNode(config, "t.json"));
  const Json cases = read_json_file(test::fixture_path("tokenizers/nfc.json"));
  CHECK(cases.size() == 200);
  for (const Json& c : cases) {
    std::string storage;
    CHECK(std::string(nfc.apply(c["input"].get<std::string>(), storage)) ==
          c["nfc"].get<std::string>());
  }
}

// A blank is put before the first piece only where that piece still begins where the text did.
TEST_CASE("Metaspace's scheme first, after stages that change or cut the beginning of a text") {
  const Json fixture = read_json_file(test::fixture_path("tokenizers/metaspace_first.json"));
  CHECK(fixture["cases"].size() == 100);
  for (const Json& c : fixture["cases"]) {
    Json file = fixture["file"];
    file.update(c["changed"]);
    const HuggingFaceTokenizer tokenizer(file.dump(), c["changed"].dump());
    for (size_t i = 0; i < fixture["texts"].size(); ++i) {
      const std::string text = fixture["texts"][i];
      CAPTURE(tokenizer.name());
      CAPTURE(text);
      CHECK(tokenizer.encode(text, SpecialTokens::kOmit) ==
            c["ids"][i].get<std::vector<int32_t>>());
    }
  }
}

// Words, spaces, added tokens and odd characters in any order.
std::string random_text(std::mt19937& random, const Json& file) {
  std::vector<std::string> parts{
      "the",    "a",      "Word",    "ing",          "lead",   "two words", " ",  " ",
      " ",      "  ",     "\n",      "\t",           "'s",     "1234",      "!?", ".",
      "\u2581", "\u00e9", "e\u0301", "\u4f60\u597d", "\u0301", "\U0001f600"};
  for (const Json& token : file["added_tokens"]) parts.push_back(token["content"]);
  std::string out;
  for (int i = 0; i < 120; ++i) out += parts[random() % parts.size()];
  return out;
}

TEST_CASE("stretches of a text give the ids of the whole") {
  std::mt19937 random(3);
  int in_stretches = 0;
  for (const fs::path& folder : folders_of(test::fixture_path("tokenizers"))) {
    const fs::path file = folder / "tokenizer.json";
    const Json json = read_json_file(file);
    const HuggingFaceTokenizer whole(file), parts(file, 1);
    in_stretches += whole.encodes_in_stretches() ? 1 : 0;
    for (int i = 0; i < 60; ++i) {
      const std::string text = random_text(random, json);
      INFO(folder, ": ", Json(text).dump());
      CHECK(parts.encode(text) == whole.encode(text));
    }
  }
  // Not added_tokens, where "two words" is a token, nor the three whose vocabulary lacks a Latin
  // letter: it might be unknown, and written after the cut.
  CHECK(in_stretches == 6);
}

TEST_CASE("a long text is handed on in stretches") {
  const HuggingFaceTokenizer tokenizer(test::fixture_path("tokenizers/llama3/tokenizer.json"),
                                       1000);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "some words ";
  std::vector<int32_t> all;
  size_t largest = 0;
  tokenizer.encode_to(text, SpecialTokens::kInclude, [&](std::span<const int32_t> ids) {
    largest = std::max(largest, ids.size());
    all.insert(all.end(), ids.begin(), ids.end());
  });
  CHECK(all == tokenizer.encode(text));
  CHECK(largest < 1010);
  CHECK(all.size() > 4000);
}

// Chinese has no such place, and a rank that waits for the tokens must see that they come.
TEST_CASE("a text that cannot be cut tells meanwhile that it goes on") {
  const HuggingFaceTokenizer tokenizer(test::fixture_path("tokenizers/llama3/tokenizer.json"),
                                       1000);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "\u4e2d\u6587\u3002\n";
  int told = 0;
  std::vector<int32_t> all;
  tokenizer.encode_to(text, SpecialTokens::kInclude, [&](std::span<const int32_t> ids) {
    told += ids.empty() ? 1 : 0;
    all.insert(all.end(), ids.begin(), ids.end());
  });
  CHECK(all == tokenizer.encode(text));
  CHECK(told >= 10);
}

TEST_CASE("invalid text is refused") {
  const HuggingFaceTokenizer tokenizer(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  CHECK(test::error_of([&] { tokenizer.encode("ab\xff"); }) ==
        "[tokenizer] text: invalid UTF-8 at byte 2");
}

struct Fixture {
  test::TempFolder folder;
  Json json = read_json_file(test::fixture_path("tokenizers/qwen2/tokenizer.json"));

  fs::path write() { return folder.write("tokenizer.json", json.dump()); }
  // The error after "<file>: ".
  std::string error() {
    const fs::path file = write();
    const std::string all = test::error_of([&] { HuggingFaceTokenizer tokenizer(file); });
    CHECK(test::contains(all, file.string() + ": "));
    return all.substr(std::min(all.size(), file.string().size() + 2));
  }
};

TEST_CASE_FIXTURE(Fixture, "unknown components are named with their place") {
  const Json good = json;
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Nmt"}}}}};
  CHECK(error().starts_with("normalizer.normalizers[0].type: unknown component \"Nmt\"; expected"));
  json = good;
  json["pre_tokenizer"]["pretokenizers"][1]["type"] = "BertPreTokenizer";
  CHECK(error().starts_with(
      "pre_tokenizer.pretokenizers[1].type: unknown component \"BertPreTokenizer\"; "
      "expected"));
  json = good;
  json["post_processor"]["type"] = "BertProcessing";
  CHECK(error().starts_with("post_processor.type: unknown component \"BertProcessing\""));
  json = good;
  json["decoder"]["type"] = "WordPiece";
  CHECK(error().starts_with("decoder.type: unknown component \"WordPiece\""));
  json = good;
  json["model"]["type"] = "WordPiece";
  CHECK(error() == "model.type: unknown model \"WordPiece\"; expected BPE");
  json = good;
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+";
  CHECK(error() ==
        "pre_tokenizer.pretokenizers[0].pattern.Regex: regular expression \"\\w+\": \\w at byte 2 "
        "is not supported");
  json = good;
  json["decoder"]["new_option"] = true;
  CHECK(error().starts_with("decoder: unknown key \"new_option\"; expected"));
  json = good;
  json["extra"] = 1;
  CHECK(error().starts_with("unknown key \"extra\""));
}

TEST_CASE_FIXTURE(Fixture, "malformed files") {
  const Json good = json;
  json.erase("model");
  CHECK(error() == "no key \"model\"");
  json = good;
  json["model"]["vocab"]["!"] = "0";
  CHECK(error() == "model.vocab.!: expected a whole number from 0 to 16777215, got string");
  json = good;
  json["added_tokens"][0].erase("content");
  CHECK(error() == "added_tokens[0]: no key \"content\"");
  json = good;
  json["pre_tokenizer"] = "Split";
  CHECK(error() == "pre_tokenizer: expected an object, got string");
  json = good;
  json["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Merged";
  CHECK(error().starts_with("pre_tokenizer.pretokenizers[0].behavior: unknown behavior"));
  json = Json::array();
  CHECK(error() == "expected an object, got array");
  const fs::path cut = folder.write("cut.json", "{\"model\": {");
  CHECK(test::contains(test::error_of([&] { HuggingFaceTokenizer tokenizer(cut); }),
                       "cut.json:1: malformed JSON"));
}

TEST_CASE_FIXTURE(Fixture, "special tokens around a text must be in the vocabulary") {
  const Json text_a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const Json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {special, text_a, special}},
                            {"pair", Json::array()},
                            {"special_tokens", {{"<s>", {{"ids", {7, 8}}}}}}};
  CHECK(HuggingFaceTokenizer(write()).encode("") == std::vector<int32_t>{7, 8, 7, 8});
  json["post_processor"]["special_tokens"]["<s>"]["ids"] = {99999};
  CHECK(error().starts_with("post_processor.special_tokens.<s>.ids[0]: expected a whole number"));
  json["post_processor"]["special_tokens"] = Json::object();
  CHECK(error() == "post_processor.special_tokens: no key \"<s>\"");
  json["post_processor"]["single"] = Json::array({special});
  json["post_processor"]["special_tokens"] = {{"<s>", {{"ids", {7}}}}};
  CHECK(error() == "post_processor.single: expected the text A, once");
}

// 1200 to 1202: <|endoftext|>, <|im_start|>, <|im_end|>. Of special_tokens_map.json and the class:
// class_rules_test.cpp.
TEST_CASE_FIXTURE(Fixture, "the token that ends a text") {
  const auto end = [&] { return HuggingFaceTokenizer(write()).end_of_text(); };
  CHECK(end() == 1200);  // <|endoftext|>, by its name
  folder.write("config.json", R"({"eos_token_id": [1202, 1200]})");
  CHECK(end() == 1202);
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "<|im_start|>"}})");
  CHECK(end() == 1201);
  const uint64_t identity = HuggingFaceTokenizer(write()).identity();
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<|im_end|>", "added_tokens_decoder": {}})");
  CHECK(end() == 1202);
  CHECK(HuggingFaceTokenizer(write()).identity() != identity);
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "added_tokens_decoder": {}})");
  CHECK(end() == 1205);  // transformers adds it
  CHECK(HuggingFaceTokenizer(write()).encode("a").size() == 1);
  folder.write("tokenizer_config.json", R"({"eos_token": 5, "added_tokens_decoder": {}})");
  CHECK(test::contains(test::error_of([&] { end(); }), "eos_token: expected a string, got number"));
  folder.write("tokenizer_config.json", "{}");
  folder.write("special_tokens_map.json", "{}");
  folder.write("config.json", R"({"eos_token_id": "</s>"})");
  CHECK(test::contains(
      test::error_of([&] { end(); }),
      "config.json: eos_token_id: expected token ids of at most 32 bits, one or a list"));
}

// As transformers 4.57.1 does.
TEST_CASE_FIXTURE(Fixture, "classes that put their begin and end token themselves") {
  using Ids = std::vector<int32_t>;
  const std::string tokens =
      R"("bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "added_tokens_decoder": {})";
  const auto ids = [&](const std::string& name, const std::string& keys) {
    folder.write("tokenizer_config.json",
                 fmt::format(R"({{"tokenizer_class": "{}", {}}})", name, keys));
    return HuggingFaceTokenizer(write()).encode("");
  };
  CHECK(ids("LlamaTokenizerFast", tokens) == Ids{1201});  // what is not said is the class's default
  CHECK(ids("GPTNeoXTokenizer", tokens).empty());
  CHECK(ids("PreTrainedTokenizerFast", R"("add_bos_token": true, )" + tokens).empty());
  CHECK(ids("LlamaTokenizer", R"("add_bos_token": false, "add_eos_token": true, )" + tokens) ==
        Ids{1202});
  const uint64_t identity = HuggingFaceTokenizer(write()).identity();
  CHECK(ids("LlamaTokenizer", R"("add_bos_token": true, "add_eos_token": true, )" + tokens) ==
        Ids{1201, 1202});
  CHECK(HuggingFaceTokenizer(write()).identity() != identity);

  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {7}}, {"tokens", {"<s>"}}}}}}};
  CHECK(ids("LlamaTokenizer", tokens) == Ids{1201});
  CHECK(ids("GPTNeoXTokenizer", tokens).empty());
  CHECK(ids("Qwen2Tokenizer", tokens) == Ids{7});
}

TEST_CASE_FIXTURE(Fixture, "another file is another tokenizer") {
  const uint64_t identity = HuggingFaceTokenizer(write()).identity();
  CHECK(HuggingFaceTokenizer(write()).identity() == identity);
  json["added_tokens"][4]["lstrip"] = true;
  CHECK(HuggingFaceTokenizer(write()).identity() != identity);
  CHECK(HuggingFaceTokenizer(write()).vocab_size() == 1205);
}

// Every stage and nearly every component in a few lines.
Json small_tokenizer() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": true,
                      "rstrip": true, "normalized": false, "special": true},
                     {"id": 9, "content": "a b", "single_word": true, "lstrip": false,
                      "rstrip": false, "normalized": true, "special": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "\u2581"},
      {"type": "Strip", "strip_left": true, "strip_right": true},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "-"}, "behavior": "MergedWithNext", "invert": false},
      {"type": "Digits", "individual_digits": true},
      {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true,
      "byte_fallback": true, "continuing_subword_prefix": null, "end_of_word_suffix": "",
      "ignore_merges": true, "vocab": {"<s>": 0, "<unk>": 1, "\u2581": 2, "a": 3, "b": 4,
        "ab": 5, "<0xC3>": 6, "1": 7, "\u2581a": 8},
      "merges": ["a b", ["\u2581", "a"]]}})");
}

void collect(Json& node, std::vector<Json*>& out) {
  out.push_back(&node);
  if (node.is_structured()) {
    for (Json& child : node) collect(child, out);
  }
}

TEST_CASE_FIXTURE(Fixture, "whatever value stands anywhere, a file loads or gives an error") {
  const std::vector<Json> values{nullptr,
                                 true,
                                 -1,
                                 3,
                                 1e300,
                                 1u << 31,
                                 "",
                                 "a",
                                 "\u2581",
                                 "\\w",
                                 "[",
                                 Json::array(),
                                 Json::array({1}),
                                 Json::object(),
                                 {{"type", "Sequence"}},
                                 {{"Regex", "(a*)*"}}};
  std::vector<Json*> nodes;
  json = small_tokenizer();
  collect(json, nodes);
  REQUIRE(nodes.size() > 90);
  int loaded = 0, refused = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Json& value : values) {
      Json file = small_tokenizer();
      std::vector<Json*> copies;
      collect(file, copies);
      *copies[i] = value;
      try {
        const HuggingFaceTokenizer tokenizer(folder.write("t.json", file.dump()));
        const std::vector<int32_t> ids = tokenizer.encode("<s> a b-ab 11\u00e9  A\u2581b");
        tokenizer.decode(ids);
        ++loaded;
      } catch (const Error&) {  // anything else fails the test
        ++refused;
      }
    }
  }
  CHECK(loaded > 100);
  CHECK(refused > 500);
}

std::vector<std::string> texts_of(const std::vector<Span>& spans, std::string_view text) {
  std::vector<std::string> out;
  for (const Span span : spans) out.emplace_back(span.of(text));
  return out;
}

TEST_CASE("special tokens in a text: where they stand") {
  const HuggingFaceTokenizer qwen(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  const std::string_view text = "a<|im_end|><|im_start|>\u00e9<tool_call><|im_en<|im_end|>";
  const std::vector<Span> expected{{1, 11}, {11, 23}, {43, 53}};  // <tool_call> is no special one
  CHECK(qwen.special_in(text) == expected);
  CHECK(texts_of(qwen.special_in(text), text) ==
        std::vector<std::string>{"<|im_end|>", "<|im_start|>", "<|im_end|>"});
  CHECK(qwen.special_in("").empty());
  CHECK(qwen.special_in("<|im_end|").empty());
  CHECK(ByteTokenizer().special_in(text).empty());
  const HuggingFaceTokenizer mistral(test::fixture_path("tokenizers/mistral_v03/tokenizer.json"));
  CHECK(mistral.special_in(" [INST]</s>") == std::vector<Span>{{1, 7}, {7, 11}});
}

// Special tokens of a text with places that are to be apart, as "token" or "text" of each.
struct Apart {
  const HuggingFaceTokenizer& tokenizer;
  std::string_view text;
  std::vector<std::string> special = {};  // contents of special tokens that are left

  std::vector<int32_t> encode(const std::vector<size_t>& places) {
    const EncodedText got = tokenizer.encode_with_bytes(text, SpecialTokens::kOmit, places);
    REQUIRE(got.ids.size() == got.bytes.size());
    special.clear();
    for (size_t i = 0; i < got.ids.size(); ++i) {
      CHECK(got.bytes[i].begin <= got.bytes[i].end);
      if (!tokenizer.cuts(got.ids[i])) continue;
      special.push_back(*tokenizer.content_of(got.ids[i]) + "@" +
                        std::to_string(got.bytes[i].begin));
    }
    return got.ids;
  }
};

using Contents = std::vector<std::string>;

TEST_CASE("places apart: no special token has bytes on both sides, its text is text") {
  const HuggingFaceTokenizer qwen(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  Apart apart{qwen, "a<|im_end|>b<|im_end|><tool_call>"};
  const std::vector<int32_t> usual = apart.encode({});
  CHECK(usual == qwen.encode(apart.text));
  CHECK(apart.special == Contents{"<|im_end|>@1", "<|im_end|>@12", "<tool_call>@22"});
  // At the ends of a token nothing is cut.
  CHECK(apart.encode({0, 1, 11, 12, 22, 33}) == usual);
  for (const size_t place : {2, 6, 10}) {
    const std::vector<int32_t> ids = apart.encode({place});
    CHECK(apart.special == Contents{"<|im_end|>@12", "<tool_call>@22"});
    CHECK(qwen.decode(ids, SpecialTokens::kInclude) == apart.text);
    CHECK(std::count(ids.begin(), ids.end(), 1202) == 1);
  }
  apart.encode({3, 13});
  CHECK(apart.special == Contents{"<tool_call>@22"});
  apart.encode({24});  // an added token that is not special stays one
  CHECK(apart.special == Contents{"<|im_end|>@1", "<|im_end|>@12", "<tool_call>@22"});
  // As text of a tokenizer without such a token.
  Json file = read_json_file(test::fixture_path("tokenizers/qwen2/tokenizer.json"));
  file["added_tokens"] = Json::array();
  const HuggingFaceTokenizer bare(file.dump(), "bare");
  const std::string_view text = "so <|im_end|>. 1";
  CHECK(qwen.encode_with_bytes(text, SpecialTokens::kOmit, std::vector<size_t>{4}).ids ==
        bare.encode(text));
  // Places are of the text, also behind the stretches that it is encoded in.
  const HuggingFaceTokenizer stretches(test::fixture_path("tokenizers/llama3/tokenizer.json"), 1);
  REQUIRE(stretches.encodes_in_stretches());
  const std::string long_text = "one two three four five <|eot_id|> six <|eot_id|>";
  Apart behind{stretches, long_text};
  behind.encode({25});
  CHECK(behind.special == Contents{"<|eot_id|>@39"});
  behind.encode({40});
  CHECK(behind.special == Contents{"<|eot_id|>@24"});
}

TEST_CASE("places apart: special tokens that are found in the normalised text") {
  const HuggingFaceTokenizer llama(test::fixture_path("tokenizers/llama2_legacy/tokenizer.json"));
  Apart apart{llama, "a <s>b </s>"};  // the blanks are parts of the tokens, as of their patterns
  CHECK(apart.encode({}) == llama.encode(apart.text, SpecialTokens::kOmit));
  CHECK(apart.special == Contents{"<s>@1", "</s>@6"});
  apart.encode({1, 5, 6});
  CHECK(apart.special == Contents{"<s>@1", "</s>@6"});
  apart.encode({3});
  CHECK(apart.special == Contents{"</s>@6"});
  apart.encode({2, 10});
  CHECK(apart.special.empty());
  const HuggingFaceTokenizer gpt2(test::fixture_path("tokenizers/gpt2_merges_old/tokenizer.json"));
  Apart end{gpt2, "a<|endoftext|>b"};
  end.encode({1});
  CHECK(end.special == Contents{"<|endoftext|>@1"});
  const std::vector<int32_t> ids = end.encode({2});
  CHECK(end.special.empty());
  CHECK(gpt2.decode(ids, SpecialTokens::kInclude) == end.text);
}

TEST_CASE("places apart change nothing around a text") {
  const HuggingFaceTokenizer llama(test::fixture_path("tokenizers/llama2_legacy/tokenizer.json"));
  const EncodedText got =
      llama.encode_with_bytes("<s>", SpecialTokens::kInclude, std::vector<size_t>{1});
  CHECK(got.ids.front() == 1);
  CHECK(std::count(got.ids.begin(), got.ids.end(), 1) == 1);
  CHECK(got.bytes.front() == Span{0, 0});
}

}  // namespace
}  // namespace fsdp::data
