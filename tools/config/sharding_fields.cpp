// The options of sharding and of where a run computes: fsdp, runtime.
// The words of the list: config_fields.h. What can be said of an option: option_field.h.
#include <algorithm>

#include "tools/config/config_fields.h"
#include "tools/launch/launch_fields.h"

namespace fsdp::config {
namespace {

// Whether any unit gives its parameters back between forward and backward, on several ranks.
bool gives_back(const comm::FsdpOptions& c) {
  constexpr int kSeveral = 2;  // ranks of a shard group
  const auto keeps = [&](comm::Strategy strategy, std::optional<bool> reshards) {
    const comm::FsdpOptions options = {.strategy = strategy, .reshard_after_forward = reshards};
    return comm::unit_policy(options, {.shards = kSeveral}, /*awaits_backward=*/true)
        .keeps_parameters();
  };
  if (c.strategy == comm::Strategy::kNoShard) return false;
  return !keeps(c.strategy, c.reshard_after_forward) ||
         std::any_of(c.units.begin(), c.units.end(), [&](const comm::UnitOverride& unit) {
           const auto reshards = unit.reshard_after_forward;
           return !keeps(unit.strategy.value_or(c.strategy),
                         reshards ? reshards : c.reshard_after_forward);
         });
}

}  // namespace

void visit(Visitor& v, comm::UnitOverride& c) {
  v.field(
      "match", c.match,
      "units, as explain lists them, or the class of their module; * for any characters, [0-3]");
  v.field("strategy", c.strategy, "over the same groups of ranks; auto, here and below: as all do");
  v.field("reshard_after_forward", c.reshard_after_forward, "as above");
  v.field("reshard_group_size", c.reshard_group_size, "as above");
  v.field("param_dtype", c.param_dtype,
          "of compute; activations are cast on their way into the unit and back on their way out");
  v.field("reduce_dtype", c.reduce_dtype, "of gradient sums over ranks");
}

// What is gathered when, and together with what.
void visit_units(Visitor& v, FsdpSection& c) {
  const comm::FsdpOptions& options = c.options;
  const bool sharded = options.strategy != comm::Strategy::kNoShard;
  const std::string strategy = fmt::format("with strategy: {}", choice_name(options.strategy));
  const Need sharding = {sharded, strategy};
  const Need gathering_again = {gives_back(options), sharded && options.reshard_after_forward
                                                         ? "with reshard_after_forward: false"
                                                         : strategy};
  constexpr OnResume kOrder = OnResume::kFreeUnlessFixedOrder;  // a norm is added unit by unit
  std::vector<MemoryChoices::Choice> wraps = {{"transformer_block"}, {"none"}};
  if (!options.units.empty()) wraps.clear();  // units are the sums of a norm, too
  v.field("wrap", c.wrap, "what is gathered together besides the root",
          {.aliases = {"auto_wrap_policy", "fsdp_auto_wrap_policy"},
           .on_resume = kOrder,
           .memory = {
               .turn = 7, .choices = wraps, .keeps = Keeps::kRounding, .on_several_ranks = true}});
  const std::string with_wrap = fmt::format("with wrap: {}", value_text(c.wrap));
  v.field("wrap_classes", c.wrap_classes,
          "of wrap: class; instead of the family's block for transformer_block",
          {.aliases = {"transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap"},
           .needs = {{c.wrap == Wrap::kClass || c.wrap == Wrap::kTransformerBlock, with_wrap}},
           .on_resume = kOrder});
  v.field("min_num_params", c.min_num_params,
          "of wrap: size; a larger one: fewer, larger units; auto: 100000000, as in PyTorch",
          {.aliases = {"fsdp_min_num_params"},
           .range = from(1),
           .needs = {{c.wrap == Wrap::kSize, with_wrap}},
           .on_resume = kOrder});
  std::vector<MemoryChoices::Choice> roots;  // auto has chosen already
  if (c.root == RootUnit::kWhole) roots = {{"split"}};
  v.field("root", c.root,
          "what wrap leaves to the root; split: what runs before the first block (embedding) and "
          "after the last one (head) are two units; whole: one, as PyTorch's wrap policies have "
          "it; auto: split with wrap: transformer_block or class, unless the head is tied",
          {.needs = {{c.wrap != Wrap::kNone, with_wrap}},
           .on_resume = OnResume::kFree,
           .memory = {.turn = 8,
                      .choices = roots,
                      .keeps = options.fixed_order ? Keeps::kBits : Keeps::kRounding,
                      .on_several_ranks = true}});
  v.field("reshard_after_forward", c.options.reshard_after_forward,
          "give parameters back between forward and backward; auto: as the strategy says",
          {.aliases = {"fsdp_reshard_after_forward"}, .needs = {sharding}});
  v.field("reshard_group_size", c.reshard_group_size,
          "ranks that keep the parameters between them after forward (ZeRO++ hpZ); 0: none do",
          {.range = from(0), .needs = {gathering_again}});
  v.field("forward_prefetch", c.forward_prefetch, "gather the next unit during a forward",
          {.aliases = {"fsdp_forward_prefetch"}, .needs = {sharding}});
  v.field(
      "prefetch_depth", c.prefetch_depth, "units that forward_prefetch gathers ahead",
      {.range = from(1), .needs = {sharding, {c.forward_prefetch, "without forward_prefetch"}}});
  v.field("backward_prefetch", c.options.backward_prefetch,
          "gather the next unit before (pre) or after (post) a backward",
          {.aliases = {"fsdp_backward_prefetch"}, .needs = {gathering_again}});
  v.field("units_in_flight", c.units_in_flight,
          "units unsharded at a time, besides the root and its parts",
          {.range = from(1),
           .needs = {gathering_again},
           .memory = {.turn = 3, .choices = {{"1"}, {"3"}}}});
}

void visit_update_in_backward(Visitor& v, FsdpSection& c) {
  v.field("update_in_backward", c.options.update_in_backward,
          "update a unit as soon as its gradient is reduced, in the backward of a step's last "
          "micro-step; its gradient has memory until then",
          {.memory = {.turn = 2, .choices = {{"true"}}}});
}

void visit_offload(Visitor& v, FsdpSection& c) {
  v.field(
      "offload", c.options.offload,
      "what lies in the host's memory; optimizer: master weights and the optimizer's state, "
      "which the CPU updates; all: parameters and gradients too; nvme: the same in a file of "
      "offload_folder",
      {.aliases = {"cpu_offload", "fsdp_offload_params"},
       .memory = {.turn = 5,
                  .choices = {{"none"},
                              {"optimizer"},
                              {"all"},
                              {"nvme", c.offload_folder.empty() ? "fsdp.offload_folder=." : ""}},
                  .rounds_on_gpu = true}});
  v.field("offload_folder", c.offload_folder,
          "of offload: nvme: a folder of the disk that has room for masters, gradients and the "
          "optimizer's state; the file has no name, and nothing of it is left",
          {.needs = {{c.options.offload == comm::Offload::kNvme, "without fsdp.offload: nvme"}}});
}

void visit(Visitor& v, FsdpSection& c, const TrainConfig& all) {
  const bool hybrid = comm::is_hybrid(c.options.strategy);
  const bool replicas = hybrid || c.options.strategy == comm::Strategy::kNoShard;
  const Keeps keeps = c.options.fixed_order ? Keeps::kBits : Keeps::kRounding;
  std::vector<MemoryChoices::Choice> strategies = {
      {"shard_optimizer"}, {"shard_grad_op"}, {"full_shard"}, {"no_shard"}};
  if (hybrid) strategies.clear();
  v.field("strategy", c.options.strategy,
          "full_shard: everything is sharded; shard_grad_op: parameters stay gathered in a step; "
          "shard_optimizer: only its state; no_shard: nothing (DDP); hybrid_*: inside groups of "
          "shard_size ranks",
          {.aliases = {"sharding_strategy", "fsdp_sharding_strategy"},
           .memory = {.turn = 6, .choices = strategies, .keeps = keeps, .on_several_ranks = true}});
  v.field("shard_size", c.shard_size, "ranks of a shard group of a hybrid strategy",
          {.range = from(0),
           .needs = {{hybrid, fmt::format("with strategy: {}, only with the hybrid ones",
                                          choice_name(c.options.strategy))}}});
  visit_units(v, c);
  v.field("separate_reduce", c.options.separate_reduce,
          "reduces have a stream and a communicator of their own");
  v.field("release_arena", c.options.release_arena,
          "give unsharded memory and gradients back when a step needs them no more, and allocate "
          "them again in the next",
          {.memory = {.turn = 2, .choices = {{"true"}}}});
  visit_update_in_backward(v, c);
  visit_offload(v, c);
  v.field("accumulation", c.options.accumulation,
          "what micro-steps before the last communicate: reduce_each; reduce_scatter_each: the "
          "all-reduce across replicas waits; reduce_last: nothing (no_sync)",
          {.needs = {{all.train.micro_steps.value_or(1) > 1 || all.train.rows_per_pass > 0,
                      "with train.micro_steps: 1"},
                     {replicas || c.options.accumulation != comm::Accumulation::kReduceScatterEach,
                      fmt::format("with strategy: {}, which has no replicas",
                                  choice_name(c.options.strategy))}}});
  v.field("divide_factor", c.options.divide_factor, "of gradient sums; auto: the number of ranks",
          {.range = from_to(1e-6, 1e9), .on_resume = OnResume::kRefused});
  v.field("force_sum", c.options.force_sum, "divide after the sum over ranks, never inside it",
          {.on_resume = OnResume::kRefused});
  v.field("split_division", c.options.split_division,
          "divide by about the square root of the divisor before the sum and by the rest after it, "
          "as FSDP1; f16 always does",
          {.on_resume = OnResume::kRefused});
  v.field("absent_is_zero", c.options.absent_is_zero,
          "a parameter without gradient has a zero one; else it stands still",
          {.on_resume = OnResume::kRefused});
  v.field("fixed_order", c.options.fixed_order,
          "the same bits on any ranks and under every strategy; needs train.rows_per_pass",
          {.on_resume = OnResume::kRefused});
  v.field("sync_module_states", c.sync_module_states,
          "only rank 0 reads or makes the initial weights; the others get them from it",
          {.aliases = {"fsdp_sync_module_states"}});
  v.list("units",
         "units that differ: [{match: ..., ...}, ...]; later entries override earlier ones",
         c.options.units, {.on_resume = OnResume::kRefused});
}

void visit(Visitor& v, LaunchOptions& c, const TrainConfig&) { visit_network(v, c); }

void visit(Visitor& v, RuntimeSection& c, const TrainConfig&) {
  visit(v, c.launch);  // tools/launch/launch_fields.h
  v.field("synchronous", c.synchronous, "every operation inline, for debugging");
  v.field("trace", c.trace,
          "write a Perfetto timeline to the run folder; its memory grows with the first million "
          "operations",
          {.flag_of = FlagOf::kTrain});
  v.field("memory_limit", c.memory_limit,
          "what a rank may take: 300MB, 2GiB; auto: what the host has, divided by its ranks",
          {.is_size = true, .or_auto = true, .flag_of = FlagOf::kTrain});
  v.field("monitor_s", c.monitor_s,
          "seconds between two samples of CPU, memory, GPU and network in monitor.*.csv; 0: none",
          {.range = {.least = 0.01, .most = 86400, .or_none = true}});  // /proc counts so finely
  v.field(
      "monitor_later_s", c.monitor_later_s,
      "after the first hour a row is the mean of the samples of so many seconds; 0: each sample "
      "has its row",
      {.range = from_to(0, 86400), .needs = {{c.monitor_s > 0, "with runtime.monitor_s: 0"}}});
  v.field("io_retries", c.io_retries,
          "how often a read, or a call for a file or folder, is made again after an error that may "
          "pass",
          {.range = from_to(0, 1000)});
  v.field(
      "io_retry_s", c.io_retry_s, "in how many seconds all of these",
      {.range = from_to(0, 86400), .needs = {{c.io_retries > 0, "with runtime.io_retries: 0"}}});
  v.field("lock_wait_s", c.lock_wait_s,
          "how long a run waits for another one that still has its run directory",
          {.range = from_to(0, 86400)});
  v.field("name", c.name, "of the run", {.of_rank = true});
  v.field("run_dir", c.run_dir, "empty: runs/<name>-<time>",
          {.of_rank = true, .on_resume = OnResume::kOwn});
}

}  // namespace fsdp::config
