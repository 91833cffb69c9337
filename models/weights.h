// Values of parameters: from a Hugging Face folder, from scratch, and back to a folder.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/autograd.h"
#include "models/config.h"
#include "models/names.h"

namespace fsdp::models {

// Writes elements [first, first + values.numel()) of a parameter into `values` (1D).
using FillFunction = std::function<void(const Parameter& parameter, int64_t first, Tensor& values)>;

// Initial values keyed by (seed, parameter name, element): equal for any sharding. `padding_row`:
// of the token table, and of a position table (fairseq), starts as zeros; -1: none.
FillFunction from_scratch(uint64_t seed, int64_t padding_row = -1);

// From model.safetensors (or its shards) in `folder`, reading only the ranges asked for. Checks all
// names and shapes of `model_parameters` at once and lists every missing, misshapen or unexpected
// tensor in one Error. Low-rank terms are left to whoever knows where they come from
// (adapter_folder.h).
FillFunction from_folder(const std::string& folder, const ModelConfig& config,
                         const std::vector<Parameter*>& model_parameters,
                         ComparedPart compared = {});
// The same where the names were looked up before (names_in_folder).
FillFunction from_folder(SafetensorsFolder folder, std::map<std::string, std::string> names);

}  // namespace fsdp::models
