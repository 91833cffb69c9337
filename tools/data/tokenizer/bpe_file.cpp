// Reads the model of a tokenizer.json and prepares its tables. Contract:
// tools/data/tokenizer/bpe.h.
#include <algorithm>

#include "tools/data/tokenizer/bpe.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {
namespace {

// Far above any vocabulary, and small enough for tables by id; so are the ids without a token, or a
// file of a few bytes could ask for a table of half a GB.
constexpr int64_t kLargestId = (1 << 24) - 1, kMostUnused = 1 << 16;

// Classes of characters where pieces are not bytes: ASCII by its number, then these.
constexpr size_t kBlankClass = 128, kOtherClass = 129;

// The bytes that the characters of a ByteLevel token stand for; nothing if one stands for none.
std::optional<std::string> bytes_of(std::string_view content) {
  std::string out;
  for (size_t i = 0; i < content.size(); i += character_length(content[i])) {
    const int byte = byte_of_character(character_at(content, i));
    if (byte < 0) return {};
    out += static_cast<char>(byte);
  }
  return out;
}

void expect_empty(const JsonNode& node, std::string_view key) {
  if (node.has(key) && !node.text(key).empty()) {
    node.at(key).fail("\"{}\" is not supported; expected \"\" or null", node.text(key));
  }
}

struct MergePair {
  std::string left, right;
};

// "left right" or ["left", "right"]
MergePair read_pair(const JsonNode& merge) {
  if (merge.value().is_array()) {
    if (merge.size() != 2) merge.fail("expected two tokens, got {}", merge.size());
    return {merge.item(0).text(), merge.item(1).text()};
  }
  const std::string text = merge.text();
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) {
    merge.fail("expected two tokens with a space between them, got \"{}\"", text);
  }
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

Bpe::Bpe(const JsonNode& node, bool byte_level) : byte_level_(byte_level) {
  if (node.has("type") && node.text("type") != "BPE") {
    node.at("type").fail("unknown model \"{}\"; expected BPE", node.text("type"));
  }
  node.check_keys({"type", "dropout", "unk_token", "continuing_subword_prefix",
                   "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges", "vocab",
                   "merges"});
  expect_empty(node, "continuing_subword_prefix");
  expect_empty(node, "end_of_word_suffix");
  if (node.has("dropout") && node.at("dropout").value() != 0) {
    node.at("dropout").fail("is not supported; expected null");
  }
  fuse_unknown_ = node.flag("fuse_unk", false);
  byte_fallback_ = node.flag("byte_fallback", false);
  ignore_merges_ = node.flag("ignore_merges", false);
  read_vocabulary(node.at("vocab"));
  if (node.has("unk_token")) {
    const std::optional<int32_t> id = id_of(node.text("unk_token"));
    // Where pieces are bytes, it is often not needed.
    if (!id && !byte_level) {
      node.at("unk_token").fail("\"{}\" is not in the vocabulary", node.text("unk_token"));
    }
    unknown_ = id.value_or(kNoUnknown);
  }
  read_merges(node.at("merges"));
  prepare_units();
  prepare_lengths();
  prepare_joins(node.at("merges"));
}

void Bpe::read_vocabulary(const JsonNode& node) {
  if (!node.value().is_object()) node.fail("expected an object, got {}", node.value().type_name());
  int64_t largest = -1;
  for (const auto& [content, ignored] : node.value().items()) {
    largest = std::max(largest, node.at(content).integer(0, kLargestId));
  }
  const int64_t unused = largest + 1 - static_cast<int64_t>(node.value().size());
  if (unused > kMostUnused) {
    node.fail("{} tokens with ids up to {}: expected at most {} ids without a token, got {}",
              node.value().size(), largest, kMostUnused, unused);
  }
  contents_.resize(static_cast<size_t>(largest + 1));
  exists_.resize(contents_.size());
  for (const auto& [content, value] : node.value().items()) {
    const auto id = value.get<size_t>();
    if (exists_[id]) {
      node.fail("\"{}\" and \"{}\" both have the id {}", contents_[id], content, id);
    }
    contents_[id] = content;
    exists_[id] = true;
    ids_[contents_[id]] = static_cast<int32_t>(id);
  }
}

void Bpe::read_merges(const JsonNode& node) {
  merges_ = FlatMap<Merge>(node.size());
  std::vector<bool> made(contents_.size());
  for (size_t rank = 0; rank < node.size(); ++rank) {
    const JsonNode merge = node.item(rank);
    const MergePair pair = read_pair(merge);
    const auto known = [&](const std::string& content) {
      const std::optional<int32_t> id = id_of(content);
      if (!id) merge.fail("\"{}\" is not in the vocabulary", content);
      return *id;
    };
    const int32_t left = known(pair.left), right = known(pair.right);
    const int32_t id = known(pair.left + pair.right);
    merges_.set(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right),
                {static_cast<int32_t>(rank), id});
    one_merge_per_token_ &= !made[static_cast<size_t>(id)];
    made[static_cast<size_t>(id)] = true;
  }
}

