// The workshop's variables: the guide's files, which of two names counts, mistakes.
// Requirements: S1.1, S1.17.
#include <map>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"
#include "tools/config/key_values.h"
#include "tools/guides/log_lines.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

Adopted adopted(const Variables& variables, const AdoptOptions& options = {}) {
  return Adopted(adopt_environment(variables, options));
}
// What a shell makes of a file of the guide.
Variables variables_of(const std::string& fixture) {
  return test::variables_of(test::adopt_fixture(fixture));
}
std::string refusal(const Variables& variables) {
  return test::error_of([&] { adopt_environment(variables, {}); });
}

TEST_CASE("adopt env: the BLOOM workshop's variables") {
  const Adopted a = adopted(variables_of("env_vars.sh"));
  const config::TrainConfig& c = a.config;
  CHECK(c.model.path == "bigscience/bloom-560m");
  CHECK(c.data.format == data::TextFormat::kSquad);
  CHECK(c.data.objective == data::Objective::kSft);
  CHECK(c.data.sequence_length == 512);
  CHECK(c.data.subset.n == 500);
  CHECK(c.data.subset.seed == 42);
  CHECK(c.train.epochs == 5);
  CHECK(c.train.lr == 5e-5);
  CHECK(c.train.optimizer.weight_decay == 0.01);
  CHECK(c.train.dtype == DType::kF16);
  CHECK(c.runtime.name == "BLOOM_Baseline");
  CHECK(a.says("OUTPUT_DIR: outputs/BLOOM_Baseline: "));  // the shell has put it together
  CHECK(a.says("WANDB_API_KEY: (hidden)"));
  CHECK_FALSE(a.says("0123456789abcdef"));
}

TEST_CASE("adopt env: BATCH_SIZE is set, PER_DEVICE_BATCH_SIZE is read") {
  const Variables variables = variables_of("env_vars.sh");
  const auto effective = [](const Adopted& a) {
    return std::pair(a.config.train.rows_per_pass, a.config.train.micro_steps.value());
  };
  // What the file means, and why it is not what ran.
  const Adopted meant = adopted(variables);
  CHECK(effective(meant) == std::pair<int64_t, int64_t>(8, 4));
  CHECK(meant.line("rows_per_pass: 8")
            .find("BATCH_SIZE: 8; the programs for several GPUs read PER_DEVICE_BATCH_SIZE, which "
                  "is not set: 1 there") != std::string::npos);
  // What ran.
  const Adopted ran = adopted(variables, {.literal = true});
  CHECK(ran.config.data.objective == data::Objective::kApart);
  CHECK(adopted(variables_of("env_vars_custom.sh"), {.literal = true}).config.data.objective ==
        data::Objective::kMaskPad);
  CHECK(effective(ran) == std::pair<int64_t, int64_t>(1, 4));
  CHECK(ran.says("BATCH_SIZE: 8: not read: PER_DEVICE_BATCH_SIZE is"));
  // Both are set: the one that is read wins.
  const Adopted a = adopted({{"BATCH_SIZE", "8"}, {"PER_DEVICE_BATCH_SIZE", "2"}});
  CHECK(a.config.train.rows_per_pass == 2);
  CHECK(a.says("BATCH_SIZE: 8: PER_DEVICE_BATCH_SIZE won"));
}

TEST_CASE("adopt env: the workshop's own model") {
  const Adopted a = adopted(variables_of("env_vars_custom.sh"));
  const config::ModelSection& model = a.config.model;
  CHECK(model.model_type == "workshop_gpt");
  CHECK(model.hidden_size == 2048);
  CHECK(model.layers == 3);
  CHECK(model.heads == 16);
  CHECK(model.ffn == 8192);
  CHECK(model.vocab_size == 0);  // the tokenizer's
  CHECK(a.says("VOCAB_SIZE: 50000"));
  CHECK(a.config.runtime.launch.threads == 1);
  CHECK(a.says("WORLD_SIZE: 2: mpirun -n 2 "));
  CHECK(a.says("MASTER_PORT: "));
}

TEST_CASE("adopt env: MAX_LENGTH is set, 512 is read") {
  const Variables variables = {{"MAX_LENGTH", "1024"}};
  const Adopted meant = adopted(variables);
  CHECK(meant.config.data.sequence_length == 1024);
  CHECK(meant.says("the programs do not read it: 512 there (--literal)"));
  const Adopted ran = adopted(variables, {.literal = true});
  CHECK(ran.config.data.sequence_length == 512);
  CHECK(ran.says("MAX_LENGTH: 1024: the programs do not read it: 512 there"));
  CHECK(adopted({{"LEARNING_RATE", "1"}}).config.data.sequence_length == 512);
}

