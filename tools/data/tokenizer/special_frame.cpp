// Contract: tools/data/tokenizer/special_frame.h.
#include "tools/data/tokenizer/special_frame.h"

#include <string>

#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {
namespace {

std::vector<int32_t> ids_of_special(const JsonNode& tokens, const std::string& name,
                                    int64_t vocab_size) {
  tokens.at(name).check_keys({"ids"}, "template token");
  const JsonNode ids = tokens.at(name).at("ids");
  std::vector<int32_t> out;
  for (size_t i = 0; i < ids.size(); ++i) {
    out.push_back(static_cast<int32_t>(ids.item(i).integer(0, vocab_size - 1)));
  }
  return out;
}

void read_template(const JsonNode& node, int64_t vocab_size, SpecialFrame& frame) {
  node.check_keys({"type", "single", "special_tokens"}, "post_processor TemplateProcessing");
  const JsonNode list = node.at("single");
  SpecialFrame around;
  bool text_seen = false;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonNode piece = list.item(i);
    piece.check_keys({"Sequence", "SpecialToken"});
    const JsonNode named = piece.at(piece.has("Sequence") ? "Sequence" : "SpecialToken");
    named.check_keys({"id"}, "template piece");
    if (piece.has("Sequence")) {
      if (text_seen || named.text("id") != "A") {
        piece.fail("expected the text A, once");
      }
      text_seen = true;
      continue;
    }
    const std::string name = named.text("id");
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
  } else if (type == "ByteLevel") {
    node.check_keys({"type"}, "post_processor ByteLevel");
  } else if (type == "Sequence") {
    node.check_keys({"type", "processors"});
    const JsonNode list = node.at("processors");
    for (size_t i = 0; i < list.size(); ++i) read(list.item(i), vocab_size, frame);
  } else {
    node.fail_unknown_type("TemplateProcessing, ByteLevel, Sequence");
  }
}

}  // namespace

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size) {
  SpecialFrame out;
  read(post_processor, vocab_size, out);
  return out;
}

}  // namespace fsdp::data
