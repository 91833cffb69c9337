// The merges of a piece against the definition (join the lowest rank, leftmost first, until there
// is none), over random vocabularies and texts; what is not in the vocabulary; malformed models.
#include "tools/data/tokenizer/bpe.h"

#include <chrono>
#include <random>
#include <set>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {
namespace {

using Ids = std::vector<int32_t>;

struct Model {
  Json json = {{"type", "BPE"}, {"vocab", Json::object()}, {"merges", Json::array()}};

  int32_t add(const std::string& token) {
    const auto id = static_cast<int32_t>(json["vocab"].size());
    json["vocab"][token] = id;
    return id;
  }
  Ids encode(const std::string& piece, bool byte_level = false) const {
    Ids out;
    const Bpe bpe(JsonNode(json, "t.json"), byte_level);
    bpe.encode(piece, out);
    return out;
  }
  // The pieces of the text that the tokens stand for.
  std::vector<std::string> parts(const std::string& piece, bool byte_level = false) const {
    const Bpe bpe(JsonNode(json, "t.json"), byte_level);
    Ids ids;
    std::vector<Span> spans;
    bpe.encode(piece, ids, spans);
    CHECK(ids == encode(piece, byte_level));
    CHECK(spans.size() == ids.size());
    std::vector<std::string> out;
    for (const Span span : spans) out.emplace_back(span.of(piece));
    return out;
  }
  std::string error() const {
    return test::error_of([&] { Bpe(JsonNode(json, "t.json"), false); });
  }
};

// Random merges over a few letters; every token is made by one pair.
Model random_model(std::mt19937& random, const std::vector<std::string>& letters, int merges) {
  Model out;
  std::vector<std::string> tokens = letters;
  std::set<std::string> known(letters.begin(), letters.end());
  for (const std::string& letter : letters) out.add(letter);
  while (merges > 0) {
    const std::string a = tokens[random() % tokens.size()], b = tokens[random() % tokens.size()];
    if (a.size() + b.size() > 12 || !known.insert(a + b).second) continue;
    out.add(a + b);
    out.json["merges"].push_back({a, b});
    tokens.push_back(a + b);
    --merges;
  }
  return out;
}

Ids by_definition(const Model& model, std::vector<std::string> symbols) {
  for (;;) {
    size_t best = symbols.size(), lowest = SIZE_MAX;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < model.json["merges"].size(); ++rank) {
        const Json& merge = model.json["merges"][rank];
        if (rank < lowest && merge[0] == symbols[i] && merge[1] == symbols[i + 1]) {
          lowest = rank;
          best = i;
        }
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids out;
  for (const std::string& symbol : symbols) out.push_back(model.json["vocab"][symbol]);
  return out;
}

TEST_CASE("random merges, by the definition") {
  std::mt19937 random(7);
  const std::vector<std::string> letters{"a", "b", "c", "\u2581", "\u00e9"};
  for (int round = 0; round < 12; ++round) {
    const Model model = random_model(random, letters, 20);
    const Bpe bpe(JsonNode(model.json, "t.json"), false);
    // Short pieces come from the scan and the cache, long ones from parts and the heap.
    for (const size_t length : {1, 2, 5, 9, 30, 30, 70, 120}) {
      std::vector<std::string> symbols;
      std::string text;
      for (size_t i = 0; i < length; ++i) text += symbols.emplace_back(letters[random() % 5]);
      Ids got;
      bpe.encode(text, got);
      INFO(text);
      CHECK(got == by_definition(model, symbols));
      Ids again;
      bpe.encode(text, again);
      CHECK(again == got);
    }
  }
}

TEST_CASE("a candidate whose symbols changed keeps its rank when it makes the same token") {
  // "abc" comes from a+bc (rank 0) and ab+c (rank 3). In abcd: bc is joined first (rank 1), then
  // a+bc.
  Model model;
  for (const char* token : {"a", "b", "c", "d", "bc", "ab", "abc", "cd"}) model.add(token);
  model.json["merges"] = {"a bc", "b c", "a b", "ab c", "c d"};
  CHECK(model.encode("abcd") == Ids{6, 3});
}

TEST_CASE("what the vocabulary lacks") {
  Model model;
  for (const char* token : {"<unk>", "a", "\u597d"}) model.add(token);
  CHECK(model.encode("xaxxa") == Ids{1, 1});  // no unknown token: nothing
  model.json["unk_token"] = "<unk>";
  CHECK(model.encode("xaxxa") == Ids{0, 1, 0, 0, 1});
  model.json["fuse_unk"] = true;
  CHECK(model.encode("xaxxa") == Ids{0, 1, 0, 1});
  model.json["byte_fallback"] = true;
  const int32_t x = model.add("<0x78>");
  CHECK(model.encode("xay") == Ids{x, 1, 0});
  // The unknown token waits for the next character of the vocabulary; bytes go before it.
  CHECK(model.encode("yxa") == Ids{x, 0, 1});
  CHECK(model.encode("yx") == Ids{x, 0});
}

TEST_CASE("a whole piece that is a token, with ignore_merges") {
  Model model;
  for (const char* token : {"a", "b", "ab", "\u0120", "\u0120ab"}) model.add(token);
  CHECK(model.encode("ab") == Ids{0, 1});
  model.json["ignore_merges"] = true;
  CHECK(model.encode("ab") == Ids{2});
  CHECK(model.encode("aba") == Ids{0, 1, 0});
  CHECK(model.encode(" ab", true) == Ids{4});
}

TEST_CASE("the bytes that a token stands for") {
  using Parts = std::vector<std::string>;
  Model model;
  for (const char* token : {"<unk>", "a", "b", "ab", "\u597d", "b\u597d"}) model.add(token);
  model.json["merges"] = {"a b", "b \u597d"};
  CHECK(model.parts("abb\u597d\u597d") == Parts{"ab", "b\u597d", "\u597d"});
  CHECK(model.parts("xaxbx") == Parts{"axb"});  // x is dropped
  CHECK(model.parts("x").empty());
  model.json["unk_token"] = "<unk>";
  CHECK(model.parts("xaxyb") == Parts{"x", "a", "x", "y", "b"});
  CHECK(model.parts("<unk>") == Parts{"<", "u", "n", "k", ">"});
  Model short_unknown;  // its content is as long as the two characters on average
  for (const char* token : {"a", "<u"}) short_unknown.add(token);
  short_unknown.json["unk_token"] = "<u";
  CHECK(short_unknown.parts("x\u4f60a") == Parts{"x", "\u4f60", "a"});
  model.json["fuse_unk"] = true;
  CHECK(model.parts("xaxyb") == Parts{"x", "a", "xy", "b"});
  model.json["byte_fallback"] = true;
  for (const char* token : {"<0x78>", "<0xC3>", "<0xA9>", "<0x78><0x78>"}) model.add(token);
  CHECK(model.parts("axb") == Parts{"a", "x", "b"});
  CHECK(model.parts("a\u00e9") == Parts{"a", "\xc3", "\xa9"});
  CHECK(model.parts("zxa") == Parts{"x", "z", "a"});  // the unknown token is written later
  CHECK(model.parts("zxza") == Parts{"x", "zxz", "a"});
  model.json["merges"].push_back("<0x78> <0x78>");
  CHECK(model.parts("axxb") == Parts{"a", "xx", "b"});
  model.json["ignore_merges"] = true;
  CHECK(model.parts("<0x78>") == Parts{"<0x78>"});
}

TEST_CASE("the bytes of a token where pieces are bytes") {
  using Parts = std::vector<std::string>;
  Model model;
  for (const char* token : {"a", "\u0120", "\u0120a", "\u00c3", "\u00a9", "\u00c3\u00a9"}) {
    model.add(token);
  }
  model.json["merges"] = {"\u0120 a", "\u00c3 \u00a9"};
  CHECK(model.parts(" aa\u00e9\xc3", true) == Parts{" a", "a", "\u00e9", "\xc3"});
  CHECK(model.parts(" b a", true) == Parts{" ", " a"});
  model.json["byte_fallback"] = true;
  for (const char* token : {"<0xC4>", "<0x80>"}) model.add(token);
  CHECK(model.parts(std::string("a\0a", 3), true) ==
        Parts{"a", std::string(1, '\0'), std::string(1, '\0'), "a"});  // written as U+0100
}

TEST_CASE("a long piece takes time in proportion") {
  Model model;
  std::string token = "a";
  model.add(token);
  for (int i = 0; i < 6; ++i) {
    model.json["merges"].push_back(token + " " + token);
    model.add(token += token);
  }
  const auto start = std::chrono::steady_clock::now();
  CHECK(model.encode(std::string((1 << 18) + 1, 'a')).size() == (1 << 12) + 1);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
}

TEST_CASE("malformed models") {
  const auto error = [](const char* key, const Json& value) {
    Model model;
    model.add("a");
    model.add("b");
    model.json[key] = value;
    return model.error();
  };
  CHECK(error("type", "Unigram") == "t.json: type: unknown model \"Unigram\"; expected BPE");
  CHECK(error("vocab", {{"a", -1}}) ==
        "t.json: vocab.a: expected a whole number from 0 to 16777215, got -1");
  CHECK(error("vocab", {{"a", 1e300}}).find("expected a whole number") != std::string::npos);
  CHECK(error("vocab", {{"a", 1}, {"b", 1}}) ==
        "t.json: vocab: \"a\" and \"b\" both have the id 1");
  CHECK(error("vocab", {{"a", 0}, {"b", (1 << 24) - 1}}) ==
        "t.json: vocab: 2 tokens with ids up to 16777215: expected at most 65536 ids without a "
        "token, got 16777214");
  CHECK(error("vocab", {{"a", 0}, {"b", 65537}}) == "");
  CHECK(error("vocab", Json::array()) == "t.json: vocab: expected an object, got array");
  CHECK(error("merges", {"a"}) ==
        "t.json: merges[0]: expected two tokens with a space between them, got \"a\"");
  CHECK(error("merges", {"a b"}) == "t.json: merges[0]: \"ab\" is not in the vocabulary");
  CHECK(error("merges", Json::parse(R"([["a", "b", "c"]])")) ==
        "t.json: merges[0]: expected two tokens, got 3");
  CHECK(error("merges", Json::parse(R"([["a", 1]])")) ==
        "t.json: merges[0][1]: expected a string, got number");
  CHECK(error("unk_token", "u") == "t.json: unk_token: \"u\" is not in the vocabulary");
  CHECK(error("dropout", 0.1) == "t.json: dropout: is not supported; expected null");
  CHECK(error("end_of_word_suffix", "</w>") ==
        "t.json: end_of_word_suffix: \"</w>\" is not supported; expected \"\" or null");
  CHECK(error("other", 1).find("t.json: unknown key \"other\"; expected type,") == 0);
}

TEST_CASE("an unknown token that the vocabulary lacks: of bytes it is seldom needed") {
  Model model;
  model.add("a");
  model.json["unk_token"] = "<unk>";
  CHECK(model.encode("aa", true) == Ids{0, 0});
  CHECK(test::error_of([&] { model.encode("ab", true); }) ==
        "[tokenizer] \"b\" is not in the vocabulary, nor is the unk_token of the file");
}

}  // namespace
}  // namespace fsdp::data
