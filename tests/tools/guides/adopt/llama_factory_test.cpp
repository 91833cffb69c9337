// LLaMA-Factory's YAML: what is taken over, its data sets by name, and what is refused.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

const std::string kModel = "model_name_or_path: m\nstage: sft\nlearning_rate: 0.001\n";

Adopted adopted(const std::string& yaml) {
  const test::TempFolder folder;
  return Adopted(adopt_llama_factory(folder.write("a.yaml", yaml), {}));
}

std::string refusal(const std::string& yaml) {
  const test::TempFolder folder;
  const auto file = folder.write("a.yaml", yaml);
  return test::error_of([&] { adopt_llama_factory(file, {}); });
}

TEST_CASE("adopt llamafactory: a file for LoRA on plain texts") {
  const Adopted a(adopt_llama_factory(test::adopt_fixture("llamafactory_pretrain.yaml"), {}));
  const config::TrainConfig& c = a.config;
  CHECK(c.model.path == "models/tiny-llama");
  CHECK(c.lora.r == 16);
  CHECK(c.lora.alpha == 32);
  CHECK(c.lora.targets == std::vector<std::string>{"q_proj", "v_proj"});
  CHECK(c.data.objective == data::Objective::kLm);
  CHECK(c.data.packing() == data::Pack::kStream);
  CHECK(c.data.sequence_length == 1024);
  CHECK(c.data.subset.n == 1000);
  CHECK(c.data.validation == std::vector<std::string>{"10%"});
  CHECK(c.train.epochs == 3);
  CHECK(c.train.rows_per_pass == 1);
  CHECK(c.train.micro_steps == 8);
  CHECK(c.train.schedule.kind == optim::ScheduleKind::kCosine);
  CHECK(c.train.dtype == DType::kBF16);
  CHECK(c.train.recompute.mode == RecomputeMode::kFull);
  CHECK(c.checkpoint.interval().steps == 500);
  CHECK(c.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(c.fsdp.wrap_classes == std::vector<std::string>{"LlamaDecoderLayer"});
  CHECK(a.says("dataset: texts (llamafactory_pretrain.yaml:14): data are files here"));
}

TEST_CASE("adopt llamafactory: data sets that dataset_info.json names") {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "sets");
  folder.write("sets/dataset_info.json",
               "{\"a\": {\"file_name\": \"a.json\"}, \"b\": {\"file_name\": \"b.json\"}, "
               "\"hub\": {\"hf_hub_url\": \"org/name\"}, "
               "\"nameless\": {\"file_name\": null}, "
               "\"few\": {\"file_name\": \"f.json\", \"num_samples\": 9}, "
               "\"part\": {\"file_name\": \"p.json\", \"split\": \"test\"}, "
               "\"pairs\": {\"file_name\": \"t.json\", \"ranking\": true}}");
  const auto adopt = [&](const std::string& sets) {
    return adopt_llama_factory(
        folder.write("a.yaml", kModel + "dataset_dir: sets\ndataset: " + sets + "\n"), {});
  };
  const Adopted a(adopt("a, b"));
  const std::string sets = (folder.path() / "sets").string();
  CHECK(a.config.data.train == std::vector<std::string>{sets + "/a.json", sets + "/b.json"});
  CHECK(a.config.data.objective == data::Objective::kSft);
  CHECK(a.config.data.packing() == data::Pack::kExamples);
  CHECK(a.says("rows of instruction and output are no conversations here"));
  CHECK(Adopted(adopt("hub")).config.data.train.empty());
  CHECK(test::contains(test::error_of([&] { adopt("a,pairs"); }), "pairs has rows that are not"));
  CHECK(test::contains(test::error_of([&] { adopt("c"); }), "no such data set in "));
  CHECK(test::contains(test::error_of([&] { adopt("nameless"); }), "nameless: expected texts"));
  CHECK(test::contains(test::error_of([&] { adopt("few"); }), "few: num_samples and split are"));
  CHECK(test::contains(test::error_of([&] { adopt("part"); }), "part: num_samples and split are"));
}

TEST_CASE("adopt llamafactory: its defaults, and the kinds of training") {
  const Adopted a = adopted(kModel);
  CHECK(a.config.lora.r == 8);
  CHECK(a.config.lora.alpha == 16);
  CHECK(a.config.lora.targets == std::vector<std::string>{"all-linear"});
  CHECK(a.config.data.sequence_length == 2048);
  CHECK(a.config.train.recompute.mode == RecomputeMode::kFull);
  const Adopted full = adopted(kModel +
                               "finetuning_type: full\nlora_rank: 4\nlora_target: all\n"
                               "disable_gradient_checkpointing: true\ntrain_on_prompt: true\n");
  CHECK(full.config.lora.r == 0);
  CHECK(full.config.train.recompute.mode == RecomputeMode::kNone);
  CHECK(full.config.data.objective == data::Objective::kLm);
  CHECK(full.says("lora_rank: 4 (a.yaml:5): no effect without finetuning_type: lora"));
}

TEST_CASE("adopt llamafactory: rows that share a sequence") {
  const auto pack = [](const std::string& more, const std::string& stage = kModel) {
    return adopted(stage + more);
  };
  CHECK(pack("").config.data.packing() == data::Pack::kExamples);
  for (const char* neat : {"neat_packing: true\n", "packing: true\nneat_packing: true\n",
                           "packing: false\nneat_packing: true\n"}) {
    const Adopted a = pack(neat);
    CHECK(a.config.data.packing() == data::Pack::kDocuments);
    CHECK(a.says("best fit; there other rows share a sequence"));
  }
  Adopted a = pack("packing: true\nneat_packing: false\n");
  CHECK(a.config.data.packing() == data::Pack::kDocuments);
  CHECK(a.says("rows do not see each other; there only with neat_packing"));
  a = pack("neat_packing: true\n", "model_name_or_path: m\nstage: pt\nlearning_rate: 0.001\n");
  CHECK(a.config.data.packing() == data::Pack::kStream);
  CHECK(a.says("neat_packing: true (a.yaml:4): no effect with stage: pt"));
}

TEST_CASE("adopt llamafactory: what is not here is refused, all at once") {
  const std::string error = refusal(kModel +
                                    "template: qwen3\nquantization_bit: 4\nstreaming: true\n"
                                    "use_galore: true\nuse_dora: true\n");
  CHECK(test::contains(error, "a.yaml:5: quantization_bit: 4: weights have 16 or 32 bits here"));
  CHECK(test::contains(error, "a.yaml:6: streaming: true: a text that is read while"));
  CHECK(test::contains(error, "a.yaml:7: use_galore: true: there is no such optimizer here"));
  CHECK(test::contains(error, "a.yaml:8: use_dora: true: a low-rank term is a plain one"));
}

}  // namespace
}  // namespace fsdp::adopt