// The file of the guide for 2 GPUs as it is printed: ends of lines that are lost, and quotation
// marks of a word processor. Retyped from a description, since the page itself is not here.
constexpr const char* kPrinted = R"sh(
export CONDA_ENV=“bloom_env”
export LOG_DIR=“$PWD/logs”
export WANDB_API_KEY=“0123456789abcdef”
export MODEL_NAME=“bigscience/bloom-560m”
EXPERIMENT_NAME=“BLOOM_Multi_GPUs_2_GPUs” export
OUTPUT_DIR=“outputs/${EXPERIMENT_NAME}” export MAX_LENGTH=512 export
TRAIN_SIZE=250 export EVAL_SIZE=100 export NUM_EPOCHS=5 export
BATCH_SIZE=1 export LEARNING_RATE=5e-5 export WEIGHT_DECAY=0.01 export
GRAD_ACC=4 export
FP16=True export
BF16=False export
)sh";

TEST_CASE(
    "adopt env: the guide's file for 2 GPUs as it is printed loses seven names, and each is told") {
  const test::TempFolder folder;
  const Variables variables = test::variables_of(folder.write("env_vars.sh", kPrinted));
  for (const char* name : {"CONDA_ENV", "LOG_DIR", "WANDB_API_KEY", "MODEL_NAME", "MAX_LENGTH",
                           "EVAL_SIZE", "NUM_EPOCHS", "LEARNING_RATE", "WEIGHT_DECAY"}) {
    CHECK_MESSAGE(variables.contains(name), name);
  }
  for (const char* lost :
       {"TRAIN_SIZE", "BATCH_SIZE", "GRAD_ACC", "FP16", "BF16", "OUTPUT_DIR", "EXPERIMENT_NAME"}) {
    CHECK_MESSAGE(!variables.contains(lost), lost);
  }
  const Adopted a = adopted(variables);
  CHECK(a.says(
      "# Not set there; beside each name what the programs take then: BATCH_SIZE 1, GRAD_ACC 4,\n"
      "#   EXPERIMENT_NAME default_experiment, OUTPUT_DIR ./outputs, TRAIN_SIZE 1000,\n"
      "#   PER_DEVICE_BATCH_SIZE 1, GRAD_ACC_STEPS 4, FP16 False, BF16 True\n"));
  CHECK(a.says("left out of CONDA_ENV, LOG_DIR, MODEL_NAME, WANDB_API_KEY\n"));
  CHECK_FALSE(a.says("0123456789abcdef"));
  CHECK(warnings_of(a.text) ==
        std::vector<std::string>{
            "FP16 is not set, which is off in the programs: train.dtype is bf16"});
  const config::TrainConfig& c = a.config;
  CHECK(c.model.path == "bigscience/bloom-560m");  // without its marks
  CHECK(c.data.subset.n == 1000);
  CHECK(c.train.rows_per_pass == 1);
  CHECK(c.train.micro_steps == 4);
  CHECK(c.train.lr == 5e-5);
  CHECK(c.train.epochs == 5);
  CHECK(c.train.dtype == DType::kBF16);
  CHECK(c.runtime.name == "default_experiment");
}

// os.getenv() of the guide's programs for several GPUs.
TEST_CASE("adopt env: what the programs take for names that are not set") {
  const auto keys = [](const Adopted& a) {
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : config::key_values(a.config)) out[key] = value;
    return out;
  };
  using Row = std::pair<const char*, const char*>;
  const std::vector<Row> both = {{"data.subset.n", "1000"},
                                 {"train.rows_per_pass", "1"},
                                 {"train.epochs", "5"},
                                 {"train.lr", "5e-05"},
                                 {"data.sequence_length", "512"},
                                 {"train.optimizer.weight_decay", "0.01"},
                                 {"runtime.name", "\"default_experiment\""}};
  std::vector<Row> bloom = {{"model.path", "\"bigscience/bloom-560m\""},
                            {"train.micro_steps", "4"},
                            {"train.dtype", "bf16"}};
  std::vector<Row> own = {{"data.tokenizer", "\"bigscience/bloom-560m\""},
                          {"train.micro_steps", "1"},
                          {"train.dtype", "f16"},
                          {"model.model_type", "\"workshop_gpt\""},
                          {"model.hidden_size", "3072"},
                          {"model.layers", "2"},
                          {"model.heads", "24"},
                          {"model.ffn", "12288"}};
  for (std::vector<Row>* rows : {&bloom, &own}) rows->insert(rows->end(), both.begin(), both.end());
  const Adopted a = adopted({{"LOG_DIR", "x"}, {"OUTPUT_DIR", "y"}, {"FP16", "False"}});
  const Adopted b = adopted({{"NUM_LAYERS", "2"}});
  for (const auto& [key, value] : bloom) CHECK_MESSAGE(keys(a)[key] == value, key);
  for (const auto& [key, value] : own) CHECK_MESSAGE(keys(b)[key] == value, key);
  CHECK(a.says("EVAL_SIZE 100"));
  CHECK_FALSE(a.says("OUTPUT_DIR ./outputs"));
  CHECK_FALSE(a.says("HIDDEN_SIZE 3072"));
  CHECK(b.says("HIDDEN_SIZE 3072"));
  CHECK(warnings_of(a.text).empty());  // off by the file itself
  CHECK(warnings_of(b.text).empty());
  // One that is set turns off the default of the other; both may be off.
  CHECK(adopted({{"FP16", "True"}}).config.train.dtype == DType::kF16);
  CHECK(adopted({{"BF16", "False"}}).config.train.dtype == DType::kF32);
  CHECK(test::contains(adopted({{"BF16", "False"}}).text, "train.dtype is f32"));
  CHECK(adopted({{"NUM_LAYERS", "2"}, {"BF16", "True"}}).config.train.dtype == DType::kBF16);
}

