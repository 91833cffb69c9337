// Contract: tools/data/tokenizer/decoder.h.
#include "tools/data/tokenizer/decoder.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/json_node.h"
#include "tools/data/tokenizer/normalizer.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

constexpr std::string_view kReplacement = "\ufffd";

std::string joined(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

void fuse(std::vector<std::string>& tokens) { tokens = {joined(tokens)}; }

// A token with a character that stands for no byte is kept as it is.
void decode_byte_level(std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const size_t before = bytes.size();
    for (size_t i = 0; i < token.size(); i += character_length(token[i])) {
      const int byte = byte_of_character(character_at(token, i));
      if (byte < 0) {
        bytes.resize(before);
        bytes += token;
        break;
      }
      bytes += static_cast<char>(byte);
    }
  }
  tokens = {to_valid_utf8(bytes)};
}

// The byte of a token like <0x0A>.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return {};
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  const int high = digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return {};
  return static_cast<char>(high * 16 + low);
}

// A run of byte tokens is text if it is valid as a whole, else one replacement for each byte.
void decode_byte_fallback(std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto end_run = [&] {
    if (run.empty()) return;
    if (first_invalid_utf8(run) == run.size()) {
      out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), std::string(kReplacement));
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = fallback_byte(token)) {
      run += *byte;
    } else {
      end_run();
      out.push_back(std::move(token));
    }
  }
  end_run();
  tokens = std::move(out);
}

// Of every token: at most `start` times the content at its front, `stop` times at its back.
void strip(std::string& token, const std::string& content, int64_t start, int64_t stop) {
  for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
  for (int64_t i = 0; i < stop && token.ends_with(content); ++i) {
    token.resize(token.size() - content.size());
  }
}

// `drops`: the first token's blanks stand for nothing, not for spaces.
void decode_metaspace(std::vector<std::string>& tokens, const std::string& blank, bool drops) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string out;
    for (size_t c = 0; c < tokens[i].size(); c += character_length(tokens[i][c])) {
      const std::string_view character =
          std::string_view(tokens[i]).substr(c, character_length(tokens[i][c]));
      if (character != blank) {
        out += character;
      } else if (i > 0 || !drops) {
        out += ' ';
      }
    }
    tokens[i] = std::move(out);
  }
}

}  // namespace

Decoder::Decoder(const JsonNode& node) : given_(true) { add(node); }

void Decoder::add(const JsonNode& node) {
  const std::string type = node.text("type");
  if (type == "ByteLevel") {
    node.check_keys({"type"}, "decoder ByteLevel");
    steps_.push_back(decode_byte_level);
  } else if (type == "ByteFallback") {
    node.check_keys({"type"});
    steps_.push_back(decode_byte_fallback);
  } else if (type == "Fuse") {
    node.check_keys({"type"});
    steps_.push_back(fuse);
  } else if (type == "Replace") {
    steps_.push_back([replace = make_replace(node)](std::vector<std::string>& tokens) {
      for (std::string& token : tokens) {
        std::string out;
        Trace trace;
        replace(token, out, trace);
        token = std::move(out);
      }
    });
  } else if (type == "Strip") {
    node.check_keys({"type", "content", "start", "stop"});
    const int64_t start = node.at("start").integer(0, INT32_MAX);
    const int64_t stop = node.at("stop").integer(0, INT32_MAX);
    if (node.text("content").empty()) node.at("content").fail("expected a character, got \"\"");
    steps_.push_back(
        [content = node.text("content"), start, stop](std::vector<std::string>& tokens) {
          for (std::string& token : tokens) strip(token, content, start, stop);
        });
  } else if (type == "Metaspace") {
    node.check_keys({"type", "replacement", "prepend_scheme", "add_prefix_space"},
                    "decoder Metaspace");
    const bool add = node.flag("add_prefix_space", true);
    const bool drops = node.has("prepend_scheme") ? node.text("prepend_scheme") != "never" : add;
    steps_.push_back([blank = node.text("replacement"), drops](std::vector<std::string>& tokens) {
      decode_metaspace(tokens, blank, drops);
    });
  } else if (type == "Sequence") {
    node.check_keys({"type", "decoders"});
    const JsonNode list = node.at("decoders");
    for (size_t i = 0; i < list.size(); ++i) add(list.item(i));
  } else {
    node.fail_unknown_type("ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, Sequence");
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (!given_) return fmt::format("{}", fmt::join(tokens, " "));
  for (const Step& step : steps_) step(tokens);
  return joined(tokens);
}

namespace {

// One after the other, each in all of the text.
constexpr std::pair<std::string_view, std::string_view> kCleaned[] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

std::string clean_up_spaces(std::string text) {
  for (const auto& [from, to] : kCleaned) {
    std::string out;  // and not in its place: each replacement would move the rest
    size_t done = 0;
    for (size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
      out.append(text, done, at - done).append(to);
    }
    text = std::move(out.append(text, done));
  }
  return text;
}

bool may_be_cleaned_up(std::string_view text) {
  return std::any_of(std::begin(kCleaned), std::end(kCleaned), [&](const auto& pair) {
    for (size_t length = 1; length < pair.first.size(); ++length) {
      if (text.ends_with(pair.first.substr(0, length))) return true;
    }
    return false;
  });
}

}  // namespace fsdp::data
