// Numbers put into formulas, the texts, and what is refused.
#include "tools/predict/formulas/formula.h"

#include <set>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("formulas: names are unique, and every example gives bytes") {
  std::set<std::string> names;
  for (const Formula& formula : formulas()) {
    CAPTURE(formula.name);
    CHECK(names.insert(formula.name).second);
    std::set<std::string> lines;
    for (const FormulaLine& line : evaluate_formula(formula.name, {}).formula.lines) {
      CHECK(lines.insert(line.name).second);
      CHECK(line.bytes >= 0);
    }
    CHECK(!lines.empty());
  }
  CHECK(names == std::set<std::string>{"seed002", "zero", "fsdp2-bound", "accelerate",
                                       "llamafactory", "alpaca", "deepspeed2", "deepspeed2-doc",
                                       "deepspeed3", "activation", "cookbook", "megatron"});
}

TEST_CASE("formulas: the text has symbols, formulas, GB and GiB") {
  const std::string text = format_formula(evaluate_formula("zero", {"N=4"}));
  CHECK(test::contains(text, "  psi            7500000000   parameters\n"));
  CHECK(test::contains(text, "  N                       4   GPUs\n"));
  CHECK(test::contains(text, "GB          GiB\n"));
  CHECK(test::contains(text, "stage1          4 psi + K psi / N"));
  CHECK(test::contains(text, "     52.5000      48.8944\n"));
}

TEST_CASE("formulas: JSON") {
  const Json json = parse_json(formula_json(evaluate_formula("zero", {"psi=1e9", "N=2"})), "json");
  CHECK(json.at("formula") == "zero");
  CHECK(json.at("symbols").at("psi") == 1e9);
  CHECK(json.at("symbols").at("K") == 12);
  CHECK(json.at("bytes").at("stage3") == 8e9);
  CHECK(json.at("gb").at("stage3") == 8);
  CHECK(json.at("gib").at("stage3") == 8e9 / (1 << 30));
}

TEST_CASE("formulas: an expression is read from left to right, and mistakes in it are named") {
  const std::vector<FormulaSymbol> symbols = {{"a", "", 6}, {"b_2", "", 3}};
  const std::pair<const char*, double> values[] = {{"a / b_2 * 2 - 1 + a", 9},
                                                   {"(a + 1.5e1) * b_2", 63},
                                                   {"max(a, min(b_2, 9)) / if(a >= 7, 1, 2)", 3},
                                                   {"if(a == 6, b_2 > 3, 5)", 0}};
  for (const auto& [text, value] : values) CHECK(evaluate_expression(text, symbols) == value);
  const std::pair<const char*, const char*> mistakes[] = {
      {"a + c", "expected a symbol, got \"c\""},
      {"a b_2", "expected an end at character 2"},
      {"min(a)", "expected \",\" at character 5"},
      {"(a", "expected \")\" at character 2"},
      {"", "expected a symbol, got \"\""}};
  for (const auto& [text, error] : mistakes) {
    CHECK(test::contains(test::error_of([&] { evaluate_expression(text, symbols); }), error));
  }
}

TEST_CASE("formulas: what is refused") {
  const auto error = [](const std::string& name, const std::vector<std::string>& numbers) {
    return test::error_of([&] { evaluate_formula(name, numbers); });
  };
  CHECK(test::contains(error("nought", {}), "--formula nought: expected one of seed002, zero"));
  const std::string expected = "expected SYMBOL=NUMBER with a symbol of zero: psi, K, N";
  CHECK(test::contains(error("zero", {"n=3"}), "--number n=3: " + expected));
  CHECK(test::contains(error("zero", {"N"}), "--number N: " + expected));
  CHECK(test::contains(error("zero", {"N=many"}), "expected a number from 0"));
  CHECK(test::contains(error("zero", {"N="}), "got \"\""));
  CHECK(test::contains(error("zero", {"N=-1"}), "got \"-1\""));
  CHECK(test::contains(error("zero", {"N=inf"}), "got \"inf\""));
  CHECK(test::contains(error("zero", {"N=0"}), "is no number of bytes with these numbers"));
  CHECK(test::contains(test::error_of([] { evaluate_formula("zero", {}).bytes_of("stage4"); }),
                       "[formula] zero: no line stage4"));
}

}  // namespace
}  // namespace fsdp::tools
