// Published formulas for memory: symbols with the numbers of the published example, and lines that
// give bytes. The formulas themselves are data: published.json, where an "about" is for the reader
// of a table, a "note" for the reader of the file, and a line has its text as it was published
// beside the expression that computes it. Nothing here knows of a model or a run.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::tools {

struct FormulaSymbol {
  std::string name;
  std::string meaning;
  double value;  // of the published example
};

struct FormulaLine {
  std::string name;        // a key of the JSON
  std::string text;        // as it was published
  std::string expression;  // of symbols and terms: see evaluate_expression()
  double bytes = 0;
};

struct Formula {
  std::string name;
  std::string about;
  std::vector<FormulaSymbol> symbols;
  // Parts that several lines have: name and expression, of symbols and of the terms before.
  std::vector<std::pair<std::string, std::string>> terms;
  std::vector<FormulaLine> lines;
};

std::vector<Formula> formulas();

// "2 * psi / if(zero >= 3, N, 1)": numbers, symbols, + - * /, parentheses, min(a, b), max(a, b),
// and if(a, b, c), which is b unless a is 0. A comparison (> >= ==) is 1 or 0. Error for anything
// else.
double evaluate_expression(std::string_view text, const std::vector<FormulaSymbol>& symbols);

// The formula of that name with these numbers ("N=64") in place of the example's. Error for a name
// or a symbol that does not exist, and for a number below zero.
struct FormulaResult {
  Formula formula;                               // with the numbers put in, and bytes of its lines
  double bytes_of(std::string_view line) const;  // Error when there is no such line
};
FormulaResult evaluate_formula(const std::string& name, const std::vector<std::string>& numbers);

std::string format_formula(const FormulaResult& result);  // several lines
// {"formula", "symbols": {}, "bytes": {}, "gb": {}, "gib": {}}
std::string formula_json(const FormulaResult& result);

}  // namespace fsdp::tools
