// The flags of the chess guide's script, chess_finetune.py, which fine-tunes CodeLlama-7b. What the
// script has no flag for is set as the script does it.
// Contract: tools/guides/adopt/programs.h.
#include <fmt/format.h>

#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_arguments.h"

namespace fsdp::adopt {

const Json& chess_json();  // tables/chess.json

namespace {

constexpr char kModel[] = "codellama/CodeLlama-7b-hf";

void take_steps(const Given& given, Adoption& adoption) {
  if (given.whole() < 1) return adoption.off(given);
  whole_to("train.steps")(given, adoption);
}

void take_length(const Given& given, Adoption& adoption) {
  if (adoption.options().literal)
    adoption.leave(given, "the script does not use it: 512");
  else
    adoption.set("data.sequence_length", std::to_string(given.whole()), given,
                 "the script itself always cuts at 512");
}

const Program& chess_program() {
  static const Program program = program_of(
      "chess", "chess_finetune.py",
      {rules_of(chess_json()["rules"], {{"steps", take_steps}, {"length", take_length}})});
  return program;
}

void take_variables(Adoption& adoption, const std::vector<Given>& variables) {
  for (const Given& each : variables) {
    if (each.name == "OMP_NUM_THREADS") {
      whole_to("runtime.threads")(each, adoption);
    } else {
      adoption.leave(each, "a variable: export it before mpirun where a library reads it");
    }
  }
}

}  // namespace

std::string adopt_chess(const std::vector<std::string>& arguments, const AdoptOptions& options) {
  const ForeignCommand command =
      read_command(arguments, {"chess_finetune.py", "chess.py"}, chess_program());
  Adoption adoption("chess", command.source, command.arguments, options);
  take_variables(adoption, command.variables);
  take_all(chess_program(), adoption);
  adoption.set_defaults(chess_json()["defaults"]);
  if (!adoption.has("train.steps")) adoption.set_default("train.epochs", "1", "in the script");
  if (adoption.value_of("model.path") == kModel) {
    adoption.note(fmt::format("the folder {} must be there: nothing is downloaded", kModel));
  }
  adoption.leave({.key = "GradScaler", .values = {"in the script"}, .place = ""},
                 "bf16 has the range of f32: there is nothing to scale");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
