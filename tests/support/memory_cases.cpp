// Predicted by a run without bytes, counted by the ledger of the run itself.
#include "tests/support/memory_cases.h"

#include <filesystem>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "models/names.h"
#include "optim/optimizer_kind.h"
#include "tests/support/tiny_models.h"
#include "tools/predict/meta_run.h"

namespace fsdp::test {
namespace {

constexpr int64_t kLength = 7;
constexpr int kSteps = 3, kEvaluated = 2;  // after each step
constexpr int64_t kRows = 5;  // of a micro-step of all ranks: some ranks have more than others

}  // namespace

int64_t MemoryCase::rows_per_pass(int64_t rows) const {
  const int64_t parts = ranks * options.fsdp.micro_steps;
  return options.fsdp.fixed_order ? (rows + parts - 1) / parts : 0;
}

std::string memory_text(const MemoryUsage& usage, bool of_gpu) {
  std::string out;
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category == MemoryCategory::kTransportStaging) continue;
    if (of_gpu && category == MemoryCategory::kWorkspace) continue;
    out += fmt::format("{} {}\n", name_of(category), usage.peak[i]);
  }
  if (of_gpu) return out;
  return out + fmt::format("total {}\nscratch {}\nheld {}\n", usage.predictable_peak, usage.scratch,
                           usage.held_peak);
}

size_t workspace_of(const MemoryUsage& usage) {
  return usage.peak[static_cast<size_t>(MemoryCategory::kWorkspace)];
}

MemoryOfRank predicted_memory(const MemoryCase& run, int rank) {
  tools::MetaRun meta(run.options, run.ranks, rank);
  meta.set_rows(run.kind);
  meta.load(models::from_scratch(0), run.from_first_rank);
  const int64_t rows = kRows * run.options.fsdp.micro_steps;
  meta.set_rows_per_pass(run.rows_per_pass(rows));
  for (int step = 0; step < kSteps; ++step) {
    meta.step({rows, kLength});
    for (int i = 0; i < (run.evaluates ? kEvaluated : 0); ++i) meta.evaluate({kRows, kLength});
  }
  const bool of_gpu = run.options.backend.cuda.has_value();
  return {memory_text(meta.usage(), of_gpu) + "host\n" + memory_text(meta.host_usage(), of_gpu) +
              "file\n" + memory_text(meta.file_usage()),
          workspace_of(meta.usage())};
}

std::vector<MemoryOfRank> counted_memory(const MemoryCase& run) {
  std::vector<MemoryOfRank> out(static_cast<size_t>(run.ranks));
  comm::run_local_ranks(run.ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, run.options);
    const auto fill = models::from_scratch(1);
    run.from_first_rank ? session.initialise_from_first_rank(fill) : session.initialise(fill);
    const int64_t rows = kRows * run.options.fsdp.micro_steps;
    const auto batch_of = [&](int64_t count) {
      Batch batch = tools::synthetic_batch(run.options.model, count, kLength, world.rank(),
                                           world.size(), run.rows_per_pass(rows), run.kind);
      for (size_t i = 0; i < batch.tokens.size(); ++i) {  // row by row the same: 0, 1, 4, ...
        batch.tokens[i] = static_cast<int32_t>((i % kLength) * (i % kLength) %
                                               static_cast<size_t>(run.options.model.vocabulary));
      }
      batch.targets = models::shifted_labels(batch.tokens, batch.rows, kLength);
      return batch;
    };
    for (int step = 0; step < kSteps; ++step) {
      session.train_step(batch_of(rows), 1e-3, static_cast<uint32_t>(step)).read();
      for (int i = 0; i < (run.evaluates ? kEvaluated : 0); ++i) session.evaluate(batch_of(kRows));
    }
    const bool of_gpu = run.options.backend.cuda.has_value();
    const MemoryUsage host = session.host() ? session.host()->ledger().usage() : MemoryUsage{};
    const MemoryUsage usage = session.backend().ledger().usage();
    out[static_cast<size_t>(world.rank())] = {
        memory_text(usage, of_gpu) + "host\n" + memory_text(host, of_gpu) + "file\n" +
            memory_text(session.file() ? session.file()->ledger().usage() : MemoryUsage{}),
        workspace_of(usage)};
  });
  return out;
}

void check_memory(const MemoryCase& run) {
  const std::vector<MemoryOfRank> real = counted_memory(run);
  for (int rank = 0; rank < run.ranks; ++rank) {
    CAPTURE(rank);
    const MemoryOfRank predicted = predicted_memory(run, rank);
    const MemoryOfRank& counted = real[static_cast<size_t>(rank)];
    CHECK(predicted.text == counted.text);
    CHECK(predicted.workspace >= counted.workspace);
  }
}

// ---- what is crossed ----

namespace {

using comm::Strategy;
constexpr std::array kStrategies = {Strategy::kFullShard,      Strategy::kShardGradOp,
                                    Strategy::kShardOptimizer, Strategy::kNoShard,
                                    Strategy::kHybridShard,    Strategy::kHybridShardZero2};

enum Trained { kAll, kFrozenTable, kLora };
enum Wrap { kBlock, kSize, kClass, kNothing, kSplitRoot };

}  // namespace

