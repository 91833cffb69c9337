// NFC and its kin by utf8proc, the rest by hand. Contract: tools/data/tokenizer/normalizer.h.
#include "tools/data/tokenizer/normalizer.h"

#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "core/error.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/pattern.h"

namespace fsdp::data {
namespace {

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80) return false;
  }
  return true;
}

void append_unicode_form(std::string_view text, std::string& out, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                   static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  FSDP_CHECK(size >= 0, "[tokenizer] Unicode normalisation: {}", utf8proc_errmsg(size));
  out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

// utf8proc takes U+11A7 for a final consonant and loses it after a Hangul syllable. It composes
// with nothing, so what is before and after it is normalised apart.
void to_unicode_form(std::string_view text, std::string& out, int options) {
  constexpr std::string_view kNoFinalConsonant = "\u11a7";
  for (;;) {
    const size_t end = text.find(kNoFinalConsonant);
    append_unicode_form(text.substr(0, end), out, options);
    if (end == text.npos) return;
    out += kNoFinalConsonant;
    text.remove_prefix(end + kNoFinalConsonant.size());
  }
}

void to_lower(std::string_view text, std::string& out) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // the one whose lower case is two characters
  for (size_t i = 0; i < text.size(); i += character_length(text[i])) {
    const char32_t c = character_at(text, i);
    if (c == kCapitalIWithDot) {
      out += "i\u0307";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
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

void Normalizer::add_unicode_form(int options) {
  const auto run = [options](std::string_view text, std::string& out) {
    to_unicode_form(text, out, options);
  };
  steps_.push_back({.run = run, .leaves_ascii = true});
}

void Normalizer::add(const JsonNode& node) {
  const std::string type = node.text("type");
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    node.check_keys({"type"});
    add_unicode_form((type.back() == 'C' ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                     (type.size() == 4 ? UTF8PROC_COMPAT : 0));
  } else if (type == "Lowercase") {
    node.check_keys({"type"});
    steps_.push_back({.run = to_lower});
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
