// Contract: tools/data/tokenizer/special_frame.h.
#include "tools/data/tokenizer/special_frame.h"

#include <algorithm>
#include <array>

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

// As of transformers 4.57.1; the fast classes have the same.
struct TokenizerClass {
  std::string_view name;
  bool adds_begin, adds_end;
  std::string_view begin, end;
};
constexpr std::array kClasses = {
    TokenizerClass{"LlamaTokenizer", true, false, "<s>", "</s>"},
    TokenizerClass{"CodeLlamaTokenizer", true, false, "<s>", "</s>"},
    TokenizerClass{"GemmaTokenizer", true, false, "<bos>", "<eos>"},
    TokenizerClass{"CohereTokenizer", true, false, "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"},
    TokenizerClass{"GPTNeoXTokenizer", false, false, "<|endoftext|>", "<|endoftext|>"}};

// What a key of the class says: null is no, and only a key that is not there is the default.
bool adds(const JsonNode& node, const char* key, bool otherwise) {
  return node.value().contains(key) ? node.flag(key, false) : otherwise;
}

// "<s>" or {"content": "<s>", ...}.
std::string content_of(const JsonNode& node, const char* key, std::string_view otherwise) {
  if (!node.value().contains(key)) return std::string(otherwise);
  const JsonNode token = node.at(key);
  return token.value().is_object() ? token.text("content") : token.text();
}

}  // namespace

SpecialFrame frame_by_class(const std::filesystem::path& folder, const SpecialFrame& of_file,
                            const std::function<int32_t(std::string_view)>& id_of) {
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (folder.empty() || !std::filesystem::exists(file)) return of_file;
  const Json json = read_json_file(file);
  const JsonNode node(json, file.string());
  if (!json.is_object() || !node.has("tokenizer_class")) return of_file;
  std::string name = node.text("tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const auto of_class = std::find_if(kClasses.begin(), kClasses.end(),
                                     [&](const TokenizerClass& c) { return c.name == name; });
  if (of_class == kClasses.end()) return of_file;
  // Beside an older file without added_tokens_decoder, special_tokens_map.json comes first.
  const std::filesystem::path map_file = folder / "special_tokens_map.json";
  const bool older = !json.contains("added_tokens_decoder") && std::filesystem::exists(map_file);
  const Json map = older ? read_json_file(map_file) : Json::object();
  const JsonNode map_node(map, map_file.string());
  const auto token = [&](const char* key, std::string_view otherwise) {
    const JsonNode& says = map.is_object() && map.contains(key) ? map_node : node;
    const std::string content = content_of(says, key, otherwise);
    const int32_t id = id_of(content);
    if (id < 0) {
      says.fail("{}: the tokenizer has no token \"{}\", which {} adds", key, content, name);
    }
    return id;
  };
  SpecialFrame out;
  if (adds(node, "add_bos_token", of_class->adds_begin)) {
    out.before.push_back(token("bos_token", of_class->begin));
  }
  if (adds(node, "add_eos_token", of_class->adds_end)) {
    out.after.push_back(token("eos_token", of_class->end));
  }
  return out;
}

SpecialFrame read_special_frame(const JsonNode& post_processor, int64_t vocab_size) {
  SpecialFrame out;
  read(post_processor, vocab_size, out);
  return out;
}

}  // namespace fsdp::data
