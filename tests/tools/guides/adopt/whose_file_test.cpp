// Another program's file where one of ours is expected: how it is taken over.
#include "tools/guides/adopt/whose_file.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

std::string way_over_fixture(const std::string& name) {
  return way_over(name, read_file(test::adopt_fixture(name)));
}

TEST_CASE("whose file: the guides' own files, and files with blanks in their names") {
  CHECK(way_over_fixture("accelerate_fsdp.yaml") ==
        "this is a file of accelerate: fsdp adopt accelerate accelerate_fsdp.yaml > my.yaml");
  CHECK(way_over_fixture("workshop_trainer.json") ==
        "this is a file of TrainingArguments: fsdp adopt hf workshop_trainer.json > my.yaml");
  CHECK(test::contains(way_over_fixture("template_config.yaml"), "fsdp adopt hf template_config"));
  CHECK(test::contains(way_over_fixture("deepspeed_zero3.json"), "fsdp adopt deepspeed "));
  CHECK(way_over_fixture("axolotl_lora.yml") ==
        "this is a file of axolotl: fsdp adopt axolotl axolotl_lora.yml > my.yaml");
  CHECK(way_over_fixture("llamafactory_pretrain.yaml") ==
        "this is a file of LLaMA-Factory: fsdp adopt llamafactory llamafactory_pretrain.yaml > "
        "my.yaml");
  CHECK(way_over_fixture("env_vars.sh") ==
        "this is a script of a shell: (set -a; . env_vars.sh; set +a; fsdp adopt env > my.yaml)");
  CHECK(way_over_fixture("fairseq_13b.sh") ==
        "this script calls fairseq-train: fairseq-train() { fsdp adopt fairseq -- \"$@\" > "
        "my.yaml; }; . fairseq_13b.sh");
  CHECK(way_over_fixture("chess_finetune.sh") ==
        "this script calls chess_finetune.py: torchrun() { fsdp adopt chess -- \"$@\" > my.yaml; "
        "}; . chess_finetune.sh");
  CHECK(test::contains(way_over("a.slurm", "torchrun chess.py"), "fsdp adopt chess -- "));
  CHECK(way_over("a.yaml", "# fsdp adopt fairseq -- fairseq-train data-bin\na: [1\n") == "");
  CHECK(test::contains(way_over("a b.py", "x = 1"), "fsdp adopt hf says which line"));
  CHECK(test::contains(way_over("a b.json", "{\"fp16\": true, \"max_steps\": 2}"),
                       "fsdp adopt hf 'a b.json' > my.yaml"));
}

TEST_CASE("whose file: ours with a mistake, and what nobody knows, say nothing") {
  for (const char* text :
       {"", "hello\n", "[1, 2]", "train: {lr: 1, learning_rate: 1, seed: 2}\n",
        "{learning_rate: 1}", "trian: {lr: 1}\n",
        "train: {seed: 1}\nfsdp: {strategy: no_shard}\nlearning_rat: 2\n", "a: [1\n"}) {
    CAPTURE(text);
    CHECK(way_over("a.yaml", text) == "");
  }
}

TEST_CASE("whose file: fsdp train's error names the command") {
  const auto refusal = [](const std::string& name) {
    return test::error_of([&] { config::read_config(test::adopt_fixture(name), {}); });
  };
  for (const auto& [file, program] : {std::pair{"workshop_trainer.json", "hf"},
                                      {"template_config.yaml", "hf"},
                                      {"accelerate_fsdp.yaml", "accelerate"},
                                      {"deepspeed_zero3.json", "deepspeed"},
                                      {"env_vars.sh", "env"},
                                      {"fairseq_13b.sh", "fairseq"}}) {
    CAPTURE(file);
    CHECK(test::contains(refusal(file), std::string("; this ")));
    CHECK(test::contains(refusal(file), std::string("fsdp adopt ") + program));
  }
  // Included, too.
  const test::TempFolder folder;
  folder.write("args.json", "{\"max_steps\": 3, \"fp16\": true}");
  const auto ours = folder.write("our.yaml", "include: args.json\n");
  const std::string error = test::error_of([&] { config::read_config(ours, {}); });
  CHECK(test::contains(error, "args.json > my.yaml"));
  CHECK_FALSE(test::contains(error, "our.yaml > my.yaml"));
}

}  // namespace
}  // namespace fsdp::adopt
