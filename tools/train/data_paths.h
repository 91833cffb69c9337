// Where the files are that a configuration names: beside it or in the current folder, folders and
// patterns as the files in them. Not here: what is read from them (train_data.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/config/config.h"

namespace fsdp::tools {

// Where a relative path is looked for first: in the current folder, as of a configuration that says
// what somebody has there, or beside the file that names it, as of a recipe, which brings its own
// files. What was typed is looked for in the current folder first, always.
enum class LookFirst : uint8_t { kHere, kBeside };

// The other place is the second one (in resolve_paths: beside the file that has the key, where it
// is included).
std::string resolve_path(const std::string& path, const std::filesystem::path& config_file,
                         LookFirst first = LookFirst::kHere);
// Puts the files that folders and patterns of data.train, data.sources and data.validation mean in
// their place, looked for as resolve_path does. What nothing is found for stays: TrainData refuses
// it. Returns notes on files of these folders that are left out, and on paths that are in both
// places.
std::vector<std::string> find_texts(config::TrainConfig& config,
                                    const std::filesystem::path& config_file,
                                    LookFirst first = LookFirst::kHere);
// All paths of the configuration that are read, with find_texts(); model.path too where lora.path
// alone says it, and data.pad where the tokenizer's folder does.
std::vector<std::string> resolve_paths(config::TrainConfig& config,
                                       const std::filesystem::path& config_file,
                                       LookFirst first = LookFirst::kHere);

}  // namespace fsdp::tools
