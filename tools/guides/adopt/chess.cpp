// The flags of the chess guide's script, chess_finetune.py, which fine-tunes CodeLlama-7b. What the
// script has no flag for is set as the script does it.
// Contract: tools/guides/adopt/programs.h.
#include <fmt/format.h>

#include "tools/guides/adopt/programs.h"
#include "tools/guides/adopt/read_arguments.h"

namespace fsdp::adopt {
namespace {

constexpr char kModel[] = "codellama/CodeLlama-7b-hf";

void take_steps(const Given& given, Adoption& adoption) {
  if (given.whole() < 1) return adoption.off(given);
  whole_to("train.steps")(given, adoption);
}

const Program& chess_program() {
  static const Program program = {
      .name = "chess",
      .title = "chess_finetune.py",
      .rules = {
          flag("--no_fsdp", on_to("fsdp.strategy", "no_shard")),
          flag("--no_layer_wrap_policy", on_to("fsdp.wrap", "none")),
          {"--batch_size_per_device", count_to("train.rows_per_pass")},
          {"--gradient_accumulation_steps", count_to("train.micro_steps")},
          {"--learning_rate", to("train.lr")},
          {"--max_training_steps", take_steps},
          flag("--gradient_checkpointing", on_to("train.recompute.mode", "full")),
          {"--max_seq_length",
           [](const Given& given, Adoption& adoption) {
             if (adoption.options().literal)
               adoption.leave(given, "the script does not use it: 512");
             else
               adoption.set("data.sequence_length", std::to_string(given.whole()), given,
                            "the script itself always cuts at 512");
           }},
      }};
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

// In the script, without a flag.
void set_constants(Adoption& adoption) {
  const std::string script = "in the script", flag = "the flag's default";
  for (const auto& [key, value] : {std::pair{"model.path", kModel},
                                   {"data.train", "strategic_game_chess.jsonl"},
                                   {"data.field", "text"},
                                   {"data.sequence_length", "512"},
                                   {"data.pack", "examples"},
                                   {"data.document_separator", "false"},
                                   {"data.shuffle_rule", "torch"},
                                   {"data.last_batch", "drop_last"},
                                   {"train.dtype", "bf16"},
                                   {"train.clip_norm", "0"},
                                   {"train.seed", "42"},
                                   {"train.log_every", "1"},
                                   {"train.log_format", "chess"},
                                   {"train.save", "false"},
                                   {"train.loss_mean", "ranks"},
                                   {"train.schedule.kind", "linear"},
                                   {"train.schedule.warmup", "10%"},
                                   {"train.optimizer.kind", "adamw"},
                                   {"train.optimizer.beta2", "0.999"},
                                   {"train.optimizer.weight_decay", "0.01"},
                                   {"train.optimizer.decay", "all"},
                                   {"fsdp.strategy", "full_shard"},
                                   {"fsdp.wrap", "transformer_block"},
                                   {"fsdp.root", "whole"},
                                   {"fsdp.forward_prefetch", "false"}}) {
    adoption.set_default(key, value, script);
  }
  adoption.set_default("train.lr", "1e-5", flag);
  adoption.set_default("train.rows_per_pass", "1", flag);
  adoption.set_default("train.micro_steps", "8", flag);
  if (!adoption.has("train.steps")) adoption.set_default("train.epochs", "1", script);
}

}  // namespace

std::string adopt_chess(const std::vector<std::string>& arguments, const AdoptOptions& options) {
  const ForeignCommand command =
      read_command(arguments, {"chess_finetune.py", "chess.py"}, chess_program());
  Adoption adoption("chess", command.source, command.arguments, options);
  take_variables(adoption, command.variables);
  take_all(chess_program(), adoption);
  set_constants(adoption);
  if (adoption.value_of("model.path") == kModel) {
    adoption.note(fmt::format("the folder {} must be there: nothing is downloaded", kModel));
  }
  adoption.leave({.key = "GradScaler", .values = {"in the script"}, .place = ""},
                 "bf16 has the range of f32: there is nothing to scale");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
