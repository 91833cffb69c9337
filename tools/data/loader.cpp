// Batches of sequences. Contract: tools/data/loader.h.
#include "tools/data/loader.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/text/counted.h"

namespace fsdp::data {
namespace {

constexpr int64_t kShortest = 2;  // tokens of a batch: with fewer there is nothing to predict

std::shared_ptr<const Sequences> checked_sequences(const LoaderOptions& options) {
  FSDP_CHECK(options.sequence_length >= kShortest,
             "data.sequence_length: expected at least {}, got {}", kShortest,
             options.sequence_length);
  auto sequences = options.sequences;
  if (!sequences) {
    sequences = stream_sequences({.tokens = options.tokens, .before_use = options.before_use},
                                 options.sequence_length);
  }
  FSDP_CHECK(sequences->count() >= 1,
             "{} has {}, fewer than one sequence of {} (data.sequence_length)", options.name,
             sequences->summary(), options.sequence_length);
  FSDP_CHECK(options.world <= options.batch,
             "train.batch: {} cannot be dealt to {} ranks; expected at least {}",
             counted(options.batch, "sequence"), options.world, options.world);
  // A padded batch would be as long as train.batch, however little data there is.
  FSDP_CHECK(options.last == LastBatch::kShort || options.rule == ShuffleRule::kTorch ||
                 sequences->count() >= options.batch,
             "data.last_batch: {} has {} sequences, which do not fill one batch of {} "
             "(train.batch); with short, every step takes them all",
             options.name, sequences->count(), options.batch);
  return sequences;
}

}  // namespace

Loader::Loader(const LoaderOptions& options)
    : options_(options),
      sequences_(checked_sequences(options)),
      sampler_({.items = sequences_->count(),
                .batch = options.batch,
                .shuffle = options.shuffle,
                .seed = options.seed,
                .last = options.last,
                .rule = options.rule,
                .world = options.world,
                .set_epoch = options.set_epoch,
                .sources = options.sources}) {}

int64_t Loader::samples_after(int64_t steps) const {
  const int64_t epochs = steps / steps_per_epoch(), rest = steps % steps_per_epoch();
  const int64_t last = sampler_.batch_size(steps_per_epoch() - 1);
  const int64_t of_epoch = (steps_per_epoch() - 1) * options_.batch + last;
  return epochs * of_epoch + rest * options_.batch;
}

int64_t Loader::length_of(const std::vector<int64_t>& samples) const {
  if (!options_.to_longest) return options_.sequence_length;
  int64_t longest = kShortest;
  for (const int64_t sample : samples) {
    longest = std::max(longest, sequences_->tokens_of(sample, options_.sequence_length));
  }
  return longest;
}

BatchShape Loader::shape_of(int64_t step) const {
  const int64_t rows = sampler_.batch_size(step % steps_per_epoch());
  return {rows, options_.to_longest ? length_of(samples_of(step)) : options_.sequence_length};
}

std::vector<BatchShape> Loader::largest_batches(int64_t steps) const {
  const int64_t whole = sampler_.batch_size(0);
  if (!options_.to_longest) return {{whole, options_.sequence_length}};
  std::vector<int64_t> all(static_cast<size_t>(sequences()));
  std::iota(all.begin(), all.end(), 0);
  const int64_t longest = length_of(all);
  std::vector<BatchShape> out = {{whole, 0}, {0, 0}};
  for (int64_t step = 0; step < steps && out[0].length < longest; ++step) {
    const std::vector<int64_t> samples = samples_of(step);
    const auto rows = static_cast<int64_t>(samples.size());
    BatchShape& shape = out[rows == whole ? 0 : 1];
    shape = {rows, std::max(shape.length, length_of(samples))};
  }
  if (out[1].length <= out[0].length) out.pop_back();
  return out;
}

std::vector<int64_t> Loader::samples_of(int64_t step) const {
  return sampler_.batch(step / steps_per_epoch(), step % steps_per_epoch());
}

LabelledRows Loader::rows(int64_t step, const InputRules& rules) const {
  LabelledRows out = {.length = length_of(samples_of(step))};
  out.samples = sampler_.batch(step / steps_per_epoch(), step % steps_per_epoch(), options_.rank,
                               options_.world, std::max<int64_t>(options_.rows_per_pass, 1));
  for (const int64_t sample : out.samples) sequences_->append(sample, out.length, rules, out);
  return out;
}

Batch Loader::batch(int64_t step, const InputRules& rules) const {
  const std::vector<int64_t> all = samples_of(step);
  LabelledRows own = rows(step, rules);
  int64_t label_tokens = 0;
  for (const int64_t sample : all) {
    label_tokens += sequences_->label_tokens(sample, own.length, rules);
  }
  Batch out = make_batch(std::move(own), rules, label_tokens);
  if (options_.rows_per_pass > 0) {
    // With the rule of torch every rank has as many rows, and makes passes of them itself.
    const bool torch = options_.rule == ShuffleRule::kTorch;
    const int64_t dealt = torch ? options_.world : 1, run = options_.rows_per_pass;
    const auto rows = static_cast<int64_t>(all.size()) / dealt;
    out.rows_per_pass = run;
    out.passes = (rows + run - 1) / run * dealt;
  }
  return out;
}

}  // namespace fsdp::data
