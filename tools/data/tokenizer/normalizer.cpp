// The forms of Unicode by unicode_form.h, the rest by hand. Contract:
// tools/data/tokenizer/normalizer.h.
#include "tools/data/tokenizer/normalizer.h"

#include <memory>
#include <optional>

#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/pattern.h"
#include "tools/data/tokenizer/unicode_form.h"

namespace fsdp::data {
namespace {

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

std::optional<UnicodeForm> unicode_form(std::string_view type) {
  if (type == "NFC") return UnicodeForm::kNfc;
  if (type == "NFD") return UnicodeForm::kNfd;
  if (type == "NFKC") return UnicodeForm::kNfkc;
  if (type == "NFKD") return UnicodeForm::kNfkd;
  return {};
}

void strip(std::string_view text, std::string& out, bool left, bool right) {
  while (left && !text.empty() && is_white_space(character_at(text, 0))) {
    text.remove_prefix(character_length(text[0]));
  }
  while (right && !text.empty()) {
    const size_t last = previous_character(text, text.size());
    if (!is_white_space(character_at(text, last))) break;
    text = text.substr(0, last);
  }
  out = text;
}

}  // namespace

std::function<void(std::string_view, std::string&)> make_replace(const JsonNode& node) {
  node.check_keys({"type", "pattern", "content"});
  const auto pattern = std::make_shared<Pattern>(node.at("pattern"));
  return [pattern, content = node.text("content")](std::string_view text, std::string& out) {
    size_t kept = 0;
    pattern->for_each(text, [&](Span match) {
      out.append(text.substr(kept, match.begin - kept)).append(content);
      kept = match.end;
    });
    out.append(text.substr(kept));
  };
}

Normalizer::Normalizer(const JsonNode& node) { add(node); }

void Normalizer::add(const JsonNode& node) {
  const std::string type = node.text("type");
  if (const std::optional<UnicodeForm> form = unicode_form(type)) {
    node.check_keys({"type"});
    steps_.push_back({.run = std::bind_front(to_unicode_form, *form), .leaves_ascii = true});
  } else if (type == "Lowercase") {
    node.check_keys({"type"});
    steps_.push_back({.run = to_lower_case});
  } else if (type == "Strip") {
    node.check_keys({"type", "strip_left", "strip_right"});
    const bool left = node.flag("strip_left"), right = node.flag("strip_right");
    steps_.push_back({.run = [left, right](std::string_view text, std::string& out) {
      strip(text, out, left, right);
    }});
    cuts_before_space_ = false;
  } else if (type == "Prepend") {
    node.check_keys({"type", "prepend"});
    steps_.push_back({.run =
                          [front = node.text("prepend")](std::string_view text, std::string& out) {
                            if (!text.empty()) out.append(front).append(text);
                          },
                      .prepends = true});
    cuts_before_space_ &= node.text("prepend") == kBlank;
  } else if (type == "Replace") {
    steps_.push_back({.run = make_replace(node)});
    const JsonNode pattern = node.at("pattern");
    cuts_before_space_ &=
        pattern.has("String") && pattern.text("String") == " " && node.text("content") == kBlank;
  } else if (type == "Sequence") {
    node.check_keys({"type", "normalizers"});
    const JsonNode list = node.at("normalizers");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i));
  } else {
    node.fail_unknown_type("NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace, Sequence");
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage,
                                   bool continues) const {
  std::string out;
  for (const Step& step : steps_) {
    if ((step.prepends && continues) || (step.leaves_ascii && is_ascii(text))) continue;
    out.clear();
    step.run(text, out);
    storage.swap(out);
    text = storage;
  }
  return text;
}

}  // namespace fsdp::data
