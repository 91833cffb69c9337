// Files of a model folder that no program computes with, and that belong to the model: its licence,
// its card, the code that its config.json names. Not here: the tokenizer's files
// (tools/data/tokenizer), weights and configuration (save_model.h).
#pragma once

#include <filesystem>

namespace fsdp::tools {

// LICENSE, NOTICE, USE_POLICY and the like, README.md and, where config.json or
// tokenizer_config.json has auto_map, the modules of Python. A file that is there already stays.
void copy_companion_files(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fsdp::tools
