// The settings, and runs with waits left out.
#include "tests/support/removed_waits.h"

#include <map>

#include "kernels/cpu/file_backend.h"
#include "tests/support/child_process.h"

namespace fsdp::test {
namespace {

using namespace comm;

const FsdpOptions kHybrid = {.strategy = Strategy::kHybridShard, .shard_size = 2};
// The sum of the micro-steps is f32; it is narrowed into a buffer that only the reduce streams use.
FsdpOptions narrow_sum(FsdpOptions options) {
  options.param_dtype = options.reduce_dtype = DType::kBF16;
  options.accumulation = Accumulation::kReduceLast;
  options.micro_steps = 2;
  return options;
}

// The second step leaves out a block, which by the first one's order is gathered ahead: the first
// block is the last to be gathered for backward, the last block for forward.
SubjectFactory without(int block) {
  return block_list(small_gpt2(), [block](const Pass& pass) {
    std::vector<int> blocks = {0, 1, 2};
    if (pass.step == 1) std::erase(blocks, block);
    return blocks;
  });
}

models::ModelConfig two_blocks() {
  models::ModelConfig config = small_gpt2();
  config.layers = 2;
  return config;
}

}  // namespace

namespace {

// Beside the edges without offload.
std::set<Edge> offloaded(std::set<Edge> edges) {
  edges.insert(edges.contains(kReplicated) ? Edge{"to_host", "replicas"}
                                           : Edge{"to_host", "reduce"});
  edges.insert({kSent, kUpdated, kFetched, kToHost, kFromHost});
  return edges;
}

// Of a file: what it has in the place of the host.
std::set<Edge> filed(std::set<Edge> edges) {
  edges.insert({{"from_host", "from_file"},
                {"from_file", "from_host"},
                {"from_file", "state_out"},
                {"to_host", "to_file"},
                {"to_file", "to_host"},
                {"state_in", "to_file"},
                {"state_in", "state_out"},
                {"state_in", "host"},
                {"host", "state_in"},
                {"state_out", "host"},
                {"file", "state_out"},
                {"file", "to_file"}});
  edges.erase(kSent);
  edges.erase(kUpdated);
  return edges;
}

std::set<Edge> with_inputs(std::set<Edge> edges) {
  edges.insert(
      {kInputWritten, kInputBlock, kInputFree, kInputGone, kInputBack, kBlockSent, kBlockFetched});
  return edges;
}

// Block 1 begins with what was block 0's before it, and so on: memory is taken over at once.
std::vector<OrderSetting> settings_of_inputs() {
  const std::set<Edge> sharded = with_inputs({kGathered, kFree, kComputed, kReduced});
  const std::set<Edge> in_vain = {kInputBlock, kBlockSent, kBlockFetched};
  return {{.what = "inputs on the host",
           .ranks = 2,
           .options = {},
           .edges = sharded,
           .in_vain = in_vain,
           .unreported = {kInputGone, kInputBack},
           .subject = causal_lm(small_gpt2(), RecomputeMode::kOffload)},
          {.what = "inputs on the host, two forwards",
           .ranks = 2,
           .options = {},
           .edges = sharded,
           .in_vain = in_vain,
           .unreported = {kInputGone, kInputBack},
           .subject = causal_lm(two_blocks(), RecomputeMode::kOffload),
           .forwards = 2}};
}

std::vector<OrderSetting> offload_settings() {
  std::set<Edge> streamed = offloaded({kGathered, kComputed, kReduced});
  streamed.insert({{"from_host", "compute"}, {"reduce", "to_host"}});
  std::set<Edge> added_to = streamed;
  added_to.insert({{"from_host", "to_host"}, {"reduce", "from_host"}});
  std::set<Edge> filed_and_added_to = filed(added_to);
  filed_and_added_to.insert({"from_file", "to_file"});
  // What the file holds is not memory. Streams that wait for several others are ordered by the
  // rest.
  const std::set<Edge> unreported_of_file = {{"from_file", "state_out"}, {"from_file", "to_file"},
                                             {"state_in", "to_file"},    {"to_file", "to_host"},
                                             {"to_host", "reduce"},      {"reduce", "to_host"},
                                             {"reduce", "from_host"},    kComputed};
  return {{"offload: optimizer",
           2,
           {.offload = Offload::kOptimizer},
           offloaded({kGathered, kFree, kComputed, kReduced}),
           {},
           {kReduced}},
          {"offload: optimizer, no_shard, micro-steps",
           2,
           {.strategy = Strategy::kNoShard, .micro_steps = 2, .offload = Offload::kOptimizer},
           offloaded({kGathered, kComputed, kScattered, kReplicated})},
          {.what = "offload: optimizer, a block left out",
           .ranks = 2,
           .options = {.strategy = Strategy::kShardGradOp, .offload = Offload::kOptimizer},
           .edges = offloaded({kGathered, kComputed, kReduced}),
           .in_vain = {kReduced},
           .subject = without(2)},
          {"offload: all", 2, {.offload = Offload::kAll}, streamed, {}, {{"reduce", "to_host"}}},
          {"offload: all, micro-steps",
           2,
           {.micro_steps = 2, .offload = Offload::kAll},
           added_to,
           {},
           {{"reduce", "from_host"}, {"reduce", "to_host"}}},
          {"offload: nvme",
           2,
           {.offload = Offload::kNvme},
           filed(streamed),
           {{"file", "state_out"}, {"file", "to_file"}},
           unreported_of_file},
          {"offload: nvme, micro-steps",
           2,
           {.micro_steps = 2, .offload = Offload::kNvme},
           filed_and_added_to,
           {{"file", "state_out"}, {"file", "to_file"}},
           unreported_of_file}};
}

}  // namespace

std::vector<OrderSetting> order_settings() {
  using enum Strategy;
  const std::set<Edge> sharded = {kGathered, kFree, kComputed, kReduced};
  const std::set<Edge> hybrid = {kGathered, kFree, kComputed, kScattered, kReplicated};
  FsdpOptions scatter_each = kHybrid;
  scatter_each.accumulation = Accumulation::kReduceScatterEach;
  FsdpOptions in_order = kHybrid;
  in_order.fixed_order = true;
  in_order.micro_steps = scatter_each.micro_steps = 3;
  std::vector<OrderSetting> all = {
      {"full_shard", 2, {}, sharded},
      {"hpZ", 4, {.reshard_group_size = 2}, sharded},
      {"one stream", 2, {.separate_reduce = false}, {kGathered, kFree}},
      {"arena released", 2, {.release_arena = true}, sharded},
      {"update in backward", 2, {.update_in_backward = true}, sharded},
      {"shard_grad_op", 2, {.strategy = kShardGradOp}, sharded},
      {"shard_optimizer", 2, {.strategy = kShardOptimizer}, sharded},
      {"no_shard", 2, {.strategy = kNoShard}, {kComputed, kScattered, kReplicated}},
      {"hybrid_shard", 4, kHybrid, hybrid},
      // Micro-steps before the last end on the reduce stream.
      {"hybrid_shard, micro-steps",
       4,
       scatter_each,
       {kGathered, kFree, kComputed, kReduced, kScattered, kReplicated}},
      {"hybrid_shard in fixed order, micro-steps",
       4,
       in_order,
       {kGathered, kFree, kComputed, kReduced, kScattered, kReplicated}},
      {"hybrid_shard, narrow sum",
       4,
       narrow_sum(kHybrid),
       {kGathered, kFree, kComputed, kScattered, kReplicated, kReturned}},
      {"shard_optimizer, micro-steps", 2, {.strategy = kShardOptimizer, .micro_steps = 2}, sharded},
      {.what = "a block left out, arena released",
       .ranks = 2,
       .options = {.forward_prefetch = 0, .release_arena = true},
       .edges = sharded,
       .unreported = {kComputed},  // locks of the host order the few reductions
       .subject = without(0)},
      {.what = "a block left out, shard_grad_op",
       .ranks = 2,
       .options = {.strategy = kShardGradOp},
       .edges = sharded,
       .subject = without(2)},
      {.what = "attention and MLP as units, recompute",
       .ranks = 2,
       .options = {},
       .edges = sharded,
       .subject = causal_lm(two_blocks(), RecomputeMode::kFull),
       .wrap = wrap_classes({"GPT2Attention", "GPT2MLP"})},
      {.what = "two forwards",
       .ranks = 2,
       .options = {},
       .edges = sharded,
       .subject = causal_lm(two_blocks()),
       .forwards = 2}};
  for (OrderSetting& setting : offload_settings()) all.push_back(std::move(setting));
  for (OrderSetting& setting : settings_of_inputs()) all.push_back(std::move(setting));
  return all;
}

namespace {

// What a unit leaves in its buffer must not be what the next gather brings. `kept`: the part of
// this rank that an inner group is about to keep; undefined: none.
void clear(RankRun& run, const ParameterSegment& segment, const Tensor& kept) {
  Backend& backend = run.backend();
  Storage& memory = *segment.unsharded;
  size_t begin = 0, end = 0;  // of what is kept
  if (kept.defined()) {
    const FullySharded& sharded = run.sharded();
    const int rank = sharded.mesh().shard_index() % sharded.options().reshard_group_size;
    begin = static_cast<size_t>(rank) * kept.bytes();
    end = begin + kept.bytes();
  }
  backend.fill_zero(backend.compute_stream(), memory.data(), begin);
  backend.fill_zero(backend.compute_stream(), memory.data() + end, memory.bytes() - end);
}

// A unit's last use of its parameters is that of its last child in forward, of its first in
// backward; the root's is that of the final norm in the last backward: the head's gradients are
// taken in forward.
void leave_zeros(RankRun& run, int forwards) {
  const FullySharded& sharded = run.sharded();
  const Unit& root = *sharded.units()[0];
  if (root.policy.keeps_parameters()) return;
  for (Module* module : run.module().modules()) {
    if (module->name() == "final_norm" && forwards == 1) {
      module->set_hooks({.post_backward = [&] { clear(run, root.parameters.segments()[0], {}); }});
    }
    for (const auto& unit : sharded.units()) {
      if (unit->depth == 0 || module->name() != unit->name) continue;
      const ParameterSegment& segment = unit->parameters.segments()[0];
      module->children().back()->set_hooks(
          {.post_forward = [&] { clear(run, segment, segment.inner_shard); }});
      module->children().front()->set_hooks(
          {.post_backward = [&] { clear(run, segment, Tensor()); }});
    }
  }
}

}  // namespace

RunSpec spec_of(const OrderSetting& setting) {
  RunSpec s;
  s.ranks = setting.ranks;
  s.fsdp = setting.options;
  s.subject = setting.subject;
  s.wrap = setting.wrap;
  s.forwards = setting.forwards;
  if (setting.options.update_in_backward) s.clip_norm = 0;
  s.rows = 4 * setting.options.micro_steps * setting.forwards;
  // Masters come back from the host at the end of a step: the next one shows what came.
  s.steps = setting.options.offload == Offload::kNone ? 2 : 3;
  s.prepared = [forwards = setting.forwards](RankRun& run) { leave_zeros(run, forwards); };
  return s;
}

RunResult train_without(const RunSpec& spec, const Removal& removal, int attempt) {
  std::vector<RunResult> results(static_cast<size_t>(spec.ranks));
  run_local_ranks(spec.ranks, [&](Communicator& world) {
    bool active = false;
    int number = 0;
    RunSpec mine = spec;
    mine.cpu = [&](int) {
      cpu::CpuOptions o;
      // Compute has many tasks, and a short sleep takes long: at first it sleeps before every
      // fourth one, others in every attempt. The recorded stream may only pass on what another one
      // does: in the last attempts all are slow but the one that no longer waits.
      o.delay = [&, task = 0](const std::string& stream, std::string_view) mutable {
        const bool all = attempt >= kAttemptsOfOne;
        if (all ? stream == removal.edge.first : stream != removal.edge.second) return 0;
        const bool compute = stream == "compute";
        if (compute && attempt < 4 && task++ % 4 != attempt) return 0;
        if (all) return 200 << (attempt - kAttemptsOfOne);
        return (compute ? 40 : 100) << attempt;
      };
      o.ignore_wait = [&](const std::string& waiting, const std::string& recorded) {
        if (!active || Edge{waiting, recorded} != removal.edge) return false;
        const int n = number++;
        return removal.numbers.empty() || removal.numbers.contains(n);
      };
      return o;
    };
    mine.host = mine.cpu;
    RankRun run(world, mine);
    run.step(0);
    active = true;
    run.step(1);
    active = false;
    for (int step = 2; step < spec.steps; ++step) run.step(step);
    results[static_cast<size_t>(world.rank())] = run.result();
  });
  for (const RunResult& result : results) {
    if (!(result == results[0])) return {};  // the ranks disagree
  }
  return results[0];
}

// AddressSanitizer sees a buffer that is used after it was given back, and ends the program: that
// shows that the wait is missing as well as another result does.
bool noticed(const RunSpec& spec, const Removal& removal, const RunResult& expected, int attempts,
             int first) {
  for (int i = first; i < first + attempts; ++i) {
    const auto differs = [&] {
      try {
        return !(train_without(spec, removal, i) == expected);
      } catch (const Error&) {
        return true;
      }
    };
    if (kAddressSanitizer ? true_or_reported(differs) : differs()) return true;
  }
  return false;
}

namespace {

// Where the host is in a run of two steps.
class Place {
 public:
  void follow(RankRun& run) {
    run_ = &run;
    run.steps().set_phases(&phases_);
  }
  void begin_second_step() {
    before_ = "";
    counts_.clear();
  }
  std::string now() const {
    if (!run_) return "before";
    const std::string scope = run_->scope();
    if (scope == phase_) return before_ + phase_;
    return fmt::format("{}{} {}", before_, phase_, scope.empty() ? "end" : scope);
  }

