// Data that are token ids already, in files of another program: what such a format is. Not here:
// the formats (tools/guides), our own files of tokens (token_cache.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/data/objective.h"
#include "tools/data/sequences.h"
#include "tools/data/text_source.h"

namespace fsdp::data {

// How the stream of a file's sentences is cut into blocks. A sentence that is longer than `length`
// is no block: with BadRows::kFail an error, with kSkip left out.
struct BlockOptions {
  int64_t length = 0;
  BreakMode mode = BreakMode::kNone;
  BadRows bad_rows = BadRows::kFail;
};

struct TokenFile {
  std::shared_ptr<const Sequences> sequences;
  std::vector<SkippedRow> skipped;  // `line`: the number of the sentence, from 1
  int64_t tokens = 0;
  uint64_t identity = 0;  // equal for the same tokens
};

struct TokenFormat {
  std::string_view name;  // as a value of data.format
  std::string_view help;  // of one line
  TokenFile (*open)(const std::filesystem::path& file, const BlockOptions& options);
  // How many ids the file's program knows. None: nothing beside the file says it.
  std::optional<int64_t> (*vocabulary)(const std::filesystem::path& file);
};

}  // namespace fsdp::data
