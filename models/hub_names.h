// What an error says of a name that is no preset and no folder: the nearest preset, and how to
// fetch the model from Hugging Face's hub. Not here: presets and their names there (config.h).
#pragma once

#include <string>

namespace fsdp::models {

bool is_preset(const std::string& name);
// "the nearest preset is gpt2-355m (gpt2-medium on the hub)"; "": none is near.
std::string nearest_preset(const std::string& name);
// For the end of an error about a folder that is not there.
std::string instead_of(const std::string& folder);

}  // namespace fsdp::models
