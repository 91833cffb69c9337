// Training steps that others have measured and published, as rows of a CSV file: what predictions
// are held against. Columns: kRowColumns; a row of tests/fixtures/planning/README.md says what they
// mean. Not here: what is predicted for a row (row_prediction.h).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

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

}  // namespace fsdp::tools
