// Where the files are that a configuration names: beside it or in the current folder, folders and
// patterns as the files in them. Not here: what is read from them (train_data.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/config/config.h"

namespace fsdp::tools {

// A relative path is looked for in the current folder, then beside the configuration file (in
// resolve_paths: beside the one that has the key, where it is included).
std::string resolve_path(const std::string& path, const std::filesystem::path& config_file);
// Puts the files that folders and patterns of data.train, data.sources and data.validation mean in
// their place, looked for as resolve_path does. What nothing is found for stays: TrainData refuses
// it. Returns notes on files of these folders that are left out.
std::vector<std::string> find_texts(config::TrainConfig& config,
                                    const std::filesystem::path& config_file);
// All paths of the configuration that are read, with find_texts(); model.path too where lora.path
// alone says it, and data.pad where the tokenizer's folder does.
std::vector<std::string> resolve_paths(config::TrainConfig& config,
                                       const std::filesystem::path& config_file);

}  // namespace fsdp::tools
