// The table of classes against transformers' own (fixtures/tokenizers/classes.json, by
// tests/differential/class_fixtures.py) and against the manual.
#include "tools/data/tokenizer/tokenizer_class.h"

#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

const Json& fixture() {
  static const Json json = read_json_file(test::fixture_path("tokenizers/classes.json"));
  return json;
}

// What a class takes without the key: "" for none and for null.
std::string token_of(const Json& defaults, const char* key) {
  return defaults.contains(key) && defaults.at(key).is_string() ? defaults.at(key).text() : "";
}

TEST_CASE("tokenizer classes: the defaults are those of transformers' constructors") {
  CHECK(fixture().at("classes").size() == tokenizer_classes().size());
  for (const TokenizerClass& c : tokenizer_classes()) {
    CAPTURE(c.name);
    const Json& of = fixture().at("classes").at(c.name);
    const Json& defaults = of.at("defaults");
    CHECK(token_of(defaults, "bos_token") == c.bos);
    CHECK(token_of(defaults, "eos_token") == c.eos);
    CHECK(token_of(defaults, "unk_token") == c.unk);
    CHECK(token_of(defaults, "pad_token") == c.pad);
    CHECK(defaults.contains("add_eos_token") == c.frames);
    CHECK(defaults.value("add_bos_token", false) == c.adds_begin);
    CHECK(defaults.contains("prefix_token") == c.infills);
    const bool names_padding = defaults.contains("pad_token");
    CHECK((names_padding && c.pad.empty()) == c.keeps_no_padding);
    const bool leaves =
        defaults.contains("add_prefix_space") && defaults.at("add_prefix_space").is_null();
    CHECK(leaves == c.leaves_prefix);
    std::vector<std::string> types = c.model_types;
    std::sort(types.begin(), types.end());
    CHECK(types == of.at("model_types").get<std::vector<std::string>>());
  }
}

std::string row(const TokenizerClass& c) {
  const auto token = [](std::string_view content) {
    std::string text = content.empty() ? "" : fmt::format("`{}`", content);
    for (size_t at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) {
      text.insert(at, "\\");
    }
    return text;
  };
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |", c.name, token(c.bos), token(c.eos),
                     token(c.unk), token(c.pad),
                     !c.frames      ? "the post-processor"
                     : c.adds_begin ? "begin"
                                    : "nothing",
                     c.leaves_prefix     ? "as in tokenizer.json"
                     : c.prefixes_nested ? "false; true also within a Sequence"
                                         : "false");
}

TEST_CASE("tokenizer classes: the manual has a row for each") {
  const std::string manual = read_file(test::source_folder() / "tools/data/tokenizer/README.md");
  for (const TokenizerClass& c : tokenizer_classes()) {
    const std::string expected = row(c);
    CAPTURE(expected);
    CHECK(test::contains(manual, expected));
  }
}

struct Folder {
  test::TempFolder folder;
  ChosenClass choose(const Json& config) { return choose_class(folder.path(), config); }
  std::string name(const Json& config = Json()) {
    const ChosenClass chosen = choose(config);
    return std::string(chosen.of ? chosen.of->name : "") + (chosen.note.empty() ? "" : " (note)");
  }
};

TEST_CASE_FIXTURE(Folder, "tokenizer classes: which one a folder means") {
  CHECK(name() == "");
  CHECK(name(Json::object()) == "PreTrainedTokenizer (note)");
  CHECK(name({{"tokenizer_class", "Qwen2TokenizerFast"}}) == "Qwen2Tokenizer");
  CHECK(name({{"tokenizer_class", "PreTrainedTokenizerFast"}}) == "PreTrainedTokenizer");
  CHECK(name({{"tokenizer_class", "TokenizersBackend"}}) == "PreTrainedTokenizer (note)");
  folder.write("config.json", R"({"model_type": "mistral"})");
  CHECK(name() == "LlamaTokenizer");
  CHECK(name({{"tokenizer_class", nullptr}}) == "LlamaTokenizer");
  CHECK(name({{"tokenizer_class", "GPT2Tokenizer"}}) == "GPT2Tokenizer");
  folder.write("config.json", R"({"model_type": "mistral", "tokenizer_class": "GemmaTokenizer"})");
  CHECK(name() == "GemmaTokenizer");
  folder.write("config.json", R"({"model_type": "bart"})");
  CHECK(name() == "PreTrainedTokenizer (note)");
  CHECK(test::contains(choose(Json()).note, "config.json has the model_type \"bart\", whose"));
  folder.write("config.json", "{}");
  CHECK(name() == "");
  folder.write("added_tokens.json", "{}");
  CHECK(name() == "PreTrainedTokenizer (note)");
  CHECK(test::contains(choose({{"tokenizer_class", "MyTokenizer"}}).note,
                       "tokenizer_config.json names the tokenizer_class \"MyTokenizer\", whose "
                       "rules are not known here"));
  CHECK(test::contains(test::error_of([&] {
                         choose({{"tokenizer_class", 5}});
                       }),
                       "tokenizer_config.json: tokenizer_class: expected a string"));
}

}  // namespace
}  // namespace fsdp::data
