// The workshop guide's env_vars.sh and the scripts that read it: variables that are set, names that
// are read, and which of two counts. Contract: tools/adopt/programs.h.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/nearest.h"
#include "tools/adopt/programs.h"
#include "tools/adopt/read_shell.h"

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
  const auto job = leave("of the cluster's job");
  const auto log = leave("metrics.jsonl, metrics.json and a table lie in the run directory");
  const auto cache = leave("nothing is downloaded: model.path and data.train name what is there");
  const auto connect = leave("mpirun or srun starts the ranks and connects them");
  const auto library = leave("NCCL and CUDA read it themselves: export it before mpirun");
  return {
      {"OUTPUT_DIR", leave("a run directory is made: runs/<name>-<time>, runtime.run_dir")},
      {"LOG_DIR", log},
      {"EXPERIMENT", log},
      {"WANDB_*", log},
      {"CONDA_ENV", job},
      {"SLURM_*", job},
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
      {"CUDA_*", library},
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

// The names that programs read, and what each takes where a name is not set.
using Reads = std::vector<ReadVariable>;

const ReadVariable* find_read(const Reads& reads, const std::string& name) {
  const auto found = std::find_if(reads.begin(), reads.end(),
                                  [&](const ReadVariable& each) { return each.name == name; });
  return found == reads.end() ? nullptr : &*found;
}

// Which of two names counts, and what the other one is told.
void take_pair(const Pair& pair, const Reads& reads, Adoption& adoption) {
  const ReadVariable* reads_other = find_read(reads, pair.other);
  const ReadVariable* reads_first = find_read(reads, pair.read);
  const bool other_is_read = reads_other && !reads_first;
  const Given* first = adoption.find(other_is_read ? pair.other : pair.read);
  const Given* second = adoption.find(other_is_read ? pair.read : pair.other);
  const char* const name = other_is_read ? pair.other : pair.read;
  if (first) {
    adoption.set(pair.our_key, std::to_string(first->whole()), *first);
    if (second) adoption.leave(*second, fmt::format("{} won", name));
    return;
  }
  if (!second) return;
  const ReadVariable* read = other_is_read ? reads_other : reads_first;
  const std::string otherwise = read && !read->otherwise.empty() ? read->otherwise : pair.otherwise;
  const std::string who = read ? read->place : "the programs for several GPUs";
  const std::string what =
      fmt::format("{} read{} {}, which is not set: {}", who, read ? "s" : "", name, otherwise);
  if (!adoption.options().literal) {
    return adoption.set(pair.our_key, std::to_string(second->whole()), *second,
                        what + " there (--literal)");
  }
  adoption.set_default(pair.our_key, otherwise, what);
  adoption.leave(*second, fmt::format("not read: {} is", name));
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

// The last value of each name counts; what it replaced is told. What the script computes is left.
std::vector<Given> effective(const std::vector<Given>& all, std::vector<std::string>& lines) {
  std::vector<Given> out;
  for (const Given& each : all) {
    const auto before = std::find_if(out.begin(), out.end(),
                                     [&](const Given& other) { return other.name == each.name; });
    if (before == out.end()) {
      out.push_back(each);
      continue;
    }
    if (before->values != each.values) {
      lines.push_back(fmt::format("{} is set twice: {} counts, not {}", each.name, each.origin(),
                                  before->origin()));
    }
    *before = each;
  }
  return out;
}

void take_variables(Adoption& adoption) {
  std::vector<std::string> known;
  for (const Rule& rule : environment_program().rules) known.push_back(rule.name);
  for (const Given& given : adoption.given()) {
    const Rule* rule = rule_of(environment_program(), given.name);
    if (!rule) {
      const std::string nearest = nearest_key(given.name, known);
      constexpr size_t kLong = 6;  // letters: in a shorter name two are too many
      FSDP_CHECK(given.name.size() < kLong || edit_distance(given.name, nearest) > 2,
                 "{}: unknown variable {}; the nearest is {}", given.place, given.name, nearest);
      adoption.leave(given, "no program of the guides reads it");
    } else if (is_open(given.one())) {
      adoption.leave(given, "the script computes it");
    } else {
      rule->take(given, adoption);
    }
  }
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

std::string adopt_environment(const Files& files, const AdoptOptions& options) {
  std::vector<Given> set;
  Reads reads;
  for (const std::filesystem::path& file : files) {
    const std::string text = read_file(file);
    if (file.extension() == ".py") {
      for (const ReadVariable& each : read_variables(text, file.string())) reads.push_back(each);
      continue;
    }
    const ShellScript script = parse_shell(text, file.string());
    FSDP_CHECK(!script.variables.empty(),
               "{}: expected a shell script with lines like export NAME=value, got none",
               file.string());
    set.insert(set.end(), script.variables.begin(), script.variables.end());
  }
  FSDP_CHECK(!set.empty(), "adopt env: expected a file like env_vars.sh, got none");
  std::vector<std::string> replaced;
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.string());
  Adoption adoption("env", fmt::format("{}", fmt::join(names, " ")), effective(set, replaced),
                    options);
  for (const std::string& line : replaced) adoption.note(line);
  take_variables(adoption);
  for (const Pair& pair : kPairs) take_pair(pair, reads, adoption);
  take_precision(adoption);
  set_task(adoption);
  set_defaults(adoption);
  adoption.note("sharding is not said here but in the program's TrainingArguments: fsdp adopt hf");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
