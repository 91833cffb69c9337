// Contract: tools/predict/model_use.h.
#include "tools/predict/model_use.h"

#include <algorithm>
#include <utility>

#include "comm/exchange.h"
#include "core/text/byte_size.h"
#include "tools/predict/memory_limit.h"

namespace fsdp::tools {
namespace {

constexpr int kTimes = 2;  // [Note: settled] in meta_run.h

struct Need {
  size_t bytes = 0;
  PeakMoment moment;
};

Need need_of(const PlacedOptions& session, int ranks, const ModelUse& use, int64_t rows) {
  MetaRun run(session, ranks);
  run.load([](const Parameter&, int64_t, Tensor&) {});  // reading takes nothing of the device's
  use.work(run, rows);
  const auto own = static_cast<size_t>((rows + ranks - 1) / ranks);
  return {run.needed() + (run.on_gpu() ? 0 : own * use.row_bytes), run.moment()};
}

// "" or what makes it fit, as options of the command.
std::string what_fits(const PlacedOptions& session, int ranks, const ModelUse& use, size_t limit) {
  PlacedOptions narrow = session;
  narrow.fsdp.param_dtype = DType::kBF16;
  narrow.fsdp.reduce_dtype = accumulation_dtype(DType::kBF16);
  const bool narrower = use.has_dtype && size_of(session.fsdp.param_dtype) > size_of(DType::kBF16);
  const int64_t few = std::min<int64_t>(use.rows, ranks);
  const std::string rows = fmt::format("--batch {}", few);
  struct Change {
    bool there;
    const PlacedOptions& session;
    int64_t rows;
    std::string flags;
  };
  for (const Change& change :
       {Change{few < use.rows, session, few, rows},
        Change{narrower, narrow, use.rows, "--dtype bf16"},
        Change{narrower && few < use.rows, narrow, few, "--dtype bf16 " + rows}}) {
    if (!change.there) continue;
    const size_t bytes = need_of(change.session, ranks, use, change.rows).bytes;
    if (bytes > limit) continue;
    return fmt::format("\n  fits with {}: {}", change.flags, byte_size_text(bytes));
  }
  return "\n  on more hosts or GPUs a rank takes less: full_shard divides the weights between "
         "ranks";
}

std::string refusal_of_use(const PlacedOptions& session, int ranks, const ModelUse& use,
                           const MemoryLimit& limit) {
  const Need need = need_of(session, ranks, use, use.rows);
  if (need.bytes <= limit.bytes) return "";
  return fmt::format("this command needs {} per rank, the limit is {} ({})\n  the peak is in {}{}",
                     byte_size_text(need.bytes), byte_size_text(limit.bytes), limit.source,
                     need.moment.phase, need.moment.unit.empty() ? "" : " of " + need.moment.unit) +
         what_fits(session, ranks, use, limit.bytes);
}

// Prompts of a batch: so many, the longest of so many tokens.
struct PromptBatch {
  int64_t rows, longest;
};

std::vector<PromptBatch> batches_of(const std::vector<std::vector<int32_t>>& prompts,
                                    int64_t batch) {
  // Of all that are full only the longest counts.
  PromptBatch full = {}, last = {};
  const auto count = static_cast<int64_t>(prompts.size());
  for (int64_t i = 0; i < count; ++i) {
    PromptBatch& of = i / batch < count / batch ? full : last;
    of.rows = std::min(of.rows + 1, batch);
    of.longest = std::max(of.longest, std::ssize(prompts[static_cast<size_t>(i)]));
  }
  std::vector<PromptBatch> out;
  for (const PromptBatch& each : {full, last}) {
    if (each.rows > 0) out.push_back(each);
  }
  return out;
}

void walk(Session& session, GenerationOptions options, const PromptBatch& batch) {
  const auto generate = [&](int64_t length, int64_t tokens) {
    options.tokens = tokens;
    generate_tokens(session, options,
                    std::vector(static_cast<size_t>(batch.rows),
                                std::vector<int32_t>(static_cast<size_t>(length), 0)));
  };
  const int64_t tokens = options.tokens, grown = batch.longest + tokens - 1;
  // The first pass is over the prompt, and those behind it over a token each. Without a cache, or
  // where a text has outgrown it, the last pass is over all that the model sees.
  generate(batch.longest, std::min<int64_t>(tokens, 2));
  if (!options.cache || grown > session.max_length()) {
    generate(std::min(grown, session.max_length()), 1);
  }
}

}  // namespace

ModelUse use_of_batches(std::vector<data::BatchShape> shapes, int64_t rows_per_pass,
                        const SyntheticRows& kind) {
  const int64_t most = shapes.empty() ? 1 : shapes.front().rows;
  const auto work = [=](MetaRun& run, int64_t rows) {
    run.set_rows(kind);
    if (rows == most) run.set_rows_per_pass(rows_per_pass);
    for (int i = 0; i < kTimes; ++i) {
      for (data::BatchShape shape : shapes) {
        shape.rows = std::min(shape.rows, rows);
        run.evaluate(shape);
      }
    }
  };
  return {.rows = most, .work = work};
}

ModelUse use_of_generation(const GenerationOptions& options,
                           const std::vector<std::vector<int32_t>>& prompts, int64_t batch,
                           int64_t vocabulary) {
  GenerationOptions greedy = options;  // nobody looks at what is chosen
  greedy.sampling = {};
  greedy.stop = {};
  const auto work = [=](MetaRun& run, int64_t rows) {
    for (const PromptBatch& each : batches_of(prompts, rows)) {
      run.phase("generation", [&](Session& session) { walk(session, greedy, each); });
    }
  };
  return {.rows = std::min(batch, static_cast<int64_t>(prompts.size())),
          .work = work,
          .row_bytes = static_cast<size_t>(vocabulary) * sizeof(double)};
}

size_t bytes_of_use(const PlacedOptions& session, int ranks, const ModelUse& use) {
  return need_of(session, ranks, use, use.rows).bytes;
}

void check_fits(const RankContext& rank, const PlacedOptions& session, const ModelUse& use) {
  const MemoryLimit limit = limit_of_device(rank, "auto");
  std::string message;
  agree(rank.world, [&] {
    if (rank.world.rank() == 0) message = refusal_of_use(session, rank.world.size(), use, limit);
  });
  message = comm::from_first_rank(rank.world, message);
  if (!message.empty()) throw AgreedError(message, status::kDoesNotFit);
}

}  // namespace fsdp::tools