void Bpe::prepare_units() {
  units_.fill(-1);
  for (size_t byte = 0; byte < (byte_level_ ? 256 : 128); ++byte) {
    std::string character;
    append_utf8(character, byte_level_ ? byte_characters()[byte] : static_cast<char32_t>(byte));
    units_[byte] = id_of(character).value_or(-1);
  }
  for (size_t byte = 0; byte_fallback_ && byte < 256; ++byte) {
    byte_tokens_[byte] = id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  if (!ignore_merges_ || !byte_level_) return;
  for (const auto& [content, id] : ids_) {
    if (const std::optional<std::string> bytes = bytes_of(content)) whole_pieces_[*bytes] = id;
  }
}

// See [Note: bytes of a token].
void Bpe::prepare_lengths() {
  const std::string* unknown = content_of(unknown_);
  const auto contains = [](const std::string& content, std::string_view part) {
    return content.find(part) != content.npos;
  };
  for (const std::string& content : contents_) {
    const bool unsure =
        (unknown && contains(content, *unknown)) || (byte_fallback_ && contains(content, "<0x"));
    const size_t length = byte_level_ ? count_characters(content) : content.size();
    lengths_.push_back(unsure ? 0 : static_cast<uint32_t>(length));
  }
  for (size_t byte = 0; byte_fallback_ && !byte_level_ && byte < 256; ++byte) {
    if (byte_tokens_[byte] >= 0) lengths_[static_cast<size_t>(byte_tokens_[byte])] = 1;
  }
}

size_t Bpe::class_of(std::string_view text, size_t begin) const {
  const auto byte = static_cast<uint8_t>(text[begin]);
  if (byte_level_ || byte < 0x80) return byte;
  return text.substr(begin).starts_with(kBlank) ? kBlankClass : kOtherClass;
}

void Bpe::prepare_joins(const JsonNode& merges) {
  std::array<bool, 256> unknown{}, all{};
  all.fill(true);
  for (size_t i = 0; i < 256; ++i) unknown[i] = units_[i] < 0 || (!byte_level_ && i >= 128);
  if (!byte_level_) unknown[kBlankClass] = !id_of(kBlank).has_value();
  for (size_t i = 0; i < 256; ++i) joins_[i] = unknown[i] ? all : unknown;
  for (size_t i = 0; i < merges.size(); ++i) {
    MergePair pair = read_pair(merges.item(i));
    if (byte_level_) {
      pair = {bytes_of(pair.left).value_or(""), bytes_of(pair.right).value_or("")};
    }
    if (pair.left.empty() || pair.right.empty()) continue;  // never met
    const size_t last =
        byte_level_ ? pair.left.size() - 1 : previous_character(pair.left, pair.left.size());
    joins_[class_of(pair.left, last)][class_of(pair.right, 0)] = true;
  }
}

bool Bpe::parts_before(std::string_view space) const {
  if (ignore_merges_) return false;  // a part may be a token that the whole is not
  const size_t space_class = class_of(space, 0);
  for (size_t letter = 0; letter < 128; ++letter) {
    if (std::isalpha(static_cast<int>(letter)) && joins_[letter][space_class]) return false;
  }
  return true;
}

}  // namespace fsdp::data
