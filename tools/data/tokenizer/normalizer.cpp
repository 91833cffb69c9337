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
size_t lead_in_form(UnicodeForm form, std::string_view lead, std::string_view out) {
  std::string alone;
  to_unicode_form(form, lead, alone);
  return length_of_characters(out, count_characters(alone));
}

void change_form(UnicodeForm form, std::string_view text, std::string& out, Trace& trace) {
  to_unicode_form(form, text, out);
  if (out == text) {
    trace.keep({0, text.size()});
  } else if (trace.follows_bytes()) {
    for_each_part(form, text, [&](Span part, std::string_view formed) {
      part.of(text) == formed ? trace.keep(part) : trace.replace(part, formed.size());
    });
  }
  trace.set_lead(lead_in_form(form, text.substr(0, trace.lead()), out));
}

void lower(std::string_view text, std::string& out, Trace& trace) {
  for (size_t i = 0; i < text.size();) {
    const Span character{i, i + character_length(text[i])};
    const size_t before = out.size();
    to_lower_case(character.of(text), out);
    trace.replace(character, out.size() - before);
    i = character.end;
  }
}

void strip(std::string_view text, std::string& out, Trace& trace, bool left, bool right) {
  Span kept{0, text.size()};
  while (left && kept.begin < kept.end && is_white_space(character_at(text, kept.begin))) {
    kept.begin += character_length(text[kept.begin]);
  }
  while (right && kept.begin < kept.end) {
    const size_t last = previous_character(text, kept.end);
    if (!is_white_space(character_at(text, last))) break;
    kept.end = last;
  }
  out = kept.of(text);
  trace.keep(kept);
}

void prepend(std::string_view front, std::string_view text, std::string& out, Trace& trace) {
  if (text.empty()) return;
  out.append(front).append(text);
  trace.prepend(front.size());
  trace.keep({0, text.size()});
}

}  // namespace

ReplaceText make_replace(const JsonNode& node) {
  node.check_keys({"type", "pattern", "content"});
  const auto pattern = std::make_shared<Pattern>(node.at("pattern"));
  return [pattern, content = node.text("content")](std::string_view text, std::string& out,
                                                   Trace& trace) {
    size_t kept = 0;
    const auto keep_to = [&](size_t end) {
      out.append(text.substr(kept, end - kept));
      trace.keep({kept, end});
    };
    pattern->for_each(text, [&](Span match) {
      keep_to(match.begin);
      out.append(content);
      trace.replace(match, content.size());
      kept = match.end;
    });
    keep_to(text.size());
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
    steps_.push_back({.run = [left, right](std::string_view text, std::string& out, Trace& trace) {
      strip(text, out, trace, left, right);
    }});
    cuts_before_space_ = false;
  } else if (type == "Prepend") {
    node.check_keys({"type", "prepend"});
    steps_.push_back(
        {.run = [front = node.text("prepend")](std::string_view text, std::string& out,
                                               Trace& trace) { prepend(front, text, out, trace); },
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
  Trace trace;
  return apply(text, storage, trace, continues);
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage, Trace& trace,
                                   bool continues) const {
  std::string out;
  for (const Step& step : steps_) {
    if ((step.prepends && continues) || (step.leaves_ascii && is_ascii(text))) continue;
    out.clear();
    step.run(text, out, trace);
    trace.end_step();
    storage.swap(out);
    text = storage;
  }
  return text;
}

}  // namespace fsdp::data
