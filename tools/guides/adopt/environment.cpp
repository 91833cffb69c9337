// The variables that the workshop guide's env_vars.sh sets, and which of two names counts. The
// shell has evaluated that file. Contract: tools/guides/adopt/programs.h.
#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/text/similar_names.h"
#include "tools/guides/adopt/programs.h"

namespace fsdp::adopt {
namespace {

// Two names of one thing: the one that most of the guide's programs read, with what they take where
// it is not set, and the other.
struct Pair {
  const char* read;
  const char* other;
  const char* our_key;
  const char* otherwise;
};
constexpr Pair kPairs[] = {
    {"PER_DEVICE_BATCH_SIZE", "BATCH_SIZE", "train.rows_per_pass", "1"},
    {"GRAD_ACC_STEPS", "GRAD_ACC", "train.micro_steps", "4"},
};

// The programs cut at this number of tokens, whatever MAX_LENGTH says.
constexpr char kLength[] = "512";

void take_max_length(const Given& given, Adoption& adoption) {
  const std::string mistake = fmt::format("the programs do not read it: {} there", kLength);
  if (adoption.options().literal)
    adoption.leave(given, mistake);
  else
    adoption.set("data.sequence_length", std::to_string(given.whole()), given,
                 mistake + " (--literal)");
}

// What the guides' programs read.
std::vector<Rule> read_rules() {
  return {
      {"MODEL_NAME", model_folder()},
      {"NUM_EPOCHS", whole_to("train.epochs")},
      {"LEARNING_RATE", to("train.lr")},
      {"WEIGHT_DECAY", to("train.optimizer.weight_decay")},
      {"TRAIN_SIZE", whole_to("data.subset.n")},
      {"EVAL_SIZE", not_yet("data.subset chooses training rows; train.eval_batches limits the "
                            "evaluation")},
      {"MAX_LENGTH", take_max_length},
      {"SEQ_LENGTH", whole_to("data.sequence_length")},
      {"FP16", together},
      {"BF16", together},
      {"BATCH_SIZE", together},
      {"PER_DEVICE_BATCH_SIZE", together},
      {"GRAD_ACC", together},
      {"GRAD_ACC_STEPS", together},
      {"VOCAB_SIZE", leave("the programs take the tokenizer's, and so does model.vocab_size: 0")},
      {"HIDDEN_SIZE", whole_to("model.hidden_size")},
      {"NUM_LAYERS", whole_to("model.layers")},
      {"NUM_HEADS", whole_to("model.heads")},
      {"FF_DIM", whole_to("model.ffn")},
      {"EXPERIMENT_NAME", to("runtime.name")},
  };
}

// What their scripts set for others.
std::vector<Rule> other_rules() {
  const auto log = leave("metrics.jsonl, metrics.json and a table lie in the run directory");
  const auto cache = leave("nothing is downloaded: model.path and data.train name what is there");
  const auto connect = leave("mpirun or srun starts the ranks and connects them");
  const auto library = leave("NCCL reads it itself: export it before mpirun");
  return {
      {"OUTPUT_DIR", leave("a run directory is made: runs/<name>-<time>, runtime.run_dir")},
      {"LOG_DIR", log},
      {"EXPERIMENT", log},
      {"WANDB_*", log},
      {"CONDA_ENV", leave("of the cluster's job")},
      {"HF_*", cache},
      {"TRANSFORMERS_CACHE", cache},
      {"TORCH_HOME", cache},
      {"XDG_CACHE_HOME", cache},
      {"TOKENIZERS_PARALLELISM", leave("texts become tokens once, on threads of their own")},
      {"MASTER_ADDR", connect},
      {"MASTER_PORT", connect},
      {"NODE_RANK", connect},
      {"TORCH_NCCL_*", leave("of PyTorch; runtime.timeout_s, runtime.heartbeat_s")},
      {"NCCL_*", library},
      {"WORLD_SIZE",
       [](const Given& given, Adoption& adoption) { adoption.set_ranks(given.whole(), given); }},
      {"OMP_NUM_THREADS", whole_to("runtime.threads")},
  };
}

const Program& environment_program() {
  static const Program program =
      program_of("env", "the guides' variables", {read_rules(), other_rules()});
  return program;
}

// Which of two names counts, and what the other one is told.
void take_pair(const Pair& pair, Adoption& adoption) {
  const Given* read = adoption.find(pair.read);
  const Given* other = adoption.find(pair.other);
  if (read) {
    adoption.set(pair.our_key, std::to_string(read->whole()), *read);
    if (other) adoption.leave(*other, fmt::format("{} won", pair.read));
    return;
  }
  if (!other) return;
  const std::string what = fmt::format(
      "the programs for several GPUs read {}, which is not set: {}", pair.read, pair.otherwise);
  if (!adoption.options().literal) {
    return adoption.set(pair.our_key, std::to_string(other->whole()), *other,
                        what + " there (--literal)");
  }
  adoption.set_default(pair.our_key, pair.otherwise, what);
  adoption.leave(*other, fmt::format("not read: {} is", pair.read));
}

void take_precision(Adoption& adoption) {
  const Given* f16 = adoption.find("FP16");
  const Given* bf16 = adoption.find("BF16");
  if (f16 && bf16 && f16->truth() && bf16->truth()) {
    bf16->refuse("expected one of FP16 and BF16 to be true, got both");
  }
  if (f16) on_to("train.dtype", "f16")(*f16, adoption);
  if (bf16) on_to("train.dtype", "bf16")(*bf16, adoption);
}

// What the guide's programs read, or its scripts set. Error for a variable that is named almost
// like one of these.
std::vector<Given> guides_own(const Variables& variables) {
  const Program& program = environment_program();
  std::vector<std::string> known;
  for (const Rule& rule : program.rules) known.push_back(rule.name);
  std::vector<Given> out;
  for (const auto& [name, value] : variables) {
    if (rule_of(program, name)) {
      out.push_back({.key = name, .name = name, .values = {value}, .place = "environment"});
      continue;
    }
    const std::string nearest = nearest_key(name, known);
    constexpr size_t kLong = 6;  // letters: in a shorter name two are too many
    FSDP_CHECK(name.size() < kLong || edit_distance(name, nearest) > 2,
               "environment: unknown variable {}; the nearest is {} (unset {} if it is another "
               "program's)",
               name, nearest, name);
  }
  return out;
}

// The programs read SQuAD, and of its two labels one is a mistake.
void set_task(Adoption& adoption) {
  const bool own_model = adoption.has("model.hidden_size"), literal = adoption.options().literal;
  adoption.set_default("data.format", "squad", "the programs read SQuAD");
  if (!literal) {
    return adoption.set_default("data.objective", "sft",
                                "answers are trained; in the programs their labels do not stand at "
                                "their tokens (--literal)");
  }
  adoption.set_default("data.objective", own_model ? "mask_pad" : "kaust_compat",
                       "as the programs label");
  adoption.set_default("data.pad_to", "length", "as the programs pad");
}

void set_defaults(Adoption& adoption) {
  const std::string origin = "TrainingArguments' default";
  adoption.set_default("train.optimizer.beta2", "0.999", origin);
  adoption.set_default("train.optimizer.weight_decay", "0", origin);
  adoption.set_default("train.schedule.kind", "linear", origin);
  adoption.set_default("data.sequence_length", kLength, "in the programs");
  if (adoption.has("model.hidden_size")) {
    adoption.set_default("model.model_type", "workshop_gpt", "the guide's own model, by its sizes");
  }
}

}  // namespace

std::string adopt_environment(const Variables& variables, const AdoptOptions& options) {
  Adoption adoption("env", "the environment", guides_own(variables), options);
  const Program read = program_of("env", "what the guides' programs read", {read_rules()});
  FSDP_CHECK(std::any_of(adoption.given().begin(), adoption.given().end(),
                         [&](const Given& given) { return rule_of(read, given.name); }),
             "adopt env: expected variables such as MODEL_NAME or LEARNING_RATE, got none: "
             "set -a; . env_vars.sh; set +a");
  take_all(environment_program(), adoption);
  for (const Pair& pair : kPairs) take_pair(pair, adoption);
  take_precision(adoption);
  set_task(adoption);
  set_defaults(adoption);
  adoption.note("sharding is not said here but in the program's TrainingArguments: fsdp adopt hf");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
