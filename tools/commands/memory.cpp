// fsdp memory: what others' formulas say of the memory of a training run.
#include <cstdio>

#include "tools/commands/commands.h"
#include "tools/formulas/formula.h"

namespace fsdp::tools {
namespace {

struct MemoryOptions {
  std::string formula;
  std::vector<std::string> numbers;
  bool json = false;
};

std::string help_of_formulas() {
  std::string out = "Formulas:\n";
  for (const Formula& formula : formulas()) {
    out += "  " + formula.name + ": " + formula.about + "\n";
  }
  return out;
}

}  // namespace

void add_memory_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<MemoryOptions>();
  const Command command =
      app.add_command("memory", "prints a published formula for the memory of a run");
  command.add_option("--formula", options->formula, "which one").required();
  command
      .add_option("--number", options->numbers,
                  "SYMBOL=NUMBER, in place of the published example's; as often as needed")
      .one_value_each();
  command.add_flag("--json", options->json, "print JSON");
  command.footer(help_of_formulas());
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      const FormulaResult result = evaluate_formula(options->formula, options->numbers);
      std::printf("%s\n",
                  options->json ? formula_json(result).c_str() : format_formula(result).c_str());
      return 0;
    };
  });
}

}  // namespace fsdp::tools
