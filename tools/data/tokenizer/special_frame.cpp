// Contract: tools/data/tokenizer/special_frame.h.
#include "tools/data/tokenizer/special_frame.h"

#include <algorithm>
#include <array>

#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {
namespace {

std::vector<int32_t> ids_of_special(const JsonNode& tokens, const std::string& name,
                                    int64_t vocab_size) {
  const JsonNode ids = tokens.at(name).at("ids");
  std::vector<int32_t> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    out.push_back(static_cast<int32_t>(ids.item(i).integer(0, vocab_size - 1)));
  }
  return out;
}

void read_template(const JsonNode& node, int64_t vocab_size, SpecialFrame& frame) {
  node.check_keys({"type", "single", "pair", "special_tokens"});
  const JsonNode list = node.at("single");
  SpecialFrame around;
  bool text_seen = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode piece = list.item(i);
    if (piece.has("Sequence")) {
      if (text_seen || piece.at("Sequence").text("id") != "A") {
        piece.fail("expected the text A, once");
      }
      text_seen = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").text("id");
    const auto ids = ids_of_special(node.at("special_tokens"), name, vocab_size);
    std::vector<int32_t>& to = text_seen ? around.after : around.before;
    to.insert(to.end(), ids.begin(), ids.end());
  }
  if (!text_seen) list.fail("expected the text A, once");
  frame.before.insert(frame.before.begin(), around.before.begin(), around.before.end());
  frame.after.insert(frame.after.end(), around.after.begin(), around.after.end());
}

void read(const JsonNode& node, int64_t vocab_size, SpecialFrame& frame) {
  const std::string type = node.text("type");
  if (type == "TemplateProcessing") {
    read_template(node, vocab_size, frame);
  } else if (type == "ByteLevel") {  // moves offsets, which nobody asks for
    node.check_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "Sequence") {
    node.check_keys({"type", "processors"});
    const JsonNode list = node.at("processors");
    for (size_t i = 0; i < list.size(); ++i) read(list.item(i), vocab_size, frame);
  } else {
    node.fail_unknown_type("TemplateProcessing, ByteLevel, Sequence");
  }
}

}  // namespace

void check_special_frame(const std::filesystem::path& folder, const SpecialFrame& frame) {
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (folder.empty() || !std::filesystem::exists(file)) return;
  const Json json = read_json_file(file);
  const JsonNode node(json, file.string());
  if (!json.is_object() || !node.has("tokenizer_class")) return;
  std::string name = node.text("tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  constexpr std::array<std::string_view, 5> kBuildAnew = {"LlamaTokenizer", "CodeLlamaTokenizer",
                                                          "GemmaTokenizer", "CohereTokenizer",
                                                          "GPTNeoXTokenizer"};
  if (std::find(kBuildAnew.begin(), kBuildAnew.end(), name) == kBuildAnew.end()) return;
  struct Side {
    const char* key;
    const char* where;
    bool there;
  };
  for (const Side& side : {Side{"add_bos_token", "before", !frame.before.empty()},
                           Side{"add_eos_token", "after", !frame.after.empty()}}) {
    if (node.flag(side.key, side.there) == side.there) continue;
    node.at(side.key).fail(
        "{}, but the post_processor of tokenizer.json puts {} {} a text, and {} goes by this key: "
        "make the two files agree",
        !side.there, side.there ? "a token" : "nothing", side.where, name);
  }
}

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size) {
  SpecialFrame out;
  read(post_processor, vocab_size, out);
  return out;
}

}  // namespace fsdp::data
