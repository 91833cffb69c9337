// Folders of every class, with each key there, not there and contradicting: the ids and texts of
// transformers (fixtures/tokenizers/class_folders.json, by tests/differential/class_fixtures.py).
// And what is noted or refused.
#include "tools/data/tokenizer/class_rules.h"

#include <set>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/hugging_face.h"
#include "tools/data/tokenizer/tokenizer_class.h"

namespace fsdp::data {
namespace {

// Keys in the order of the file: extra_special_tokens are added so.
const Json& fixture() {
  static const Json json =
      Json::parse(read_file(test::fixture_path("tokenizers/class_folders.json")));
  return json;
}

// A folder with one of the fixture's files tokenizer.json.
struct Folder {
  test::TempFolder folder;

  explicit Folder(const std::string& kind = "level") {
    folder.write("tokenizer.json", fixture().at("tokenizers").at(kind).dump());
  }
  void config(const std::string& keys) { folder.write("tokenizer_config.json", keys); }
  HuggingFaceTokenizer open() { return HuggingFaceTokenizer(folder / "tokenizer.json"); }
  std::string error(const std::string& keys) {
    config(keys);
    return test::error_of([&] { open(); });
  }
  std::string note(const std::string& keys) {
    config(keys);
    return open().note();
  }
};

void write_files(const Json& made, Folder& to) {
  if (made.contains("file")) {
    for (const auto& [name, contents] : fixture().at("files").at(made.at("file").text()).items()) {
      to.folder.write(name, contents.dump());
    }
  }
  if (made.contains("config")) to.folder.write("config.json", made.at("config").dump());
  if (!made.contains("changes")) return;
  Json keys = made.value("keys", Json::object());
  for (const Json& change : made.at("changes")) {
    keys.update(fixture().at("changes").at(change.text()));
  }
  to.config(keys.dump());
}

void check(const Json& made) {
  const std::string kind = made.at("tokenizer").text();
  Folder folder(kind);
  write_files(made, folder);
  if (made.contains("raises")) {
    std::string note;
    const std::string said = test::error_of([&] { note = folder.open().note(); }) + note;
    CHECK(said != "");
    return;
  }
  const HuggingFaceTokenizer tokenizer = folder.open();
  const Json& result = fixture().at("results").at(made.at("result").get<size_t>());
  const auto ids = result.at("ids").get<std::vector<int32_t>>();
  CHECK(tokenizer.encode(fixture().at("text").text()) == ids);
  CHECK(tokenizer.decode(ids) == result.at("text").text());
  // A class's own token that the vocabulary lacks closes no document here.
  const auto known =
      static_cast<int32_t>(fixture().at("tokenizers").at(kind).at("model").at("vocab").size());
  const int32_t end = made.value("eos", -1), padding = made.value("pad", -1);
  if (end >= 0 && end < known) CHECK(tokenizer.end_of_text() == end);
  if (padding >= 0 && padding < known) CHECK(tokenizer.padding() == padding);
}

TEST_CASE("class rules: ids and texts of every class, key by key") {
  std::set<std::string> classes;
  int64_t folders = 0;
  for (const Json& made : fixture().at("folders")) {
    INFO(made.dump());
    check(made);
    ++folders;
    if (made.contains("class")) classes.insert(made.at("class").text());
  }
  CHECK(folders > 300);
  CHECK(classes.size() == tokenizer_classes().size());
}

TEST_CASE("class rules: a like of a tokenizer.json made in memory follows its folder, too") {
  Folder folder;
  const std::string json = fixture().at("tokenizers").at("level").dump();
  folder.config(R"({"tokenizer_class": "LlamaTokenizer"})");
  const HuggingFaceTokenizer made(json, "vocab.json", folder.folder.path());
  CHECK(made.encode("the") == folder.open().encode("the"));
  CHECK(made.encode("the") != HuggingFaceTokenizer(json, "vocab.json").encode("the"));
}

TEST_CASE_FIXTURE(Folder, "class rules: what changes ids is part of the identity") {
  std::set<uint64_t> identities{open().identity()};
  for (const char* keys :
       {R"({"tokenizer_class": "GPT2Tokenizer"})",
        R"({"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": true})",
        R"({"tokenizer_class": "GPT2Tokenizer", "split_special_tokens": true})",
        R"({"tokenizer_class": "GPT2Tokenizer", "pad_token": "<x>"})",
        R"({"tokenizer_class": "GPT2Tokenizer", "additional_special_tokens": ["<n>"]})",
        R"({"tokenizer_class": "LlamaTokenizer"})"}) {
    config(keys);
    const uint64_t identity = open().identity();
    CHECK(identity == open().identity());
    identities.insert(identity);
  }
  CHECK(identities.size() == 7);
}

TEST_CASE_FIXTURE(Folder, "class rules: notes where another reading is plausible") {
  const auto has_note = [&](const std::string& keys, const std::string& text) {
    const std::string said = note(keys);
    CAPTURE(said);
    CHECK(test::contains(said, "tokenizer.json: "));
    CHECK(test::contains(said, text));
  };
  CHECK(note(R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": false})") == "");
  has_note(R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true})",
           "add_bos_token: true has no effect with GPT2Tokenizer");
  has_note("{}", "it is read as PreTrainedTokenizerFast");
  has_note(R"({"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder":
               {"99": {"content": "<x>"}}})",
           "the files number \"<x>\" 99; transformers adds it as 47, and so does this program");
  has_note(R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": true})",
           "add_prefix_space: LlamaTokenizer makes the tokenizer anew from other files");
  has_note(R"({"tokenizer_class": "GPT2Tokenizer", "extra_special_tokens": ["<x>"]})",
           "extra_special_tokens is a list, which transformers 4.57 refuses");
  has_note(R"({"tokenizer_class": "GPT2Tokenizer", "eos_token": {"content": "<x>"}})",
           "\"<x>\" is an object without \"__type\"");
  folder.write("special_tokens_map.json", R"({"eos_token": "<s>"})");
  has_note(R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {},
               "eos_token": "</s>"})",
           "eos_token: tokenizer_config.json says \"</s>\", special_tokens_map.json \"<s>\": "
           "\"</s>\" is taken");
}

