// What a training run will need, and the limit that it keeps.
#include <algorithm>
#include <optional>

#include "comm/exchange.h"
#include "core/text/byte_size.h"
#include "tools/predict/memory_limit.h"
#include "tools/predict/predicted_run.h"
#include "tools/run/run_files.h"
#include "tools/run/training_run.h"
#include "tools/train/config_to_session.h"
#include "tools/train/left_out.h"

namespace fsdp::tools {
namespace {

int64_t count_of(const std::vector<int32_t>& tokens) { return static_cast<int64_t>(tokens.size()); }

}  // namespace

std::vector<int32_t> sample_prompt(const std::string& text, const data::Tokenizer& tokenizer) {
  std::vector<int32_t> prompt = tokenizer.encode(text);
  // Before the beginning of a document.
  if (prompt.empty() && tokenizer.end_of_text() >= 0) prompt = {tokenizer.end_of_text()};
  return prompt;
}

// Collective.
std::vector<GpuMemory::Reading> TrainingRun::gpu_memory_of_ranks() {
  const size_t held = session_->backend().ledger().usage().total_current;
  return comm::exchange_values(rank_.world, gpu_memory_->read(held));
}

// Communicators are made before anything large. Collective.
void TrainingRun::keep_to_what_nccl_left() {
  if (!gpu_memory_) return;
  const std::vector<GpuMemory::Reading> readings = gpu_memory_of_ranks();
  say(after_communicators(readings));
  const size_t left = std::ranges::min(readings, {}, &GpuMemory::Reading::left).left;
  limit_ = std::min(limit_, left);
  if (needed_ <= left) return;
  throw AgreedError(fmt::format("this run needs {} per rank, but NCCL's communicators have left {} "
                                "of its GPU; runtime.gpu_transport: host does without them",
                                byte_size_text(needed_), byte_size_text(left)),
                    status::kDoesNotFit);
}

// Collective.
void TrainingRun::tell_what_libraries_took() {
  if (!gpu_memory_) return;
  Backend& backend = session_->backend();
  backend.synchronize(backend.compute_stream());  // what the step gave back is given back
  say_beside(after_step(gpu_memory_of_ranks(), kNcclBytes));
  gpu_memory_.reset();
}

// `least`: what the run takes of its data whatever there is of it; a run that does not need too
// much with this is not refused yet. Collective.
void TrainingRun::refuse(const PredictedData& data, const data::Tokenizer& tokenizer,
                         const std::optional<PredictedData>& least) {
  const std::string& wanted = config_.runtime.memory_limit;
  const bool on_gpu = rank_.backend.cuda.has_value();
  const MemoryLimit limit = limit_of_device(rank_, wanted);
  std::optional<MemoryLimit> host;
  if (on_gpu) host = limit_of_host(rank_, "auto");
  std::string message;
  agree(rank_.world, config_.runtime.patience(), [&] {
    if (!speaks()) return;
    const auto with = [&](const PredictedData& some) {
      return RunPlan(config_, vocabulary_with(config_, tokenizer), some, rank_.world.size(),
                     rank_.backend);
    };
    if (least && with(*least).run().bytes <= limit.bytes) return;
    message = refusal(with(data), limit, host);
  });
  message = comm::from_first_rank(rank_.world, message);
  if (!message.empty()) throw AgreedError(message, status::kDoesNotFit);
  limit_ = limit.bytes;
}

// Before the text is tokenised, which may take longer than all that is known by then: the model,
// and for most texts the batches, of others at least one row. What else is wrong is said where it
// is used. Collective.
void TrainingRun::refuse_early(const data::Tokenizer& tokenizer) {
  PredictedData data = data_of(config_, rank_.world.size());
  data.prompt_tokens = count_of(sample_prompt(config_.sample.prompt, tokenizer));
  // One row of them all; it has two tokens where it is not filled up.
  PredictedData least = data;
  const bool filled =
      !config_.data.has_rows_of_any_length() || config_.data.padded_to() != data::PadTo::kLongest;
  least.usual = {.rows = 1, .length = filled ? config_.data.sequence_length : 2};
  least.batches = {least.usual};
  if (!least.validation_batches.empty()) least.validation_batches = {least.usual};
  struct Known {
    bool model, batches;
  } known = {true, false};
  agree(rank_.world, config_.runtime.patience(), [&] {
    try {
      const models::ModelConfig model = model_config(config_, vocabulary_with(config_, tokenizer));
      session_options(config_, model, rank_.world.size(), rank_.backend);
    } catch (const std::exception& error) {
      if (may_pass(config_.runtime.patience(), error)) throw;
      known.model = false;
    }
    known.batches = fills_a_batch(config_, data.usual.rows);
  });
  known = comm::exchange_values(rank_.world, known).front();
  if (known.model) refuse(data, tokenizer, known.batches ? std::nullopt : std::optional(least));
}

// Before anything large is asked for: a run that the machine cannot hold ends here, not in the
// hands of the kernel. Rank 0's prediction, which no other rank's exceeds. Collective.
void TrainingRun::predict() {
  PredictedData data = data_of(config_, rank_.world.size());
  data.first_step = plan_.manifest ? plan_.manifest->step() : 0;
  const int64_t steps = config_.train.steps;
  const auto largest = data_.largest_batches(batch_of_step(left_out(), steps));
  data.usual = largest.front();
  data.batches = shapes_of(
      steps - data.first_step, data.usual.rows,
      [&, out = left_out()](int64_t i) {
        return data_.shape_of(batch_of_step(out, data.first_step + i));
      },
      largest);
  data.evaluated = data_.validation_batches();
  if (data.evaluated > 0) {
    data.validation_batches = shapes_of(
        data.evaluated, data.usual.rows, [&](int64_t i) { return data_.validation_shape_of(i); },
        data_.largest_validation_batches());
  }
  data.prompt_tokens = count_of(sample_prompt(config_.sample.prompt, data_.tokenizer()));
  const std::vector<std::string> hosts = rank_.world.exchange(host_name());
  uint64_t host_needed = 0, needed = 0;
  agree(rank_.world, config_.runtime.patience(), [&] {
    if (!speaks()) return;
    const auto run = predicted_run(config_, session_options_, data, rank_.world.size());
    predicted_ = run->usage();
    predicted_host_ = run->host_usage();
    predicted_file_ = run->file_usage();
    host_needed = run->host_needed();
    needed = run->needed();
    // Elsewhere a rank says it when it makes its file.
    check_disk(config_.fsdp.offload_folder, run->file_needed(),
               static_cast<int>(std::count(hosts.begin(), hosts.end(), host_name())));
  });
  host_needed_ = comm::exchange_values(rank_.world, host_needed).front();
  needed_ = comm::exchange_values(rank_.world, needed).front();
  refuse(data, data_.tokenizer());
}

}  // namespace fsdp::tools
