// The workshop's variables: the guide's files, which of two names counts, mistakes.
// Requirements: S1.1, S1.17.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

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