TEST_CASE_FIXTURE(Folder, "class rules: what transformers refuses is refused with its key") {
  const auto refused = [&](const std::string& name, const std::string& keys,
                           const std::string& text) {
    const std::string said = error(fmt::format(R"({{"tokenizer_class": "{}", {}}})", name, keys));
    CAPTURE(said);
    CHECK(test::contains(said, "tokenizer_config.json: "));
    CHECK(test::contains(said, text));
  };
  refused("LlamaTokenizer", R"("bos_token": null)",
          "bos_token: LlamaTokenizer adds it, but there is none");
  refused("GPTNeoXTokenizer", R"("eos_token": null, "add_eos_token": true)", "eos_token: GPTNeoX");
  refused("LlamaTokenizer", R"("bos_token": "two words")", "cannot put \"two words\" around");
  refused("CodeGenTokenizer", R"("add_bos_token": true)", "transformers refuses true");
  refused("GPT2Tokenizer", R"("eos_token": 5)", "eos_token: expected a string, got number");
  refused("GPT2Tokenizer", R"("added_tokens_decoder": {"a": {"content": "<x>"}})",
          "expected a token id, got \"a\"");
  refused("GPT2Tokenizer", R"("added_tokens_decoder": {"1": "<x>"})", "expected an object");
  refused("GPT2Tokenizer", R"("added_tokens_decoder": null)", "added_tokens_decoder: expected");
  refused("GPT2Tokenizer", R"("additional_special_tokens": "<x>")", "expected an array");
  refused("GPT2Tokenizer", R"("split_special_tokens": null)", "expected true or false");
  refused("GPT2Tokenizer", R"("add_special_tokens": true)", "is the name of a method");
  CHECK(test::contains(error("[1]"), "tokenizer_config.json: expected an object, got array"));
}

// LlamaTokenizer reads tokenizer.model where add_prefix_space is there: transformers' converter
// makes these components.
TEST_CASE("class rules: a tokenizer that transformers makes anew") {
  test::TempFolder folder;
  Json file = read_json_file(test::fixture_path("tokenizers/llama2_legacy/tokenizer.json"));
  folder.write("tokenizer.json", file.dump());
  folder.write("tokenizer.model", "not read");
  const auto check = [&](const std::string& keys) {
    folder.write("tokenizer_config.json",
                 fmt::format(R"({{"tokenizer_class": "LlamaTokenizer", {}}})", keys));
    const HuggingFaceTokenizer made(folder / "tokenizer.json");
    const HuggingFaceTokenizer same(file.dump(), "converted");
    for (const std::string text : {"the  end", " the", "a</s> b", "\u4f60 the"}) {
      const std::vector<int32_t> ids = same.encode(text);
      CHECK(made.encode(text) == ids);
      CHECK(made.decode(ids) == same.decode(ids));
    }
    return made.note();
  };
  CHECK(check(R"("add_prefix_space": true)") == "");  // it is what the file has
  Json& decoders = file["decoder"]["decoders"];
  Json stripped = Json::array({decoders[0], decoders[1], decoders[2]});
  decoders = stripped;
  file["normalizer"]["normalizers"] = Json::array({file["normalizer"]["normalizers"][1]});
  CHECK(test::contains(check(R"("add_prefix_space": false)"), "the rest as made anew"));
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {{"type", "Metaspace"},
                           {"replacement", "\u2581"},
                           {"prepend_scheme", "never"},
                           {"split", false}};
  CHECK(test::contains(check(R"("add_prefix_space": false, "legacy": false)"), "as made anew"));
}

