// Rows of tokens, as the data has them and ready for a model: a whole batch, or one rank's part of
// a batch. Which rows are whose. Targets, padding and positions are made here once; the model gets
// them ready. Not here: which rows are chosen (tools/data/sampler.h), copying them to a device
// (session.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "models/input_rules.h"

namespace fsdp {

struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

// Consecutive rows, as evenly as possible, earlier ranks first; a rank may get none.
inline RowRange deal_rows(int64_t rows, int rank, int ranks) {
  const int64_t each = rows / ranks, left_over = rows % ranks;
  return {rank * each + std::min<int64_t>(rank, left_over), each + (rank < left_over ? 1 : 0)};
}

// Rows of one length as the data has them. No labels: nothing is predicted.
struct LabelledRows {
  int64_t length = 0;
  std::vector<int32_t> tokens = {};  // (rows, length)
  std::vector<int32_t> labels = {};  // (rows, length), Hugging Face form: not shifted, -100 ignored
  std::vector<int64_t> samples = {};  // (rows): global sample index, keys dropout; empty: 0
  std::vector<int32_t> mask = {};     // (rows, length): 0 where a row is padded; empty: nowhere
  bool labels_are_targets = false;    // a label is what its position predicts: no shift
  // (rows, length): where the document of each token begins in its row, for documents that do not
  // see each other; empty: a row is one. Padding behind the last one is a document of its own.
  std::vector<int32_t> first_key = {};

  int64_t rows() const { return length == 0 ? 0 : std::ssize(tokens) / length; }
};

struct Batch {
  int64_t rows = 0;  // 0: nothing for this rank
  int64_t length = 0;
  std::vector<int32_t> tokens = {};   // (rows, length)
  std::vector<int32_t> targets = {};  // (rows, length): what each position predicts; -100: nothing
  std::vector<int64_t> samples = {};  // (rows): global sample index, keys dropout; empty: 0
  std::vector<int32_t> mask = {};     // (rows, length): 0 where a row is padded; empty: nowhere
  std::vector<int32_t> positions = {};  // (rows, length); empty: 0, 1, ... in every row
  int64_t global_label_tokens = 0;      // targets that count, over all ranks
  // Where the batch of all ranks is computed in passes of so many rows: pass p by rank p % ranks,
  // as its number p / ranks; only the last one may be shorter. 0: each rank as it likes.
  int64_t rows_per_pass = 0;
  int64_t passes = 0;          // of all ranks
  double gradient_factor = 1;  // of this rank's gradients: to try what bad ones do
};

// The rows made ready by the rules of a model. Error where sizes do not agree: tokens are whole
// rows; labels, mask and samples are as many, or absent.
Batch make_batch(LabelledRows rows, const models::InputRules& rules, int64_t global_label_tokens);

// Positions of the batch that have a target.
int64_t count_targets(const Batch& batch);

// This rank's rows of part `part` of `parts`: a pass, or the rows split evenly.
RowRange rows_of_part(const Batch& batch, int part, int parts);
// How many ranks have a pass in part `part` of all; all of them where there are no passes.
int ranks_with_pass(const Batch& batch, int part, int ranks);
// Some of the rows; what is said of all ranks stays. Padding that a model found by itself is
// forgotten where none of these rows has any.
Batch rows_of(const Batch& batch, const RowRange& range);

}  // namespace fsdp
