// The flags of the chess guide's script, chess_finetune.py, which fine-tunes CodeLlama-7b, and the
// job script around it. What the script has no flag for is set as the script does it.
// Contract: tools/adopt/programs.h.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/adopt/programs.h"
#include "tools/adopt/read_arguments.h"
#include "tools/adopt/read_shell.h"

namespace fsdp::adopt {
namespace {

// The job script divides the total by rows and GPUs, and so does this program: train.batch.
void take_accumulation(const Given& given, Adoption& adoption) {
  if (!is_open(given.one())) return count_to("train.micro_steps")(given, adoption);
  if (adoption.has("train.batch")) return adoption.leave(given, "follows from train.batch");
  given.refuse("expected a number, or total_batch_size in the script");
}

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
          {"--gradient_accumulation_steps", take_accumulation},
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

// What job scripts call the numbers that they divide.
void take_variables(Adoption& adoption, const std::vector<Given>& variables) {
  for (const Given& each : variables) {
    if (is_open(each.one())) continue;  // computed there, read in the options
    if (each.name == "total_batch_size" || each.name == "TOTAL_BATCH_SIZE") {
      adoption.set("train.batch", std::to_string(each.whole()), each,
                   "a multiple of rows_per_pass x ranks");
    } else if (each.name == "OMP_NUM_THREADS") {
      whole_to("runtime.threads")(each, adoption);
    } else if (each.name == "num_gpus") {
      adoption.set_ranks(each.whole(), each);
    }
  }
}

// In the script, without a flag.
void set_constants(Adoption& adoption) {
  const std::string script = "in the script", flag = "the flag's default";
  for (const auto& [key, value] : {std::pair{"model.path", "codellama/CodeLlama-7b-hf"},
                                   {"data.train", "strategic_game_chess.jsonl"},
                                   {"data.field", "text"},
                                   {"data.sequence_length", "512"},
                                   {"data.pack", "examples"},
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
                                   {"train.optimizer.kind", "adamw"},
                                   {"train.optimizer.beta2", "0.999"},
                                   {"train.optimizer.weight_decay", "0.01"},
                                   {"train.optimizer.decay", "all"},
                                   {"fsdp.strategy", "full_shard"},
                                   {"fsdp.wrap", "transformer_block"},
                                   {"fsdp.forward_prefetch", "false"}}) {
    adoption.set_default(key, value, script);
  }
  adoption.set_default("train.lr", "1e-5", flag);
  adoption.set_default("train.rows_per_pass", "1", flag);
  if (!adoption.has("train.batch")) adoption.set_default("train.micro_steps", "8", flag);
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
  adoption.note("the folder codellama/CodeLlama-7b-hf must be there: nothing is downloaded");
  const auto leave = [&](const char* key, const char* reason) {
    adoption.leave({.key = key, .values = {"in the script"}, .place = ""}, reason);
  };
  leave("warm-up", "no counterpart yet: a tenth of all steps; train.schedule.warmup counts steps");
  leave("GradScaler", "bf16 has the range of f32: there is nothing to scale");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
