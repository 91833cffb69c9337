// JSON as Python's module json reads it, for the files beside a tokenizer.json: NaN and Infinity
// are numbers, and of a key that an object has twice the last value counts.
// Not here: files of this program's own and all others, which are strict (core/io/json.h).
#pragma once

#include <filesystem>

#include "core/io/json.h"

namespace fsdp::data {

// Keeps the order of the keys. NaN becomes 1, which is true, too; Infinity a very large number.
Json read_python_json(const std::filesystem::path& file);

}  // namespace fsdp::data
