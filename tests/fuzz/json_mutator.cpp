// Contract: tests/fuzz/json_mutator.h.
#include "tests/fuzz/json_mutator.h"

#include <array>
#include <random>
#include <vector>

namespace fsdp::fuzz {
namespace {

// Values at which readers break.
constexpr std::array<std::string_view, 24> kLiterals = {"0",
                                                        "1",
                                                        "-1",
                                                        "2147483647",
                                                        "2147483648",
                                                        "9223372036854775807",
                                                        "18446744073709551615",
                                                        "18446744073709551616",
                                                        "1e308",
                                                        "1e-320",
                                                        "0.5",
                                                        "-0.0",
                                                        "null",
                                                        "true",
                                                        "false",
                                                        "[]",
                                                        "{}",
                                                        "\"\"",
                                                        "\"a\"",
                                                        "\"\\u0000\"",
                                                        "\"\\ud83d\\ude00\"",
                                                        "[[]]",
                                                        "[0]",
                                                        "{\"a\":0}"};

struct Token {
  size_t begin = 0, end = 0;
};

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

// Strings, words, and single characters.
std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (text[i] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (is_word(text[i])) {
      while (end < text.size() && is_word(text[end])) ++end;
    }
    out.push_back({i, end});
    i = end;
  }
  return out;
}

// The token, or from an opening bracket to the closing one.
Token value_at(std::string_view text, const std::vector<Token>& tokens, size_t first) {
  int depth = 0;
  for (size_t i = first; i < tokens.size(); ++i) {
    const char c = text[tokens[i].begin];
    depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (depth <= 0) return {tokens[first].begin, tokens[i].end};
  }
  return tokens[first];
}

std::string replaced(std::string_view text, Token what, std::string_view by) {
  return std::string(text.substr(0, what.begin)).append(by).append(text.substr(what.end));
}

}  // namespace

std::string mutate_json(std::string_view text, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::vector<Token> tokens = tokens_of(text);
  if (tokens.empty()) return std::string(kLiterals[below(kLiterals.size())]);
  const auto token = [&] { return tokens[below(tokens.size())]; };
  const auto value = [&] { return value_at(text, tokens, below(tokens.size())); };
  const auto of = [&](Token t) { return text.substr(t.begin, t.end - t.begin); };
  const Token here = below(2) ? token() : value();
  switch (below(6)) {
    case 0:
      return replaced(text, here, kLiterals[below(kLiterals.size())]);
    case 1:
      return replaced(text, here, of(value()));
    case 2:
      return replaced(text, here, of(token()));
    case 3:
      return replaced(text, here, "");
    case 4:
      return replaced(text, {here.end, here.end}, std::string(",").append(of(value())));
    default: {
      std::string out(text);
      out[below(out.size())] = static_cast<char>(random());
      return out;
    }
  }
}

}  // namespace fsdp::fuzz
