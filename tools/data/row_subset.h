// A number of rows of files by seed: the rows, in the order, that Hugging Face datasets'
// shuffle(seed).select(range(n)) takes of the same files. Not here: the order of training
// (sampler.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/text_source.h"

namespace fsdp::data {

struct RowSubset {
  int64_t n = 0;
  uint64_t seed = 0;
  std::string key = "data.subset";  // for errors
};

// Calls `use` with the n documents. Rows are counted over all files in order; blank lines and rows
// that are skipped are none. Every row is read, so that a bad one is found wherever it is. Error
// for a file that is one document, and for fewer rows than n. Keeps 24 bytes for each row.
std::vector<SkippedRow> for_each_row_of(const RowSubset& subset,
                                        const std::vector<std::filesystem::path>& files,
                                        const TextOptions& options, const UseDocument& use);

}  // namespace fsdp::data