TEST_CASE("adopt env: what the programs do at every epoch") {
  const Adopted bare = adopted(variables_of("env_vars.sh"));
  CHECK(bare.says("# load_best: true"));
  CHECK(bare.says("# n: 100"));
  const Adopted a = Adopted(
      adopt_environment(variables_of("env_vars.sh"),
                        {.ranks = 2,
                         .typed = {{"data.validation", "[\"v.json\"]", "--validation v.json"},
                                   {"model.path", "folder", "--model folder"}}}));
  CHECK(a.config.data.validation_subset.n == 100);
  CHECK(a.config.train.eval_every.epoch);
  CHECK(a.config.checkpoint.interval().epoch);
  CHECK(a.config.checkpoint.keep == 4);
  CHECK(a.config.checkpoint.load_best);
  CHECK(a.config.train.log_format.guest == &tools::kTrainerLines);
  CHECK(a.says("--ranks 2: mpirun -n 2 "));
  CHECK(a.config.model.path == "folder");
  CHECK(a.says("MODEL_NAME: bigscience/bloom-560m: --model folder counts more"));
}

TEST_CASE("adopt env: to the letter, rows are padded as BLOOM's tokenizer pads") {
  const Variables variables = variables_of("env_vars.sh");
  CHECK(adopted(variables, {.literal = true}).config.data.pad == data::PadSide::kLeft);
  CHECK_FALSE(adopted(variables).config.data.pad.has_value());
}

TEST_CASE("adopt env: the ends of lines of Windows are left out") {
  const Adopted a = adopted({{"LEARNING_RATE", "1e-4\r"}, {"MODEL_NAME", "’‘m\r”"}});
  CHECK(a.config.train.lr == 1e-4);
  CHECK(a.config.model.path == "m");
  CHECK(a.says("left out of LEARNING_RATE, MODEL_NAME\n"));
  CHECK_FALSE(a.says("\r"));
}

TEST_CASE("adopt env: other programs' variables say nothing here") {
  const Adopted a = adopted({{"LEARNING_RATE", "1"}, {"PATH", "/bin"}, {"MY_COLOUR", "blue"}});
  CHECK(a.config.train.lr == 1);
  CHECK_FALSE(a.says("PATH"));
  CHECK_FALSE(a.says("MY_COLOUR"));
}

TEST_CASE("adopt env: mistakes") {
  CHECK(refusal({{"LERNING_RATE", "1"}}) ==
        "environment: unknown variable LERNING_RATE; the nearest is LEARNING_RATE (unset "
        "LERNING_RATE if it is another program's)");
  CHECK(refusal({{"FP16", "True"}, {"BF16", "True"}}) ==
        "environment: BF16: True: expected one of FP16 and BF16 to be true, got both");
  CHECK(refusal({{"NUM_EPOCHS", "few"}}) ==
        "environment: NUM_EPOCHS: expected a number, got \"few\"");
  CHECK(test::contains(refusal({{"MAX_LENGTH", "512"}, {"SEQ_LENGTH", "256"}}),
                       "environment: SEQ_LENGTH: 256 contradicts MAX_LENGTH: 512"));
  for (const Variables& none : {Variables{}, Variables{{"OMP_NUM_THREADS", "3"}}}) {
    CHECK(refusal(none) ==
          "adopt env: expected variables such as MODEL_NAME or LEARNING_RATE, got none: "
          "set -a; . env_vars.sh; set +a");
  }
}

}  // namespace
}  // namespace fsdp::adopt
