// A GPT-2 folder whose file has, beside the token table, a copy of it as the head: with one element
// changed, or as it should be.
#pragma once

#include <optional>
#include <vector>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace fsdp::test {

// Into `to`, which is made. `changed`: an element of the copy.
inline void write_with_tied_copy(const std::filesystem::path& to, std::optional<size_t> changed) {
  const std::filesystem::path from = fixture_path("models/gpt2");
  const auto source = SafetensorsFile::open(from / "model.safetensors");
  const std::string table = "transformer.wte.weight", head = "lm_head.weight";
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, entry] : source.entries()) {
    specs.push_back({name, DType::kF32, entry.shape});
    if (name == table) specs.push_back({head, DType::kF32, entry.shape});
  }
  std::filesystem::create_directory(to);
  std::filesystem::copy(from / "config.json", to / "config.json");
  SafetensorsWriter writer(to / "model.safetensors", specs);
  for (const SafetensorsSpec& spec : specs) {
    const SafetensorsEntry& entry = source.entry(spec.name == head ? table : spec.name);
    std::vector<float> values(static_cast<size_t>(entry.numel));
    source.read_elements(spec.name == head ? table : spec.name, 0, entry.numel, DType::kF32,
                         values.data());
    if (changed && spec.name == head) values.at(*changed) += 1;
    writer.write(spec.name, values.data(), values.size() * sizeof(float));
  }
  writer.finish();
}

}  // namespace fsdp::test
