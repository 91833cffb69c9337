// Contract: tools/data/tokenizer/class_components.h.
#include "tools/data/tokenizer/class_components.h"

#include <utility>

namespace fsdp::data {
namespace {

void set_prefix(Json& component, bool value, bool nested) {
  if (!component.is_object()) return;
  const std::string type = component.value("type", "");
  if (type == "ByteLevel" && component.contains("add_prefix_space")) {
    component["add_prefix_space"] = value;
  }
  if (type != "Sequence" || !nested || !component.contains("pretokenizers")) return;
  for (Json& child : component["pretokenizers"]) set_prefix(child, value, nested);
}

}  // namespace

std::string set_prefix_space(Json& tokenizer, bool value, bool nested) {
  if (!tokenizer.contains("pre_tokenizer")) return "";
  Json changed = tokenizer["pre_tokenizer"];
  set_prefix(changed, value, nested);
  if (changed == tokenizer["pre_tokenizer"]) return "";
  tokenizer["pre_tokenizer"] = changed;
  return changed.dump();
}

std::string convert_components(Json& tokenizer, bool prefix, bool legacy) {
  Json normalizer, pre_tokenizer;
  const Json space = {{"String", " "}}, blank = {{"String", "\u2581"}};
  if (legacy) {
    Json steps = Json::array();
    if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
    steps.push_back({{"type", "Replace"}, {"pattern", space}, {"content", "\u2581"}});
    normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
  } else {
    pre_tokenizer = {{"type", "Metaspace"},
                     {"replacement", "\u2581"},
                     {"prepend_scheme", prefix ? "first" : "never"},
                     {"split", false}};
  }
  Json decoders = Json::array();
  decoders.push_back({{"type", "Replace"}, {"pattern", blank}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const Json decoder = {{"type", "Sequence"}, {"decoders", decoders}};
  std::string out;
  for (const auto& [key, component] :
       {std::pair<const char*, const Json*>("normalizer", &normalizer),
        {"pre_tokenizer", &pre_tokenizer},
        {"decoder", &decoder}}) {
    Json& old = tokenizer[key];
    if (old != *component) out += key + component->dump();
    old = *component;
  }
  return out;
}

}  // namespace fsdp::data
