// A published formula for memory: symbols with the numbers of the published example, and lines that
// give bytes. Pure: nothing here knows of a model or a run. The formulas: sharding.cpp,
// deepspeed.cpp, transformer.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

struct FormulaSymbol {
  std::string name;
  std::string meaning;
  double value;  // of the published example
};

// Numbers of the symbols.
class FormulaNumbers {
 public:
  explicit FormulaNumbers(const std::vector<FormulaSymbol>& symbols);
  double operator()(const std::string& symbol) const { return numbers_.at(symbol); }

 private:
  std::map<std::string, double> numbers_;
};

struct FormulaLine {
  std::string name;  // a key of the JSON
  std::string text;  // as it was published
  double bytes;
};

struct Formula {
  std::string name;
  std::string about;
  std::vector<FormulaSymbol> symbols;
  std::function<std::vector<FormulaLine>(const FormulaNumbers&)> lines;
};

std::vector<Formula> formulas();
// By rooms of origin; formulas() has all of them.
std::vector<Formula> sharding_formulas();
std::vector<Formula> deepspeed_formulas();
std::vector<Formula> transformer_formulas();

// The formula of that name with these numbers ("N=64") in place of the example's. Error for a name
// or symbol that there is not, and for a number below zero.
struct FormulaResult {
  Formula formula;  // symbols: with the numbers put in
  std::vector<FormulaLine> lines;
  double bytes_of(std::string_view line) const;  // Error when there is no such line
};
FormulaResult evaluate_formula(const std::string& name, const std::vector<std::string>& numbers);

std::string format_formula(const FormulaResult& result);  // several lines
// {"formula", "symbols": {}, "bytes": {}, "gb": {}, "gib": {}}
std::string formula_json(const FormulaResult& result);

}  // namespace fsdp::tools
