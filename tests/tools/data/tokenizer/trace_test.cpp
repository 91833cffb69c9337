// Which bytes of a text each token stands for: against the offsets of Hugging Face's own library
// (fixtures/tokenizers/token_bytes.json, by tests/differential/token_bytes.py), by hand where the
// library has another rule, and by what must hold for every text of every tokenizer.
#include "tools/data/tokenizer/trace.h"

#include <set>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/hugging_face.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/normalizer.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

const Json& byte_fixture() {
  static const Json json = read_json_file(test::fixture_path("tokenizers/token_bytes.json"));
  return json;
}

// The characters that have a byte in a span.
Span characters_of(std::string_view text, Span bytes) {
  const auto within = [&](size_t i) {
    return i < text.size() && (static_cast<uint8_t>(text[i]) & 0xc0) == 0x80;
  };
  while (within(bytes.begin)) --bytes.begin;
  while (within(bytes.end)) ++bytes.end;
  return bytes;
}

// Whether a normalizer changes these bytes of a text, where it looks at them alone.
bool changes(const Json& normalizer, std::string_view whole, Span bytes) {
  const std::string_view text = characters_of(whole, bytes).of(whole);
  std::string storage;
  return normalizer.is_object() &&
         Normalizer(JsonNode(normalizer, "normalizer")).apply(text, storage, true) != text;
}

// The library's offsets are characters. It has two other rules: a text that is put in front of a
// character has the character, and of characters that a normalizer makes one of the first one alone
// counts.
void check_offsets(const Tokenizer& tokenizer, const Json& normalizer, const std::string& text,
                   const Json& offsets) {
  const EncodedText got = tokenizer.encode_with_bytes(text, SpecialTokens::kOmit);
  INFO(tokenizer.name(), ": ", Json(text).dump());
  CHECK(got.ids == tokenizer.encode(text, SpecialTokens::kOmit));
  REQUIRE(got.bytes.size() == got.ids.size());
  if (offsets.is_null()) return;
  REQUIRE(offsets.size() == 2 * got.ids.size());
  for (size_t i = 0; i < got.ids.size(); ++i) {
    const Span bytes = got.bytes[i];
    const auto first = offsets[2 * i].get<size_t>(), end = offsets[2 * i + 1].get<size_t>();
    const Span whole = characters_of(text, bytes);
    const size_t from = count_characters(std::string_view(text).substr(0, whole.begin));
    const size_t until = count_characters(std::string_view(text).substr(0, whole.end));
    INFO("token ", i, ": bytes ", bytes.begin, " to ", bytes.end);
    if (bytes.begin == bytes.end) {
      CHECK(first == from);
    } else if (changes(normalizer, text, bytes)) {
      CHECK((from <= first && end <= until));
    } else {
      CHECK((first == from && end == until));
    }
  }
}

TEST_CASE("the library's offsets") {
  CHECK(byte_fixture()["folders"].size() == 10);
  for (const auto& [name, offsets] : byte_fixture()["folders"].items()) {
    const fs::path file = test::fixture_path("tokenizers/" + name + "/tokenizer.json");
    const HuggingFaceTokenizer tokenizer(file);
    const Json normalizer = read_json_file(file)["normalizer"];
    for (size_t i = 0; i < offsets.size(); ++i) {
      check_offsets(tokenizer, normalizer, byte_fixture()["texts"][i].get<std::string>(),
                    offsets[i]);
    }
  }
  for (const Json& component : byte_fixture()["components"]) {
    Json file = byte_fixture()["file"];
    file.update(component["changed"]);
    const HuggingFaceTokenizer tokenizer(file.dump(), component["name"].get<std::string>());
    for (const Json& c : component["cases"]) {
      check_offsets(tokenizer, file["normalizer"], c[0].get<std::string>(), c[1]);
    }
  }
}

// The text that each token of a tokenizer of single characters stands for.
Texts parts_of(const std::string& text, const std::vector<Json>& normalizers,
               const std::vector<Json>& pre_tokenizers) {
  Json file = byte_fixture()["file"];
  const auto sequence = [](const char* key, const std::vector<Json>& steps) {
    Json list = Json::array();
    for (const Json& step : steps) list.push_back(step);
    return Json{{"type", "Sequence"}, {key, list}};
  };
  file["normalizer"] = sequence("normalizers", normalizers);
  file["pre_tokenizer"] = sequence("pretokenizers", pre_tokenizers);
  const HuggingFaceTokenizer tokenizer(file.dump(), "made");
  Texts out;
  for (const Span span : tokenizer.encode_with_bytes(text, SpecialTokens::kOmit).bytes) {
    out.emplace_back(span.of(text));
  }
  return out;
}