 private:
  void enter(const std::vector<std::string>& open) {
    if (open.empty()) return;
    const int count = ++counts_[open.back()];
    phase_ = open.back() + (count > 1 ? fmt::format(" {}", count) : "");
  }

  RankRun* run_ = nullptr;
  std::string before_ = "last ", phase_;
  std::map<std::string, int> counts_;
  TracePhases phases_{nullptr, [this](const std::vector<std::string>& open) { enter(open); }};
};

// Notes where each event is recorded, and each wait for one, of a rank.
class Notes {
 public:
  Place place;
  bool counts = false;
  std::vector<Wait> waits;

  void recorded(const EventPtr& event, const Stream& stream) {
    events_[event.get()] = {stream.name(), place.now()};
  }
  void waited(const Stream& stream, const EventPtr& event) {
    if (!event || !counts) return;
    const auto& [recorded, since] = events_.at(event.get());
    if (recorded == stream.name()) return;
    Wait wait = {{stream.name(), recorded}, place.now(), since};
    const int count = ++counts_[wait];
    if (count > 1) wait.since += fmt::format(" ({})", count);
    waits.push_back(std::move(wait));
  }

 private:
  // The latest with an address: nobody can wait for an earlier one, which is gone.
  std::map<const Event*, std::pair<std::string, std::string>> events_;
  std::map<Wait, int> counts_;
};

// A backend that tells the notes.
template <typename Base>
class Noted : public Base {
 public:
  template <typename... Args>
  explicit Noted(Notes& notes, Args&&... args) : Base(std::forward<Args>(args)...), notes_(notes) {}
  EventPtr record(Stream& stream) override {
    EventPtr event = Base::record(stream);
    notes_.recorded(event, stream);
    return event;
  }
  void wait(Stream& stream, const EventPtr& event) override {
    notes_.waited(stream, event);
    Base::wait(stream, event);
  }

 private:
  Notes& notes_;
};

}  // namespace

std::vector<Wait> waits_of_a_step(const RunSpec& s) {
  std::vector<Wait> waits;
  run_local_ranks(s.ranks, [&](Communicator& world) {
    Notes notes;
    RunSpec mine = s;
    mine.backend = [&](int) {
      return std::make_unique<Noted<cpu::CpuBackend>>(notes, cpu::CpuOptions{});
    };
    mine.host_backend = [&](cpu::CpuOptions options) {
      return std::make_unique<Noted<cpu::CpuBackend>>(notes, std::move(options));
    };
    mine.file_backend = [&](const std::string& folder, cpu::CpuOptions options) {
      return std::make_unique<Noted<cpu::FileBackend>>(notes, folder, "rank", std::move(options));
    };
    RankRun run(world, mine);
    notes.place.follow(run);
    run.step(0);
    notes.place.begin_second_step();
    notes.counts = true;
    run.step(1);
    notes.counts = false;
    run.wait();
    if (world.rank() == 0) waits = notes.waits;
  });
  return waits;
}

}  // namespace fsdp::test
