// Training steps that others have measured and published, as rows of a CSV file: what predictions
// are held against. Columns: kRowColumns; a row of tests/fixtures/planning/README.md says what they
// mean. Not here: all rows (validation.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/predict/rates.h"

namespace fsdp::tools {

inline constexpr std::array kRowColumns = {
    "set",         "machine",    "gpus",     "gpus_per_node", "layers",      "hidden",
    "heads",       "kv_heads",   "ffn",      "vocab",         "tied",        "seq",
    "micro_batch", "accumulate", "strategy", "shard_size",    "param_dtype", "reduce_dtype",
    "recompute",   "step_s",     "peak_gib"};

struct PublishedRow {
  std::string set, machine;
  int gpus = 0, gpus_per_node = 0;
  int64_t layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;
  bool tied = false;
  int64_t seq = 0, micro_batch = 0, accumulate = 0;
  std::string strategy, param_dtype, reduce_dtype, recompute;
  int shard_size = 0;
  double step_s = 0;
  // ---- Of the file ----
  std::string file;
  int line = 0;
  std::string unusable;  // why it cannot be compared: a value that is not there; "": it can

  std::string place() const;  // "rows.csv:12"
  std::string size() const;   // of the model's layers, however many there are
};

// Of a file, or of all *.csv of a folder, by name. Error for a column that is missing or unknown,
// for a value that is no number where one belongs, and where there are no rows.
std::vector<PublishedRow> read_published_rows(const std::filesystem::path& path);

// ---- What this program's model of time says of a published step: the step of such a
// configuration, without bytes, with the other program's memory-bound kernels (other_programs.h)
// and the row's machine. Not here: how good that is (validation.h).

// What fits replace, in the row's dtype: FLOP/s of products and of attention; 0: it has none of its
// own.
using Constants = std::array<double, 2>;

// As the machine's file has them.
Constants shipped_constants(const PublishedRow& row);

// Of the device's peak, the same share everywhere: where a fit begins, which must know nothing of
// what it predicts. 0: the peak is not known.
Constants unfitted_constants(const PublishedRow& row);

// Seconds of a step. Error where the row's job is none of this program's.
double predicted_step_s(const PublishedRow& row, const Constants& constants);

}  // namespace fsdp::tools
