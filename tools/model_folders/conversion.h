// From one kind of model folder to another: Hugging Face's (one file or several) and a sharded
// checkpoint (core/io/shard_index.h), in any direction, between dtypes, and from a LoRA adapter and
// its base to their sum. Values are read from
// the mapped files and written in stretches, so that no rank holds more than a few megabytes; ranks
// share the files out between them. Not here: saving a model that is in memory (save_model.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/dtype.h"
#include "tools/model_folders/save_model.h"

namespace fsdp::tools {

struct ConversionOptions {
  std::filesystem::path from;
  std::filesystem::path adapter = {};          // LoRA's, added to the weights; empty: none
  std::filesystem::path to;                    // must not be there
  std::optional<DType> dtype = {};             // absent: every tensor keeps its own
  int64_t max_file_bytes = kDefaultFileBytes;  // of a Hugging Face folder
  std::vector<std::string> stripped = {};      // parts that the new names do not have: "module."
  int shards = 0;  // ranks that the sharded checkpoint is for; 0: write a Hugging Face folder
};

struct ConversionSummary {
  std::string family;
  size_t tensors = 0;
  size_t files = 0;
  int64_t bytes = 0;  // of the tensors
  // What is odd about the source's files, and tensors with values that the new dtype cannot hold.
  std::vector<std::string> warnings = {};
};

// Copies the weights, config.json, generation_config.json and the tokenizer's files (the adapter's
// where it has some). A shard holds
// what a rank of FULL_SHARD with a unit per transformer block owns. AgreedError when anything fails
// on any rank, or a signal comes that catch_interrupts() catches, and then nothing is left
// of `to`. Collective.
ConversionSummary convert_folder(comm::Communicator& world, const ConversionOptions& options);

}  // namespace fsdp::tools