bool go_together(const MemoryLevels& l) {
  const bool hybrid = l[kStrategy] >= 4;
  if (hybrid && l[kRanks] >= 0 && l[kRanks] != 3) return false;  // 2 x 2
  if (l[kMore] == kFixedOrder && l[kAccumulation] >= 2) return false;
  // Ranks in pairs inside of four that share.
  if (l[kMore] == kInnerGroup && (l[kStrategy] > 0 || (l[kRanks] >= 0 && l[kRanks] != 3))) {
    return false;
  }
  // Blocks are units, and what they are told goes beyond what all are told.
  const bool blocks = l[kWrap] <= kBlock || l[kWrap] == kSplitRoot;
  if (l[kMore] == kUnits && (l[kStrategy] > 0 || !blocks)) return false;
  if (l[kMore] == kInBackward && l[kDType] == 3) return false;  // f16: its loss is scaled
  if (l[kMore] == kKept && l[kStrategy] == 3) return false;     // nothing is given back anyway
  // By size the table may become part of a unit that its other user, the head, is not in.
  if (l[kHead] == 1 && l[kWrap] == kSize) return false;
  if (l[kHead] == 1 && l[kWrap] == kSplitRoot) return false;
  return true;
}

MemoryCase memory_case(const MemoryLevels& l) {
  MemoryCase run;
  tools::PlacedOptions& o = run.options;
  o.model = tiny_of_every_family(3)[static_cast<size_t>(l[kFamily])];
  o.model.tied_head = l[kHead] == 1;
  o.max_length = kLength;
  o.fsdp.strategy = kStrategies[static_cast<size_t>(l[kStrategy])];
  run.ranks = l[kRanks] + 1;
  if (comm::is_hybrid(o.fsdp.strategy)) o.fsdp.shard_size = 2;
  o.recompute =
      std::array{RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull,
                 RecomputeMode::kFull, RecomputeMode::kOffload}[static_cast<size_t>(l[kRecompute])];
  o.recompute_every = l[kRecompute] == 3 ? 2 : 1;
  using enum comm::Accumulation;
  o.fsdp.micro_steps = std::array{1, 3, 2, 3}[static_cast<size_t>(l[kAccumulation])];
  o.fsdp.accumulation = std::array{kReduceEach, kReduceEach, kReduceScatterEach,
                                   kReduceLast}[static_cast<size_t>(l[kAccumulation])];
  o.fsdp.param_dtype = std::array{DType::kF32, DType::kBF16, DType::kBF16,
                                  DType::kF16}[static_cast<size_t>(l[kDType])];
  o.fsdp.reduce_dtype = l[kDType] == 2 ? DType::kBF16 : DType::kF32;
  if (o.fsdp.param_dtype == DType::kF16) o.loss_scale.initial = 1024;
  if (l[kDType] == 2) o.head = {.logits_dtype = DType::kBF16, .chunk_bytes = 4096};
  const std::string block = o.model.block_class;
  const comm::WrapPolicy blocks = comm::wrap_classes({block});
  const comm::WrapPolicy parts = comm::wrap_where(
      [block](const Module& m) { return m.class_name() == block || m.name().ends_with(".mlp"); });
  o.wrap = std::array{blocks, comm::wrap_by_size(1500), parts, comm::wrap_nothing(),
                      blocks}[static_cast<size_t>(l[kWrap])];
  o.split_root = l[kWrap] == kSplitRoot;
  if (l[kTrained] == kFrozenTable) {
    o.frozen = {models::hugging_face_name(o.model, "embedding.tokens.weight")};
  }
  if (l[kTrained] == kLora) o.lora = models::LoraConfig{.r = 3, .targets = {"all-linear"}};
  run.evaluates = l[kEvaluation] == 1;
  o.fsdp.offload = static_cast<comm::Offload>(l[kOffload]);
  o.backend.offload_folder = std::filesystem::temp_directory_path().string();
  o.fsdp.release_arena = l[kMore] == kReleaseArena;
  o.fsdp.fixed_order = l[kMore] == kFixedOrder;
  o.fsdp.separate_reduce = l[kMore] != kOneStream;
  o.fsdp.units_in_flight = l[kMore] == kOneInFlight ? 1 : l[kMore] == kThreeInFlight ? 3 : 2;
  if (l[kMore] == kKept) o.fsdp.reshard_after_forward = false;
  if (l[kMore] == kInnerGroup) o.fsdp.reshard_group_size = 2;
  o.fsdp.update_in_backward = l[kMore] == kInBackward;
  if (l[kMore] == kInBackward) o.clip_norm = 0;
  if (l[kMore] == kUnits) {
    o.fsdp.units = {{.match = "blocks.0", .reshard_after_forward = false},
                    {.match = "blocks.1", .strategy = Strategy::kShardOptimizer}};
  }
  if (l[kMore] == kPost) o.fsdp.backward_prefetch = comm::BackwardPrefetch::kPost;
  if (l[kMore] == kSgd) o.optimizer = {.kind = optim::OptimizerKind::kSgd, .momentum = 0.9};
  run.from_first_rank = l[kMore] == kFirstRank;
  run.kind = {.masked = l[kMore] == kMasked, .document = l[kMore] == kDocuments ? 3 : 0};
  if (l[kMore] == kNarrow) {
    o.fsdp.master_dtype = o.fsdp.param_dtype == DType::kF16 ? DType::kF16 : DType::kBF16;
    o.optimizer.state_dtype = DType::kBF16;
    o.optimizer.rounds_masters_by_chance = true;
  }
  return run;
}

}  // namespace fsdp::test
