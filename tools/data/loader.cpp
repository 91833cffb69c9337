// Batches of sequences. Contract: tools/data/loader.h.
#include "tools/data/loader.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::data {
namespace {

Packing checked_packing(const LoaderOptions& options) {
  FSDP_CHECK(options.sequence_length >= 2, "data.sequence_length: expected at least 2, got {}",
             options.sequence_length);
  const Packing packing{options.tokens, options.sequence_length};
  FSDP_CHECK(packing.sequences() >= 1,
             "{} has {} tokens, fewer than one sequence of {} (data.sequence_length)", options.name,
             options.tokens.size(), options.sequence_length);
  FSDP_CHECK(options.world <= options.batch,
             "train.batch: {} sequences cannot be dealt to {} ranks; expected at least {}",
             options.batch, options.world, options.world);
  // A padded batch would be as long as train.batch, however little data there is.
  FSDP_CHECK(options.last == LastBatch::kShort || packing.sequences() >= options.batch,
             "data.last_batch: {} has {} sequences, which do not fill one batch of {} "
             "(train.batch); with short, every step takes them all",
             options.name, packing.sequences(), options.batch);
  return packing;
}

}  // namespace

Loader::Loader(const LoaderOptions& options)
    : options_(options),
      packing_(checked_packing(options)),
      sampler_({.items = packing_.sequences(),
                .batch = options.batch,
                .shuffle = options.shuffle,
                .seed = options.seed,
                .last = options.last}) {}

int64_t Loader::samples_after(int64_t steps) const {
  const int64_t epochs = steps / steps_per_epoch(), rest = steps % steps_per_epoch();
  const int64_t last = sampler_.batch_size(steps_per_epoch() - 1);
  const int64_t of_epoch = (steps_per_epoch() - 1) * options_.batch + last;
  return epochs * of_epoch + rest * options_.batch;
}

Batch Loader::batch(int64_t step, bool shifted_labels) const {
  const int64_t epoch = step / steps_per_epoch(), number = step % steps_per_epoch();
  Batch out;
  out.length = options_.sequence_length;
  const int64_t run = std::max<int64_t>(options_.rows_per_pass, 1);
  out.samples = sampler_.batch(epoch, number, options_.rank, options_.world, run);
  if (options_.rows_per_pass > 0) {
    out.rows_per_pass = run;
    out.passes = (sampler_.batch_size(number) + run - 1) / run;
  }
  out.rows = static_cast<int64_t>(out.samples.size());
  const auto length = static_cast<size_t>(options_.sequence_length);
  for (const int64_t sample : out.samples) {
    if (options_.before_use) options_.before_use(static_cast<size_t>(sample) * length, length);
    const std::span<const int32_t> sequence = packing_.sequence(sample);
    out.tokens.insert(out.tokens.end(), sequence.begin(), sequence.end());
  }
  out.labels = out.tokens;
  const int64_t of_a_row =
      shifted_labels ? packing_.labels_per_sequence() : options_.sequence_length;
  out.global_label_tokens = sampler_.batch_size(number) * of_a_row;
  return out;
}

}  // namespace fsdp::data
