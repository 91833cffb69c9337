// Numbers into formulas, and the texts.
#include "tools/predict/formulas/formula.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/json.h"

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

}  // namespace

FormulaNumbers::FormulaNumbers(const std::vector<FormulaSymbol>& symbols) {
  for (const FormulaSymbol& symbol : symbols) numbers_[symbol.name] = symbol.value;
}

std::vector<Formula> formulas() {
  std::vector<Formula> all = sharding_formulas();
  for (auto* more : {&deepspeed_formulas, &transformer_formulas}) {
    for (Formula& formula : (*more)()) all.push_back(std::move(formula));
  }
  return all;
}

double FormulaResult::bytes_of(std::string_view line) const {
  const auto found = std::find_if(lines.begin(), lines.end(),
                                  [&](const FormulaLine& l) { return l.name == line; });
  FSDP_CHECK(found != lines.end(), "[formula] {}: no line {}", formula.name, line);
  return found->bytes;
}

FormulaResult evaluate_formula(const std::string& name, const std::vector<std::string>& numbers) {
  std::vector<Formula> all = formulas();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Formula& f) { return f.name == name; });
  FSDP_CHECK(found != all.end(), "--formula {}: expected one of {}", name, names_of(all));
  FormulaResult result = {.formula = *found, .lines = {}};
  for (const std::string& number : numbers) put_in(result.formula, number);
  result.lines = result.formula.lines(FormulaNumbers(result.formula.symbols));
  for (const FormulaLine& line : result.lines) {
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
  for (const FormulaLine& line : result.lines) {
    widest = std::max(widest, line.text.size());
    name = std::max(name, line.name.size());
  }
  out += fmt::format("\n  {:<{}}   {:<{}} {:>12} {:>12}\n", "", name, "", widest, "GB", "GiB");
  for (const FormulaLine& line : result.lines) {
    out += fmt::format("  {:<{}}   {:<{}} {:>12.4f} {:>12.4f}\n", line.name, name, line.text,
                       widest, line.bytes / kGB, line.bytes / kGiB);
  }
  return out;
}

std::string formula_json(const FormulaResult& result) {
  Json symbols = Json::object(), bytes = symbols, gb = symbols, gib = symbols;
  for (const FormulaSymbol& symbol : result.formula.symbols) symbols[symbol.name] = symbol.value;
  for (const FormulaLine& line : result.lines) {
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
