// The forms of Unicode by unicode_form.h, the rest by hand. Contract:
// tools/data/tokenizer/normalizer.h.
#include "tools/data/tokenizer/normalizer.h"

#include <algorithm>
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

size_t length_of_characters(std::string_view text, size_t count) {
  size_t end = 0;
  for (size_t i = 0; i < count && end < text.size(); ++i) end += character_length(text[end]);
  return end;
}

// The lead becomes as many characters as it has in that form alone. (A mark that follows and is
// ordered into them is not told apart.)
void change_form(UnicodeForm form, std::string_view text, std::string& out, size_t& lead) {
  to_unicode_form(form, text, out);
  if (lead == 0) return;
  std::string alone;
  to_unicode_form(form, text.substr(0, lead), alone);
  const auto characters = std::count_if(
      alone.begin(), alone.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
  lead = length_of_characters(out, static_cast<size_t>(characters));
}

void lower(std::string_view text, std::string& out, size_t& lead) {
  to_lower_case(text.substr(0, lead), out);
  const size_t lower_lead = out.size();
  to_lower_case(text.substr(lead), out);
  lead = lower_lead;
}

void strip(std::string_view text, std::string& out, size_t& lead, bool left, bool right) {
  const size_t size = text.size();
  while (left && !text.empty() && is_white_space(character_at(text, 0))) {
    text.remove_prefix(character_length(text[0]));
  }
  lead -= std::min(lead, size - text.size());
  while (right && !text.empty()) {
    const size_t last = previous_character(text, text.size());
    if (!is_white_space(character_at(text, last))) break;
    text = text.substr(0, last);
  }
  out = text;
}

void prepend(std::string_view front, std::string_view text, std::string& out, size_t& lead) {
  if (text.empty()) return;
  out.append(front).append(text);
  if (lead > 0) lead += front.size();
}

}  // namespace

ReplaceText make_replace(const JsonNode& node) {
  node.check_keys({"type", "pattern", "content"});
  const auto pattern = std::make_shared<Pattern>(node.at("pattern"));
  return [pattern, content = node.text("content")](std::string_view text, std::string& out,
                                                   size_t& lead) {
    size_t kept = 0, new_lead = 0;
    pattern->for_each(text, [&](Span match) {
      out.append(text.substr(kept, match.begin - kept));
      if (kept < lead) new_lead += std::min(match.begin, lead) - kept;
      out.append(content);
      if (match.end <= lead) new_lead += content.size();
      kept = match.end;
    });
    out.append(text.substr(kept));
    if (kept < lead) new_lead += lead - kept;
    lead = new_lead;
  };
}

Normalizer::Normalizer(const JsonNode& node) { add(node); }

void Normalizer::add(const JsonNode& node) {
  const std::string type = node.text("type");
  if (const std::optional<UnicodeForm> form = unicode_form(type)) {
    node.check_keys({"type"});
    steps_.push_back({.run = std::bind_front(change_form, *form), .leaves_ascii = true});
  } else if (type == "Lowercase") {
    node.check_keys({"type"});
    steps_.push_back({.run = lower});
  } else if (type == "Strip") {
    node.check_keys({"type", "strip_left", "strip_right"});
    const bool left = node.flag("strip_left"), right = node.flag("strip_right");
    steps_.push_back({.run = [left, right](std::string_view text, std::string& out, size_t& lead) {
      strip(text, out, lead, left, right);
    }});
    cuts_before_space_ = false;
  } else if (type == "Prepend") {
    node.check_keys({"type", "prepend"});
    steps_.push_back(
        {.run = [front = node.text("prepend")](std::string_view text, std::string& out,
                                               size_t& lead) { prepend(front, text, out, lead); },
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
  size_t lead = 0;
  return run(text, storage, continues, lead);
}

std::string_view Normalizer::apply_to_begin(std::string_view text, std::string& storage,
                                            size_t& lead) const {
  lead = character_length(text[0]);
  return run(text, storage, false, lead);
}

std::string_view Normalizer::run(std::string_view text, std::string& storage, bool continues,
                                 size_t& lead) const {
  std::string out;
  for (const Step& step : steps_) {
    if ((step.prepends && continues) || (step.leaves_ascii && is_ascii(text))) continue;
    out.clear();
    step.run(text, out, lead);
    storage.swap(out);
    text = storage;
  }
  return text;
}

}  // namespace fsdp::data
