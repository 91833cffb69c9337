// accelerate's file: the one of the Mistral guide, every wrap policy and strategy, mistakes.
// Requirements: S2.7, S2.8, S3.1.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

Adopted adopted(const std::string& yaml, const AdoptOptions& options = {}) {
  const test::TempFolder folder;
  return Adopted(adopt_accelerate(folder.write("a.yaml", yaml), options));
}

std::string refusal(const std::string& yaml, const AdoptOptions& options = {}) {
  const test::TempFolder folder;
  const auto file = folder.write("a.yaml", yaml);
  const std::string error = test::error_of([&] { adopt_accelerate(file, options); });
  return error.starts_with(folder.path().string()) ? error.substr(folder.path().string().size() + 1)
                                                   : error;
}

const std::string kFsdp = "distributed_type: FSDP\nfsdp_config:\n";

TEST_CASE("adopt accelerate: the Mistral guide's file") {
  const Adopted a(adopt_accelerate(test::adopt_fixture("accelerate_fsdp.yaml"), {}));
  const config::FsdpSection& fsdp = a.config.fsdp;
  CHECK(fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(fsdp.wrap == config::Wrap::kTransformerBlock);
  CHECK(fsdp.wrap_classes == std::vector<std::string>{"MistralDecoderLayer"});
  CHECK(fsdp.options.backward_prefetch == comm::BackwardPrefetch::kPre);
  CHECK(fsdp.forward_prefetch);
  CHECK(a.config.train.dtype == DType::kBF16);
  CHECK(a.config.train.reduce_dtype == DType::kBF16);
  // Every key with its origin, by line.
  CHECK(a.line("strategy: full_shard") ==
        "strategy: full_shard              # fsdp_config.fsdp_sharding_strategy: FULL_SHARD "
        "(accelerate_fsdp.yaml:12)");
  CHECK(a.says("num_processes: 8 (accelerate_fsdp.yaml:5): mpirun -n 8 "));
  CHECK(a.says("fsdp_config.fsdp_use_orig_params: true (accelerate_fsdp.yaml:16): always so"));
  CHECK(
      a.says("fsdp_config.fsdp_state_dict_type: SHARDED_STATE_DICT (accelerate_fsdp.yaml:13): a "
             "checkpoint is always sharded"));
  CHECK(a.says("# Off there, and here: machine_rank\n"));
  CHECK(a.says("no model is named there"));
}

TEST_CASE("adopt accelerate: what is not said has accelerate's defaults, not ours") {
  const Adopted a = adopted(kFsdp + "  fsdp_offload_params: false\n");
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(a.config.fsdp.wrap == config::Wrap::kNone);
  CHECK_FALSE(a.config.fsdp.forward_prefetch);
  CHECK(a.config.fsdp.options.backward_prefetch == comm::BackwardPrefetch::kNone);
}

TEST_CASE("adopt accelerate: strategies by name and by number") {
  const std::vector<std::pair<std::string, comm::Strategy>> all = {
      {"FULL_SHARD", comm::Strategy::kFullShard},
      {"1", comm::Strategy::kFullShard},
      {"SHARD_GRAD_OP", comm::Strategy::kShardGradOp},
      {"2", comm::Strategy::kShardGradOp},
      {"NO_SHARD", comm::Strategy::kNoShard},
      {"3", comm::Strategy::kNoShard},
      {"HYBRID_SHARD", comm::Strategy::kHybridShard},
      {"4", comm::Strategy::kHybridShard},
      {"HYBRID_SHARD_ZERO2", comm::Strategy::kHybridShardZero2},
      {"5", comm::Strategy::kHybridShardZero2}};
  for (const auto& [name, strategy] : all) {
    CAPTURE(name);
    const Adopted a = adopted("num_machines: 2\nnum_processes: 16\n" + kFsdp +
                              "  fsdp_sharding_strategy: " + name + "\n");
    CHECK(a.config.fsdp.options.strategy == strategy);
    CHECK(a.config.fsdp.shard_size == (comm::is_hybrid(strategy) ? 8 : 0));
  }
  const std::string hybrid = kFsdp + "  fsdp_sharding_strategy: HYBRID_SHARD\n";
  CHECK(adopted(hybrid, {.ranks_per_node = 4}).config.fsdp.shard_size == 4);
}

TEST_CASE("adopt accelerate: FSDP2's reshard_after_forward, and other keys without the prefix") {
  const Adopted a = adopted(kFsdp +
                            "  fsdp_version: 2\n  reshard_after_forward: false\n"
                            "  limit_all_gathers: true\n  activation_checkpointing: true\n"
                            "  cpu_ram_efficient_loading: true\n");
  CHECK(a.config.fsdp.options.reshard_after_forward == false);
  CHECK(a.line("units_in_flight: 2") != "");
  CHECK(a.config.train.recompute.mode == RecomputeMode::kFull);
  CHECK(a.config.fsdp.sync_module_states);
  const std::string offloads = kFsdp + "  fsdp_activation_checkpointing_offload: true\n";
  CHECK(adopted(offloads + "  fsdp_activation_checkpointing: true\n").config.train.recompute.mode ==
        RecomputeMode::kOffload);
  const Adopted alone = adopted(offloads);
  CHECK(alone.config.train.recompute.mode == RecomputeMode::kNone);
  CHECK(alone.says("without activation_checkpointing it has no effect"));
}

TEST_CASE("adopt accelerate: units by size, and what a policy leaves without effect") {
  const Adopted a = adopted(kFsdp +
                            "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
                            "  fsdp_min_num_params: 1e6\n");
  CHECK(a.config.fsdp.wrap == config::Wrap::kSize);
  CHECK(a.config.fsdp.min_num_params == 1000000);
  const Adopted none = adopted(kFsdp +
                               "  fsdp_auto_wrap_policy: NO_WRAP\n"
                               "  fsdp_transformer_layer_cls_to_wrap: A\n");
  CHECK(none.config.fsdp.wrap == config::Wrap::kNone);
  CHECK(none.says("fsdp_transformer_layer_cls_to_wrap: A (a.yaml:4): no effect with this wrap"));
  const Adopted two = adopted(kFsdp +
                              "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                              "  fsdp_transformer_layer_cls_to_wrap: A, B\n");
  CHECK(two.config.fsdp.wrap_classes == std::vector<std::string>{"A", "B"});
}

TEST_CASE("adopt accelerate: without FSDP, and with DeepSpeed inside") {
  CHECK(adopted("distributed_type: MULTI_GPU\n").config.fsdp.options.strategy ==
        comm::Strategy::kNoShard);
  CHECK_FALSE(adopted("distributed_type: MULTI_GPU\nmixed_precision: bf16\n")
                  .config.train.reduce_dtype.has_value());
  const Adopted a = adopted(
      "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
      "  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n"
      "  offload_optimizer_device: cpu\n  offload_param_device: none\n");
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kShardGradOp);
  CHECK(a.config.train.micro_steps == 4);
  CHECK(a.config.train.clip_norm == 0.5);
  CHECK(a.config.fsdp.options.offload == comm::Offload::kOptimizer);
}

TEST_CASE("adopt accelerate: what a way to distribute does not read has no effect") {
  const std::string fsdp =
      "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_offload_params: true\n"
      "  fsdp_transformer_layer_cls_to_wrap: A\n  fsdp_activation_checkpointing: true\n"
      "  fsdp_backward_prefetch: BACKWARD_PRE\n";
  const std::string deepspeed = "deepspeed_config:\n  zero_stage: 3\n  gradient_clipping: 0.5\n";
  const Adopted plain = adopted("distributed_type: MULTI_GPU\n" + fsdp + deepspeed);
  CHECK(plain.config.fsdp.options.strategy == comm::Strategy::kNoShard);
  CHECK(plain.config.fsdp.options.offload == comm::Offload::kNone);
  CHECK(plain.config.train.recompute.mode == RecomputeMode::kNone);
  CHECK(plain.config.train.clip_norm == config::TrainConfig().train.clip_norm);
  for (const char* left :
       {"fsdp_sharding_strategy: FULL_SHARD", "fsdp_transformer_layer_cls_to_wrap: A",
        "fsdp_backward_prefetch: BACKWARD_PRE", "fsdp_activation_checkpointing: true"}) {
    CAPTURE(left);
    CHECK(plain.says("#   fsdp_config." + std::string(left) + " (a.yaml:"));
  }
  CHECK(plain.says("fsdp_offload_params: true (a.yaml:4): no effect without FSDP"));
  CHECK(plain.says("zero_stage: 3 (a.yaml:9): no effect without DEEPSPEED"));
  CHECK(adopted("distributed_type: FSDP\n" + fsdp + deepspeed).config.fsdp.options.strategy ==
        comm::Strategy::kFullShard);
}

TEST_CASE("adopt accelerate: truth and policies in the letters that accelerate takes") {
  for (const auto& [text, value] :
       {std::pair{"True", true}, {"FALSE", false}, {"yes", true}, {"off", false}}) {
    CAPTURE(text);
    const Adopted a =
        adopted(kFsdp + "  fsdp_version: 2\n  fsdp_reshard_after_forward: " + text + "\n");
    CHECK(a.config.fsdp.options.reshard_after_forward == value);
  }
  const std::string reshard = kFsdp + "  fsdp_reshard_after_forward: ";
  CHECK(adopted(reshard + "SHARD_GRAD_OP\n").config.fsdp.options.strategy ==
        comm::Strategy::kShardGradOp);
  CHECK(adopted(reshard + "1\n").config.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(adopted(kFsdp + "  fsdp_auto_wrap_policy: transformer_based_wrap\n").config.fsdp.wrap ==
        config::Wrap::kTransformerBlock);
}

TEST_CASE("adopt accelerate: DeepSpeed's section has DeepSpeed's defaults") {
  const Adopted a = adopted("distributed_type: DEEPSPEED\nmixed_precision: fp16\n");
  CHECK(a.config.fsdp.options.strategy == comm::Strategy::kShardGradOp);  // stage 2
  CHECK(a.config.train.reduce_dtype == DType::kF16);
  CHECK(a.config.train.loss_scale.interval == 1000);
  CHECK(adopted("distributed_type: DEEPSPEED\nmixed_precision: bf16\n").config.train.reduce_dtype ==
        DType::kBF16);
  const Adopted more = adopted(
      "distributed_type: DEEPSPEED\ndebug: false\ndeepspeed_config:\n"
      "  deepspeed_exclusion_filter: a@b\n  deepspeed_inclusion_filter: c@d\n"
      "  offload_optimizer_nvme_path: /nvme\n  deepspeed_moe_layer_cls_names: none\n");
  CHECK(more.says("deepspeed_exclusion_filter: a@b (a.yaml:4): mpirun --host"));
  CHECK(more.says("offload_optimizer_nvme_path: /nvme (a.yaml:6): see its device"));
  CHECK(
      more.says("debug: false (a.yaml:2): fsdp train compares what ranks do at the start, always"));
}

// accelerate/parallelism_config.py
TEST_CASE("adopt accelerate: a mesh of copies and shards is hybrid_shard") {
  const std::string two = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n";
  const auto mesh = [&](const std::string& copies, const std::string& shards,
                        const std::string& rest = "") {
    return two + "parallelism_config:\n  parallelism_config_dp_replicate_size: " + copies +
           "\n  parallelism_config_dp_shard_size: " + shards + "\n" + rest;
  };
  const Adopted hybrid = adopted(mesh("2", "4",
                                      "  parallelism_config_tp_size: 1\n"
                                      "  parallelism_config_cp_size: 1\n"
                                      "  parallelism_config_cp_comm_strategy: alltoall\n"
                                      "num_processes: 8\n"));
  CHECK(hybrid.config.fsdp.options.strategy == comm::Strategy::kHybridShard);
  CHECK(hybrid.config.fsdp.shard_size == 4);
  const Adopted full = adopted(mesh("1", "8"));
  CHECK(full.config.fsdp.options.strategy == comm::Strategy::kFullShard);
  CHECK(full.says("mpirun -n 8 "));
  CHECK(adopted(mesh("1", "1")).config.fsdp.options.strategy == comm::Strategy::kFullShard);
  const Adopted said = adopted(two +
                               "  fsdp_sharding_strategy: FULL_SHARD\nparallelism_config:\n"
                               "  parallelism_config_dp_replicate_size: 2\n"
                               "  parallelism_config_dp_shard_size: 2\n");
  CHECK(said.config.fsdp.options.strategy == comm::Strategy::kHybridShard);
  CHECK(said.says("fsdp_sharding_strategy: FULL_SHARD (a.yaml:4): parallelism_config says it"));
  CHECK(test::contains(refusal(mesh("2", "4", "num_processes: 4\n")),
                       "expected the same number of ranks"));
  CHECK(test::contains(refusal(mesh("2", "1")), "expected dp_shard_size above 1 with it"));
  CHECK(test::contains(refusal(mesh("0", "1")), "expected an integer from 1"));
  CHECK(test::contains(refusal(mesh("1", "2", "  parallelism_config_tp_size: 2\n")),
                       "a.yaml:7: parallelism_config.parallelism_config_tp_size: 2: there is no "
                       "tensor parallelism here"));
  CHECK(test::contains(refusal(mesh("1", "2", "  parallelism_config_pp_size: 2\n")),
                       "unknown key \"parallelism_config.parallelism_config_pp_size\""));
  const Adopted plain = adopted(
      "distributed_type: MULTI_GPU\nparallelism_config:\n"
      "  parallelism_config_dp_replicate_size: 4\n");
  CHECK(plain.config.fsdp.options.strategy == comm::Strategy::kNoShard);
  CHECK(plain.says("dp_replicate_size: 4 (a.yaml:3): no effect without FSDP"));
}

}  // namespace
}  // namespace fsdp::adopt
