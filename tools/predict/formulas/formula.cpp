// Numbers into formulas, and the texts.
#include "tools/predict/formulas/formula.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tools/predict/machine_files.h"

namespace fsdp::tools {
namespace {

constexpr double kGB = 1e9, kGiB = 1073741824.0;

std::string names_of(const auto& list) {
  std::vector<std::string> names;
  for (const auto& entry : list) names.push_back(entry.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void put_in(Formula& formula, const std::string& number) {
  const size_t equal = number.find('=');
  const std::string symbol = number.substr(0, equal);
  const auto found = std::find_if(formula.symbols.begin(), formula.symbols.end(),
                                  [&](const FormulaSymbol& s) { return s.name == symbol; });
  FSDP_CHECK(equal != std::string::npos && found != formula.symbols.end(),
             "--number {}: expected SYMBOL=NUMBER with a symbol of {}: {}", number, formula.name,
             names_of(formula.symbols));
  const std::string text = number.substr(equal + 1);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  FSDP_CHECK(!text.empty() && *end == '\0' && std::isfinite(value) && value >= 0,
             "--number {}: expected a number from 0, such as 7.5e9, got \"{}\"", number, text);
  found->value = value;
}

// 7500000000 as 7.5e+09 would hide digits of a count.
std::string number_text(double value) {
  return value == std::floor(value) && value < 1e15 ? fmt::format("{:.0f}", value)
                                                    : fmt::format("{:g}", value);
}

// One expression, read from left to right.
class Expression {
 public:
  Expression(std::string_view text, const std::vector<FormulaSymbol>& symbols)
      : text_(text), symbols_(symbols) {}

  double value() {
    const double out = comparison();
    FSDP_CHECK(at_ == text_.size(), "[formula] \"{}\": expected an end at character {}", text_,
               at_);
    return out;
  }

 private:
  double comparison() {
    const double left = sum();
    if (takes(">=")) return left >= sum() ? 1 : 0;
    if (takes(">")) return left > sum() ? 1 : 0;
    if (takes("==")) return left == sum() ? 1 : 0;
    return left;
  }
  double sum() {
    double out = product();
    while (true) {
      if (takes("+")) {
        out += product();
      } else if (takes("-")) {
        out -= product();
      } else {
        return out;
      }
    }
  }
  double product() {
    double out = factor();
    while (true) {
      if (takes("*")) {
        out *= factor();
      } else if (takes("/")) {
        out /= factor();
      } else {
        return out;
      }
    }
  }
  double factor() {
    if (takes("(")) {
      const double inner = comparison();
      expect(")");
      return inner;
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return number();
    const size_t begin = at_;
    while (at_ < text_.size() && is_of_name(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    skip_to(at_);
    if (name == "min" || name == "max" || name == "if") return call(name);
    const auto found = std::find_if(symbols_.begin(), symbols_.end(),
                                    [&](const FormulaSymbol& s) { return s.name == name; });
    FSDP_CHECK(found != symbols_.end(), "[formula] \"{}\": expected a symbol, got \"{}\"", text_,
               name);
    return found->value;
  }
  double number() {
    double out = 0;
    const char* const end = std::from_chars(text_.data() + at_, text_.end(), out).ptr;
    skip_to(static_cast<size_t>(end - text_.data()));
    return out;
  }
  double call(std::string_view name) {
    expect("(");
    const double first = comparison();
    expect(",");
    const double second = comparison();
    double third = 0;
    if (name == "if") {
      expect(",");
      third = comparison();
    }
    expect(")");
    if (name == "if") return first != 0 ? second : third;
    return name == "min" ? std::min(first, second) : std::max(first, second);
  }
  static bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool takes(std::string_view sign) {
    if (!text_.substr(at_).starts_with(sign)) return false;
    skip_to(at_ + sign.size());
    return true;
  }
  void expect(std::string_view sign) {
    FSDP_CHECK(takes(sign), "[formula] \"{}\": expected \"{}\" at character {}", text_, sign, at_);
  }
  void skip_to(size_t place) { at_ = std::min(text_.find_first_not_of(' ', place), text_.size()); }

  std::string_view text_;
  const std::vector<FormulaSymbol>& symbols_;
  size_t at_ = 0;
};

Formula formula_of(const Json& json) {
  Formula out = {.name = json["name"].text(), .about = json["about"].text()};
  for (const Json& symbol : json["symbols"]) {
    out.symbols.push_back({symbol[0].text(), symbol[1].text(), symbol[2].get<double>()});
  }
  if (const Json* const terms = json.find("terms")) {
    for (const Json& term : *terms) out.terms.emplace_back(term[0].text(), term[1].text());
  }
  for (const Json& line : json["lines"]) {
    out.lines.push_back({line[0].text(), line[1].text(), line[2].text()});
  }
  return out;
}

}  // namespace

double evaluate_expression(std::string_view text, const std::vector<FormulaSymbol>& symbols) {
  return Expression(text, symbols).value();
}

std::vector<Formula> formulas() {
  std::vector<Formula> all;
  for (const Json& json : parse_json(published_formulas(), "published.json")) {
    all.push_back(formula_of(json));
  }
  return all;
}

double FormulaResult::bytes_of(std::string_view line) const {
  const auto found = std::find_if(formula.lines.begin(), formula.lines.end(),
                                  [&](const FormulaLine& l) { return l.name == line; });
  FSDP_CHECK(found != formula.lines.end(), "[formula] {}: no line {}", formula.name, line);
  return found->bytes;
}

FormulaResult evaluate_formula(const std::string& name, const std::vector<std::string>& numbers) {
  std::vector<Formula> all = formulas();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Formula& f) { return f.name == name; });
  FSDP_CHECK(found != all.end(), "--formula {}: expected one of {}", name, names_of(all));
  FormulaResult result = {*found};
  for (const std::string& number : numbers) put_in(result.formula, number);
  std::vector<FormulaSymbol> known = result.formula.symbols;
  for (const auto& [term, expression] : result.formula.terms) {
    known.push_back({term, "", evaluate_expression(expression, known)});
  }
  for (FormulaLine& line : result.formula.lines) {
    line.bytes = evaluate_expression(line.expression, known);
    FSDP_CHECK(std::isfinite(line.bytes),
               "--formula {}: {} = {} is no number of bytes with these numbers", name, line.name,
               line.text);
  }
  return result;
}

std::string format_formula(const FormulaResult& result) {
  std::string out = fmt::format("{}: {}\n\n", result.formula.name, result.formula.about);
  for (const FormulaSymbol& symbol : result.formula.symbols) {
    out += fmt::format("  {:<8} {:>16}   {}\n", symbol.name, number_text(symbol.value),
                       symbol.meaning);
  }
  size_t widest = 0, name = 0;
  for (const FormulaLine& line : result.formula.lines) {
    widest = std::max(widest, line.text.size());
    name = std::max(name, line.name.size());
  }
  out += fmt::format("\n  {:<{}}   {:<{}} {:>12} {:>12}\n", "", name, "", widest, "GB", "GiB");
  for (const FormulaLine& line : result.formula.lines) {
    out += fmt::format("  {:<{}}   {:<{}} {:>12.4f} {:>12.4f}\n", line.name, name, line.text,
                       widest, line.bytes / kGB, line.bytes / kGiB);
  }
  return out;
}

std::string formula_json(const FormulaResult& result) {
  Json symbols = Json::object(), bytes = symbols, gb = symbols, gib = symbols;
  for (const FormulaSymbol& symbol : result.formula.symbols) symbols[symbol.name] = symbol.value;
  for (const FormulaLine& line : result.formula.lines) {
    bytes[line.name] = line.bytes;
    gb[line.name] = line.bytes / kGB;
    gib[line.name] = line.bytes / kGiB;
  }
  return Json{{"formula", result.formula.name},
              {"symbols", symbols},
              {"bytes", bytes},
              {"gb", gb},
              {"gib", gib}}
      .dump({.indent = 2});
}

}  // namespace fsdp::tools