TEST_CASE_FIXTURE(Folder, "class rules: a text in the place of true or false is true in Python") {
  config(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})");
  const std::vector<int32_t> plain = open().encode("the");
  config(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})");
  const std::vector<int32_t> begun = open().encode("the");
  REQUIRE(begun != plain);
  const auto ids_with = [&](const std::string& value) {
    config(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": )" + value + "}");
    return open().encode("the");
  };
  CHECK(ids_with(R"("true")") == begun);
  CHECK(ids_with(R"("false")") == begun);
  CHECK(test::contains(open().note(), "add_bos_token is the text \"false\""));
  CHECK(ids_with(R"("")") == plain);
  CHECK(open().note() == "");
  CHECK(ids_with("0") == plain);
  CHECK(test::contains(open().note(), "add_bos_token is 0: transformers takes it for false"));
  CHECK(ids_with("[1]") == begun);
  CHECK(test::contains(open().note(), "add_bos_token is [1]: transformers takes it for true"));
}

// As transformers: the token takes the space before it, that behind it, or none.
TEST_CASE_FIXTURE(Folder, "class rules: which options a token has that two files name") {
  const auto ids_with = [&](const std::string& keys, const std::string& map) {
    config(R"({"tokenizer_class": "GPT2Tokenizer")" + keys + "}");
    folder.write("special_tokens_map.json", map);
    return open().encode("a <n> b");
  };
  folder.write("added_tokens.json", R"({"<n>": 90})");
  const std::vector<int32_t> plain = ids_with("", R"({"mask_token": "<n>"})");
  const std::string object = R"("mask_token": {"content": "<n>", "normalized": false, )";
  const std::vector<int32_t> before = ids_with("", "{" + object + R"("lstrip": true}})");
  const std::vector<int32_t> behind = ids_with("", "{" + object + R"("rstrip": true}})");
  CHECK(before.size() == plain.size() - 1);
  CHECK(behind.size() == plain.size() - 1);
  CHECK(before != behind);
  const std::string marked = R"(, "mask_token": {"__type": "AddedToken", "content": "<n>", )";
  CHECK(ids_with(marked + R"("lstrip": true})", "{}") == before);
  CHECK(ids_with(marked + R"("rstrip": true})", "{}") == behind);
}

TEST_CASE_FIXTURE(Folder,
                  "class rules: a key does not bring back what added_tokens_decoder replaced") {
  const auto ids_with = [&](const std::string& name) {
    config(R"({"tokenizer_class": ")" + name + R"(", "added_tokens_decoder": {"46": {"content":
        "<|endoftext|>", "special": true, "normalized": false, "rstrip": true}}})");
    return open().encode("a<|endoftext|> b");
  };
  Json json = fixture().at("tokenizers").at("level");
  json["added_tokens"].push_back({{"id", 46},
                                  {"content", "<|endoftext|>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  folder.write("tokenizer.json", json.dump());
  CHECK(ids_with("Qwen2Tokenizer") == ids_with("PreTrainedTokenizer"));
}

TEST_CASE_FIXTURE(Folder, "class rules: tokenizer_config.json is read as Python does") {
  const auto ids_with = [&](const std::string& keys) {
    config("{" + keys + R"("tokenizer_class": "LlamaTokenizer"})");
    return open().encode("the");
  };
  CHECK(ids_with(R"("model_max_length": Infinity, "add_bos_token": NaN, )") == ids_with(""));
  CHECK(ids_with(R"("add_bos_token": true, "add_bos_token": false, )") ==
        ids_with(R"("add_bos_token": false, )"));
}

TEST_CASE_FIXTURE(Folder, "class rules: a link without its file is not an absent file") {
  for (const char* name :
       {"tokenizer_config.json", "config.json", "special_tokens_map.json", "added_tokens.json"}) {
    std::filesystem::create_symlink("../../blobs/01", folder / name);
    const std::string said = test::error_of([&] { open(); });
    CHECK(test::contains(said, (folder / name).string() + ": a link to ../../blobs/01, which is"));
    std::filesystem::remove(folder / name);
  }
}

}  // namespace
}  // namespace fsdp::data
