// Contract: tools/data/tokenizer/tokenizer_check.h.
#include "tools/data/tokenizer/tokenizer_check.h"

#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/decoder.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/normalizer.h"
#include "tools/data/tokenizer/pre_tokenizer.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::tools {
namespace {

using data::JsonNode;
using data::SpecialTokens;
using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

class Checker {
 public:
  explicit Checker(const data::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}

  void check_encoding(const JsonNode& node) {
    const std::string text = node.text("text");
    const Ids with = ids_of(node.at("ids_with_special"));
    compare(node, "ids_without_special", ids_of(node.at("ids_without_special")),
            tokenizer_->encode(text, SpecialTokens::kOmit));
    compare(node, "ids_with_special", with, tokenizer_->encode(text, SpecialTokens::kInclude));
    check_decoding(node, with);
  }
  void check_decoding(const JsonNode& node, const Ids& ids) {
    compare(node, "decoded", node.text("decoded"),
            tokenizer_->decode(ids, SpecialTokens::kInclude));
    compare(node, "decoded_skip_special", node.text("decoded_skip_special"),
            tokenizer_->decode(ids, SpecialTokens::kOmit));
  }
  void check_normalizer(const JsonNode& node) {
    std::string storage;
    const data::Normalizer normalizer(node.at("config"));
    compare(node, "output", node.text("output"),
            std::string(normalizer.apply(node.text("text"), storage)));
  }
  void check_pre_tokenizer(const JsonNode& node);
  void check_decoder(const JsonNode& node) {
    const data::Decoder decoder(node.at("config"));
    compare(node, "output", node.text("output"), decoder.decode(strings_of(node.at("tokens"))));
  }
  static Ids ids_of(const JsonNode& node) {
    Ids out;
    for (size_t i = 0; i < node.size(); ++i) {
      out.push_back(static_cast<int32_t>(node.item(i).integer(0, INT32_MAX)));
    }
    return out;
  }

  TokenizerCheck result;

 private:
  static Strings strings_of(const JsonNode& node) {
    Strings out;
    for (size_t i = 0; i < node.size(); ++i) out.push_back(node.item(i).text());
    return out;
  }
  template <typename Value>
  void compare(const JsonNode& node, std::string_view what, const Value& expected,
               const Value& got) {
    if (expected == got) return;
    const auto printed = [](const Value& value) { return Json(value).dump({.ascii = true}); };
    try {
      node.fail("{}: expected {}, got {}", what, printed(expected), printed(got));
    } catch (const Error& difference) {
      result.differences.emplace_back(difference.what());
    }
  }

  const data::Tokenizer* tokenizer_;
};

void Checker::check_pre_tokenizer(const JsonNode& node) {
  const data::PreTokenizer pre_tokenizer(node.at("config"));
  const JsonNode pieces = node.at("pieces");
  Strings expected, got;
  for (size_t i = 0; i < pieces.size(); ++i) expected.push_back(pieces.item(i).item(0).text());
  const std::string text = node.text("text");
  pre_tokenizer.split({text, /*lead=*/1}, [&](const data::Piece& piece) {
    std::string& shown = got.emplace_back();
    for (const char c : piece.text) {
      if (pre_tokenizer.byte_level()) {
        data::append_utf8(shown, data::byte_characters()[static_cast<uint8_t>(c)]);
      } else {
        shown += c;
      }
    }
  });
  compare(node, "pieces", expected, got);
}

void check_components(const JsonNode& root, Checker& checker) {
  const auto each = [&](std::string_view key, auto check) {
    const JsonNode list = root.at(key);
    for (size_t i = 0; i < list.size(); ++i) (checker.*check)(list.item(i));
    checker.result.cases += static_cast<int64_t>(list.size());
  };
  each("normalizers", &Checker::check_normalizer);
  each("pre_tokenizers", &Checker::check_pre_tokenizer);
  each("decoders", &Checker::check_decoder);
}

}  // namespace

TokenizerCheck check_tokenizer(const data::Tokenizer* tokenizer,
                               const std::filesystem::path& vectors) {
  const Json json = read_json_file(vectors);
  const JsonNode root(json, vectors.string());
  Checker checker(tokenizer);
  if (json.is_object()) {
    check_components(root, checker);
    return checker.result;
  }
  if (!tokenizer) root.fail("needs a tokenizer");
  for (size_t i = 0; i < root.size(); ++i) {
    const JsonNode node = root.item(i);
    if (node.has("text")) {
      checker.check_encoding(node);
    } else {
      checker.check_decoding(node, Checker::ids_of(node.at("ids")));
    }
  }
  checker.result.cases = static_cast<int64_t>(root.size());
  FSDP_CHECK(checker.result.cases > 0, "{}: no cases", vectors.string());
  return checker.result;
}

}  // namespace fsdp::tools
