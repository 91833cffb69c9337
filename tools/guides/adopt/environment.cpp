// The variables that the workshop guide's env_vars.sh sets, and which of two names counts. The
// shell has evaluated that file. Contract: tools/guides/adopt/programs.h.
#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/text/similar_names.h"
#include "tools/guides/adopt/programs.h"

namespace fsdp::adopt {

const Json& environment_json();  // tables/environment.json

namespace {

// What the programs for several GPUs take where a name is not set: those that train BLOOM, and
// those that train the guide's own model. Others differ: the ones for several nodes add up 4 passes
// of the own model, the one for a single GPU trains it for one epoch.
struct Unset {
  const char* name;
  const char* our_key;  // "": none
  const char* bloom;    // null: they do not read it
  const char* own;
};
constexpr Unset kUnset[] = {
    {"MODEL_NAME", "model.path", "bigscience/bloom-560m", "bigscience/bloom-560m"},
    {"EXPERIMENT_NAME", "runtime.name", "default_experiment", "default_experiment"},
    {"OUTPUT_DIR", "", "./outputs", "./outputs"},
    {"MAX_LENGTH", "data.sequence_length", "512", "512"},
    {"TRAIN_SIZE", "data.subset.n", "1000", "1000"},
    {"EVAL_SIZE", "data.validation_subset.n", "100", "100"},
    {"PER_DEVICE_BATCH_SIZE", "train.rows_per_pass", "1", "1"},
    {"GRAD_ACC_STEPS", "train.micro_steps", "4", "1"},
    {"NUM_EPOCHS", "train.epochs", "5", "5"},
    {"LEARNING_RATE", "train.lr", "5e-5", "5e-5"},
    {"WEIGHT_DECAY", "train.optimizer.weight_decay", "0.01", "0.01"},
    {"FP16", "", "False", "True"},
    {"BF16", "", "True", "False"},
    {"HIDDEN_SIZE", "model.hidden_size", nullptr, "3072"},
    {"NUM_LAYERS", "model.layers", nullptr, "24"},
    {"NUM_HEADS", "model.heads", nullptr, "24"},
    {"FF_DIM", "model.ffn", nullptr, "12288"},
};

bool has_own_model(const Adoption& adoption) {
  return std::ranges::any_of(
      kUnset, [&](const Unset& each) { return !each.bloom && adoption.find(each.name); });
}

std::string otherwise(const std::string& name, const Adoption& adoption) {
  const Unset& unset = *std::ranges::find(kUnset, name, &Unset::name);
  return has_own_model(adoption) ? unset.own : unset.bloom;
}

// Two names of one thing: the one that most of the guide's programs read, and the one that its
// env_vars.sh sets.
struct Pair {
  const char* read;
  const char* set;
  const char* our_key;
};
constexpr Pair kPairs[] = {
    {"PER_DEVICE_BATCH_SIZE", "BATCH_SIZE", "train.rows_per_pass"},
    {"GRAD_ACC_STEPS", "GRAD_ACC", "train.micro_steps"},
};

// The programs cut at this number of tokens, whatever MAX_LENGTH says.
constexpr char kLength[] = "512";

// Of the guide's own model it is the tokenizer alone.
void take_model(const Given& given, Adoption& adoption) {
  if (!has_own_model(adoption)) return model_folder(given, adoption);
  adoption.set("data.tokenizer", given.one(), given, "the programs take its tokenizer");
}

void take_max_length(const Given& given, Adoption& adoption) {
  const std::string mistake = fmt::format("the programs do not read it: {} there", kLength);
  if (adoption.options().literal)
    adoption.leave(given, mistake);
  else
    adoption.set("data.sequence_length", std::to_string(given.whole()), given,
                 mistake + " (--literal)");
}

// What the guides' programs read, before what their scripts set for others.
std::vector<Rule> read_rules() {
  return rules_of(environment_json()["read"],
                  {{"model", take_model}, {"max_length", take_max_length}});
}

const Program& environment_program() {
  static const Program program = program_of("env", "the guides' variables",
                                            {read_rules(), rules_of(environment_json()["others"])});
  return program;
}

// Which of two names counts, and what the other one is told.
void take_pair(const Pair& pair, Adoption& adoption) {
  const Given* read = adoption.find(pair.read);
  const Given* other = adoption.find(pair.set);
  if (read) {
    adoption.set(pair.our_key, std::to_string(read->whole()), *read);
    if (other) adoption.leave(*other, fmt::format("{} won", pair.read));
    return;
  }
  if (!other) return adoption.unset(pair.set, otherwise(pair.read, adoption));
  const std::string value = otherwise(pair.read, adoption);
  const std::string what =
      fmt::format("the programs for several GPUs read {}, which is not set: {}", pair.read, value);
  if (!adoption.options().literal) {
    return adoption.set(pair.our_key, std::to_string(other->whole()), *other,
                        what + " there (--literal)");
  }
  adoption.set_default(pair.our_key, value, what);
  adoption.leave(*other, fmt::format("not read: {} is", pair.read));
}

// Where one is on by default and the other one is set to be, the latter is meant.
void take_precision(Adoption& adoption) {
  const Given* f16 = adoption.find("FP16");
  const Given* bf16 = adoption.find("BF16");
  if (f16 && bf16 && f16->truth() && bf16->truth()) {
    bf16->refuse("expected one of FP16 and BF16 to be true, got both");
  }
  if (f16) on_to("train.dtype", "f16")(*f16, adoption);
  if (bf16) on_to("train.dtype", "bf16")(*bf16, adoption);
  for (const auto& [name, given, dtype] :
       {std::tuple{"FP16", f16, "f16"}, {"BF16", bf16, "bf16"}}) {
    if (given || otherwise(name, adoption) != "True") continue;
    adoption.set_default("train.dtype", dtype,
                         fmt::format("{} is not set: on in the programs", name));
  }
  if (f16 || adoption.value_of("train.dtype") == "f16") return;
  adoption.warn(
      fmt::format("FP16 is not set, which is off in the programs: train.dtype is {}",
                  adoption.has("train.dtype") ? adoption.value_of("train.dtype") : "f32"));
}

// What stands for a name that nobody has set.
void take_unset(Adoption& adoption) {
  const bool own = has_own_model(adoption);
  for (const Unset& each : kUnset) {
    std::string key = each.our_key;
    if (own && key == "model.path") key = "data.tokenizer";
    if (adoption.find(each.name) || adoption.has(key) || (!own && !each.bloom)) continue;
    const std::string value = otherwise(each.name, adoption);
    adoption.unset(each.name, value);
    if (key.empty()) continue;
    adoption.set_default(key, value,
                         fmt::format("{} is not set: the programs' default", each.name));
  }
}

// Without what a shell takes for letters of the value: quotation marks of a word processor, and the
// ends of lines of Windows.
std::string without_marks(std::string text) {
  for (bool found = true; found;) {
    found = false;
    for (const std::string mark : {"“", "”", "„", "‘", "’", "\r"}) {
      const bool first = text.starts_with(mark), last = text.ends_with(mark);
      if (first) text.erase(0, mark.size());
      if (last && text.size() >= mark.size()) text.erase(text.size() - mark.size());
      found = found || first || last;
    }
  }
  return text;
}

// Returns the names whose values had such marks.
std::vector<std::string> leave_out_marks(std::vector<Given>& given) {
  std::vector<std::string> names;
  for (Given& each : given) {
    const std::string value = without_marks(each.values[0]);
    if (value == each.values[0]) continue;
    each.values = {value};
    names.push_back(each.name);
  }
  return names;
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
  const bool literal = adoption.options().literal;
  adoption.set_default("data.format", "squad", "the programs read SQuAD");
  if (!literal) {
    return adoption.set_default("data.objective", "sft",
                                "answers are trained; in the programs their labels do not stand at "
                                "their tokens (--literal)");
  }
  adoption.set_default("data.objective", has_own_model(adoption) ? "mask_pad" : "kaust_compat",
                       "as the programs label");
  adoption.set_default("data.pad_to", "length", "as the programs pad");
  adoption.set_default("data.pad", "left", "as BLOOM's tokenizer pads");
}

void set_defaults(Adoption& adoption) {
  const std::string origin = "TrainingArguments' default";
  adoption.set_default("train.optimizer.beta2", "0.999", origin);
  adoption.set_default("train.schedule.kind", "linear", origin);
  adoption.set_default("data.sequence_length", kLength, "in the programs");
  const bool own = has_own_model(adoption);
  if (own) {
    adoption.set_default("model.model_type", "workshop_gpt", "the guide's own model, by its sizes");
  }
  for (const auto& [key, value] : {std::pair{"train.eval_every", "epoch"},
                                   {"train.log_every", own ? "10" : "500"},
                                   {"train.log_format", "hf"},
                                   {"checkpoint.every", "epoch"},
                                   {"checkpoint.keep", "4"},
                                   {"checkpoint.best", "validation_loss"},
                                   {"checkpoint.load_best", "true"}}) {
    adoption.set_default(key, value, "in the programs");
  }
}

}  // namespace

std::string adopt_environment(const Variables& variables, const AdoptOptions& options) {
  std::vector<Given> given = guides_own(variables);
  const std::vector<std::string> marked = leave_out_marks(given);
  Adoption adoption("env", "the environment", given, options);
  const Program read = program_of("env", "what the guides' programs read", {read_rules()});
  FSDP_CHECK(std::any_of(adoption.given().begin(), adoption.given().end(),
                         [&](const Given& given) { return rule_of(read, given.name); }),
             "adopt env: expected variables such as MODEL_NAME or LEARNING_RATE, got none: "
             "set -a; . env_vars.sh; set +a");
  take_all(environment_program(), adoption);
  for (const Pair& pair : kPairs) take_pair(pair, adoption);
  take_unset(adoption);
  take_precision(adoption);
  set_task(adoption);
  set_defaults(adoption);
  if (!marked.empty()) {
    adoption.note(fmt::format(
        "typographic quotes and ends of lines of Windows, which a shell takes for letters, are "
        "left out of {}",
        fmt::join(marked, ", ")));
  }
  adoption.note("sharding is not said here but in the program's TrainingArguments: fsdp adopt hf");
  return adoption.yaml();
}

}  // namespace fsdp::adopt