Json replace(const Json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

TEST_CASE("a normalizer replaces several bytes: the result stands for all these bytes") {
  const auto normalised_text = [](const std::string& text, const std::vector<Json>& steps) {
    return parts_of(text, steps, {});
  };
  const Json nfc{{"type", "NFC"}}, nfd{{"type", "NFD"}}, nfkc{{"type", "NFKC"}};
  const Json lower = {{"type", "Lowercase"}};
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", "x"}};
  const Json el = replace({{"String", "el"}}, "y");
  CHECK(normalised_text("he\u0301l", {nfc}) == Texts{"h", "e\u0301", "l"});
  CHECK(normalised_text("h\u00e9l", {nfd}) == Texts{"h", "\u00e9", "\u00e9", "l"});
  CHECK(normalised_text("\u1112\u1161\u11abl", {nfc}) == Texts{"\u1112\u1161\u11ab", "l"});
  CHECK(normalised_text("e\uff0ce\u0301e", {nfkc}) == Texts{"e", "\uff0c", "e\u0301", "e"});
  CHECK(normalised_text("HI", {lower}) == Texts{"H", "I"});
  CHECK(normalised_text("e\u0130", {lower}) == Texts{"e", "\u0130", "\u0130"});
  CHECK(normalised_text("  hi ", {strip}) == Texts{"h", "i"});
  CHECK(normalised_text("  hi", {strip, prepend}) == Texts{"", "h", "i"});
  CHECK(normalised_text("hello", {el}) == Texts{"h", "el", "l", "o"});
  CHECK(normalised_text("hello", {replace({{"String", "el"}}, "")}) == Texts{"h", "l", "o"});
  CHECK(normalised_text("hell", {replace({{"Regex", "l*$"}}, "yx")}) ==
        Texts{"h", "e", "ll", "ll"});
  // Several steps: from the result of the last step back through all steps.
  CHECK(normalised_text(" hE\u0301l", {strip, lower, nfc}) == Texts{"h", "E\u0301", "l"});
  CHECK(normalised_text("hello", {el, replace({{"String", "yl"}}, "xx")}) ==
        Texts{"h", "ell", "ell", "o"});
  CHECK(normalised_text("\u00e9", {nfd, replace({{"Regex", "(?=\u0301)"}}, "x")}) ==
        Texts{"\u00e9", "\u00e9", "\u00e9"});
  CHECK(normalised_text("  ", {strip, replace({{"Regex", "$"}}, "x")}) == Texts{""});
}

TEST_CASE("pre-tokenizers cut, drop and put blanks in front") {
  const Json blanks = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  const Json words = {{"type", "WhitespaceSplit"}};
  CHECK(parts_of("hi o", {}, {blanks}) == Texts{"", "h", "i", " ", "o"});
  CHECK(parts_of(" hi", {}, {blanks}) == Texts{" ", "h", "i"});
  CHECK(parts_of(" hi  o", {}, {words, blanks}) == Texts{"", "h", "i", "", "o"});
  CHECK(parts_of("Hi", {{{"type", "Lowercase"}}}, {words, blanks}) == Texts{"", "H", "i"});
}

TEST_CASE("a space before the words of bytes") {
  Json file = read_json_file(test::fixture_path("tokenizers/gpt2_merges_old/tokenizer.json"));
  file["pre_tokenizer"]["add_prefix_space"] = true;
  const HuggingFaceTokenizer tokenizer(file.dump(), "made");
  for (const char* text : {"a\u00e9", " a\u00e9", "~\u00e9"}) {
    const EncodedText got = tokenizer.encode_with_bytes(text, SpecialTokens::kOmit);
    const std::string_view all = text;
    CHECK(got.bytes.front().begin == 0);
    CHECK(got.bytes.back().end == all.size());
    CHECK(tokens_that_cover(got.bytes, {all.size() - 1, all.size()}).end == got.ids.size());
  }
  CHECK(tokenizer.encode_with_bytes("~").bytes == std::vector<Span>{{0, 0}, {0, 1}});
}

// A token's own text: its characters or bytes, with a space for a blank.
std::optional<std::string> own_text(const std::string& content, bool byte_level,
                                    const Json& model) {
  const std::string blank(kBlank);
  if (content == model.value("unk_token", Json())) return {};
  if (model.value("byte_fallback", false) && content.size() == 6 && content.starts_with("<0x")) {
    return std::string(1, static_cast<char>(std::stoi(content.substr(3, 2), nullptr, 16)));
  }
  std::string out;
  for (size_t i = 0; i < content.size(); i += character_length(content[i])) {
    const std::string character = content.substr(i, character_length(content[i]));
    byte_level           ? out += static_cast<char>(byte_of_character(character_at(content, i)))
    : character == blank ? out += ' '
                         : out += character;
  }
  return out;
}

std::string with_spaces(std::string_view text) {
  std::string out(text);
  for (size_t at; (at = out.find(kBlank)) != out.npos;) out.replace(at, kBlank.size(), " ");
  return out;
}

struct Kind {
  Json file;
  std::set<int32_t> added;
  bool byte_level = false, has_form = false;

  explicit Kind(const fs::path& path) : file(read_json_file(path)) {
    byte_level = file["pre_tokenizer"].dump().find("ByteLevel") != std::string::npos;
    has_form = file["normalizer"].dump().find("\"NF") != std::string::npos;
    for (const Json& token : file["added_tokens"]) added.insert(token["id"].get<int32_t>());
  }
};

// Without an unknown token: spans ascend and leave no byte out. Each token says what stands there.
void check_spans(const HuggingFaceTokenizer& tokenizer, const Kind& kind, const std::string& text) {
  INFO(tokenizer.name(), ": ", Json(text).dump());
  const EncodedText got = tokenizer.encode_with_bytes(text, SpecialTokens::kInclude);
  CHECK(got.ids == tokenizer.encode(text));
  REQUIRE(got.bytes.size() == got.ids.size());
  std::vector<bool> covered(text.size());
  Span last;
  bool ascends = true, unknown = false;
  for (size_t i = 0; i < got.ids.size(); ++i) {
    const Span span = got.bytes[i];
    REQUIRE((span.begin <= span.end && span.end <= text.size()));
    ascends &= span.begin >= last.begin && span.end >= last.end;
    last = span;
    std::fill(covered.begin() + static_cast<std::ptrdiff_t>(span.begin),
              covered.begin() + static_cast<std::ptrdiff_t>(span.end), true);
    const std::string& content = *tokenizer.content_of(got.ids[i]);
    if (kind.added.contains(got.ids[i])) {
      unknown |= content == kind.file["model"].value("unk_token", Json());
      continue;
    }
    const std::optional<std::string> own = own_text(content, kind.byte_level, kind.file["model"]);
    unknown |= !own;
    if (!own || (kind.has_form && changes(kind.file["normalizer"], text, span))) continue;
    const std::string there =
        kind.byte_level ? std::string(span.of(text)) : with_spaces(span.of(text));
    const bool prefixed = !kind.byte_level && *own == " " + there;
    CHECK((prefixed || *own == there));
  }
  CHECK((ascends || unknown));
  CHECK(std::count(covered.begin(), covered.end(), false) == 0);
}

TEST_CASE("every byte of every text has its token") {
  for (const auto& entry : fs::directory_iterator(test::fixture_path("tokenizers"))) {
    if (!entry.is_directory()) continue;
    const fs::path file = entry.path() / "tokenizer.json";
    const HuggingFaceTokenizer tokenizer(file), stretches(file, 1);
    const Kind kind(file);
    for (const Json& c : read_json_file(entry.path() / "vectors.json")) {
      const std::string text = c["text"].get<std::string>();
      check_spans(tokenizer, kind, text);
      CHECK(stretches.encode_with_bytes(text).bytes == tokenizer.encode_with_bytes(text).bytes);
    }
  }
}

TEST_CASE(
    "added tokens have the white space that they swallow, and what is around a text nothing") {
  const HuggingFaceTokenizer llama(test::fixture_path("tokenizers/mistral_v03/tokenizer.json"));
  const EncodedText got = llama.encode_with_bytes("ab");
  CHECK(got.bytes.front() == Span{0, 0});
  CHECK(got.bytes.back().end == 2);
  Json file = byte_fixture()["file"];
  file["added_tokens"] = {{{"id", 999}, {"content", "<x>"}, {"lstrip", true}, {"rstrip", true}}};
  for (const bool normalized : {false, true}) {
    file["added_tokens"][0]["normalized"] = normalized;
    const HuggingFaceTokenizer made(file.dump(), "made");
    const std::vector<Span> bytes = made.encode_with_bytes("h  <x> i", SpecialTokens::kOmit).bytes;
    CHECK(bytes == std::vector<Span>{{0, 1}, {1, 7}, {7, 8}});
  }
}

TEST_CASE("steps that change nothing, drop all, and insert into an empty text") {
  Trace trace(3);
  trace.follow_bytes(10);
  trace.keep({0, 6});
  trace.end_step();
  CHECK(trace.lead() == 3);
  CHECK(trace.origin({2, 5}) == Span{12, 15});
  trace.keep({2, 4});  // of 6 bytes
  trace.end_step();
  CHECK(trace.lead() == 1);
  CHECK(trace.origin({0, 1}) == Span{12, 13});
  trace.replace({0, 2}, 4);
  trace.end_step();
  CHECK(trace.lead() == 0);
  CHECK(trace.origin({3, 4}) == Span{12, 14});
  CHECK(trace.origin({4, 4}) == Span{14, 14});
  CHECK(trace.origin({0, 1}) == Span{12, 14});
  trace.end_step();  // nothing is left
  trace.replace({0, 0}, 1);
  trace.end_step();
  const Span origin = trace.origin({0, 1});
  CHECK(origin.begin == origin.end);
}

TEST_CASE("origins in any order") {
  Trace trace;
  trace.follow_bytes(0);
  for (size_t i = 0; i < 30; i += 3) {
    trace.keep({i, i + 1});
    trace.replace({i + 1, i + 3}, 4);
  }
  trace.end_step();
  for (const size_t i : {7, 2, 9, 0, 5, 4}) {
    CHECK(trace.origin({5 * i, 5 * i + 1}) == Span{3 * i, 3 * i + 1});
    CHECK(trace.origin({5 * i + 2, 5 * i + 3}) == Span{3 * i + 1, 3 * i + 3});
  }
}

}  // namespace
}  // namespace fsdp::data
