// The workshop's variables: the guide's files, which of two names counts, mistakes.
// Requirements: S1.1, S1.17.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::adopt_fixture;
using test::Adopted;

Adopted adopted(const Files& files, const AdoptOptions& options = {}) {
  return Adopted(adopt_environment(files, options));
}

std::string refusal(const std::string& script) {
  const test::TempFolder folder;
  const auto file = folder.write("env.sh", script);
  const std::string error = test::error_of([&] { adopt_environment({file}, {}); });
  return error.starts_with(folder.path().string()) ? error.substr(folder.path().string().size() + 1)
                                                   : error;
}

TEST_CASE("adopt env: the BLOOM workshop's variables") {
  const Adopted a = adopted({adopt_fixture("env_vars.sh")});
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
  CHECK(a.says("OUTPUT_DIR: outputs/BLOOM_Baseline (env_vars.sh:8): "));  // put together
  CHECK(a.says("WANDB_API_KEY: (hidden)"));
  CHECK_FALSE(a.says("0123456789abcdef"));
}

TEST_CASE("adopt env: BATCH_SIZE is set, PER_DEVICE_BATCH_SIZE is read") {
  const auto variables = adopt_fixture("env_vars.sh");
  const auto effective = [](const Adopted& a) {
    return std::pair(a.config.train.rows_per_pass, a.config.train.micro_steps.value());
  };
  // What the file means, and why it is not what ran.
  const Adopted meant = adopted({variables});
  CHECK(effective(meant) == std::pair<int64_t, int64_t>(8, 4));
  CHECK(meant.line("rows_per_pass: 8")
            .find("BATCH_SIZE: 8 (env_vars.sh:13); the programs for several GPUs read "
                  "PER_DEVICE_BATCH_SIZE, which is not set: 1 there") != std::string::npos);
  // What ran.
  const Adopted ran = adopted({variables}, {.literal = true});
  CHECK(ran.config.data.objective == data::Objective::kKaustCompat);
  CHECK(adopted({adopt_fixture("env_vars_custom.sh")}, {.literal = true}).config.data.objective ==
        data::Objective::kMaskPad);
  CHECK(effective(ran) == std::pair<int64_t, int64_t>(1, 4));
  CHECK(ran.says("BATCH_SIZE: 8 (env_vars.sh:13): not read: PER_DEVICE_BATCH_SIZE is"));
  // With the program it is known what is read.
  const Adopted several = adopted({variables, adopt_fixture("multi_gpu.py")}, {.literal = true});
  CHECK(effective(several) == std::pair<int64_t, int64_t>(1, 4));
  CHECK(several.says("multi_gpu.py:2 reads PER_DEVICE_BATCH_SIZE, which is not set: 1"));
  for (const bool literal : {false, true}) {
    const Adopted one = adopted({variables, adopt_fixture("baseline.py")}, {.literal = literal});
    CHECK(effective(one) == std::pair<int64_t, int64_t>(8, 4));
    CHECK_FALSE(one.says("PER_DEVICE_BATCH_SIZE"));
  }
  // Both are set: the one that is read wins.
  const test::TempFolder folder;
  const auto both = folder.write("e.sh", "export BATCH_SIZE=8\nexport PER_DEVICE_BATCH_SIZE=2\n");
  const Adopted a = adopted({both});
  CHECK(a.config.train.rows_per_pass == 2);
  CHECK(a.says("BATCH_SIZE: 8 (e.sh:1): PER_DEVICE_BATCH_SIZE won"));
}

TEST_CASE("adopt env: the workshop's own model") {
  const Adopted a = adopted({adopt_fixture("env_vars_custom.sh")});
  const config::ModelSection& model = a.config.model;
  CHECK(model.model_type == "workshop_gpt");
  CHECK(model.hidden_size == 2048);
  CHECK(model.layers == 3);
  CHECK(model.heads == 16);
  CHECK(model.ffn == 8192);
  CHECK(model.vocab_size == 0);  // the tokenizer's
  CHECK(a.says("VOCAB_SIZE: 50000"));
  CHECK(a.config.runtime.launch.threads == 1);
  CHECK(a.says("WORLD_SIZE: 2 (env_vars_custom.sh:22): mpirun -n 2 "));
  CHECK(a.says("MASTER_PORT: $(python -c"));
  CHECK(a.says("): the script computes it"));
}

TEST_CASE("adopt env: a later file counts more") {
  const test::TempFolder folder;
  const auto first = folder.write("a.sh", "export LEARNING_RATE=1\n");
  const auto second = folder.write("b.slurm", "source a.sh\nexport LEARNING_RATE=2\n");
  const Adopted a = adopted({first, second});
  CHECK(a.config.train.lr == 2);
  CHECK(
      a.says("LEARNING_RATE is set twice: LEARNING_RATE: 2 (b.slurm:2) counts, not "
             "LEARNING_RATE: 1 (a.sh:1)"));
}

TEST_CASE("adopt env: MAX_LENGTH is set, 512 is read") {
  const test::TempFolder folder;
  const auto file = folder.write("e.sh", "declare -x MAX_LENGTH=1024\n");
  const Adopted meant = adopted({file});
  CHECK(meant.config.data.sequence_length == 1024);
  CHECK(meant.says("the programs do not read it: 512 there (--literal)"));
  const Adopted ran = adopted({file}, {.literal = true});
  CHECK(ran.config.data.sequence_length == 512);
  CHECK(ran.says("MAX_LENGTH: 1024 (e.sh:1): the programs do not read it: 512 there"));
  const auto none = folder.write("f.sh", "export LEARNING_RATE=1\n");
  CHECK(adopted({none}).config.data.sequence_length == 512);
}

TEST_CASE("adopt env: mistakes") {
  CHECK(refusal("export LERNING_RATE=1\n") ==
        "env.sh:1: unknown variable LERNING_RATE; the nearest is LEARNING_RATE");
  CHECK(refusal("export FP16=True\nexport BF16=True\n") ==
        "env.sh:2: BF16: True: expected one of FP16 and BF16 to be true, got both");
  CHECK(refusal("export NUM_EPOCHS=few\n") ==
        "env.sh:1: NUM_EPOCHS: expected a number, got \"few\"");
  CHECK(test::contains(refusal("export MAX_LENGTH=512\nexport SEQ_LENGTH=256\n"),
                       "env.sh:2: SEQ_LENGTH: 256 contradicts MAX_LENGTH: 512 (env.sh:1)"));
  CHECK(refusal("compute_environment: LOCAL_MACHINE\n") ==
        "env.sh: expected a shell script with lines like export NAME=value, got none");
  const test::TempFolder folder;
  const auto other = folder.write("e.sh", "export MY_COLOUR=blue\n");
  CHECK(adopted({other}).says("MY_COLOUR: blue (e.sh:1): no program of the guides reads it"));
}

}  // namespace
}  // namespace fsdp::adopt
