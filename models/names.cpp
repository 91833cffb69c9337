// Translation by the tables of the families, and the search for the names of a folder.
#include "models/names.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "models/family.h"
#include "models/lora.h"

namespace fsdp::models {
namespace {

std::string translate(std::span<const NamePair> pairs, std::string_view name) {
  for (const NamePair& pair : pairs) {
    if (name.starts_with(pair.ours)) {
      return std::string(pair.theirs) + std::string(name.substr(pair.ours.size()));
    }
  }
  fail("[names] {}: no Hugging Face name", name);
}

}  // namespace

std::string hugging_face_name(const ModelConfig& config, std::string_view parameter) {
  const NameTable& table = family_of(config.family).names;
  constexpr std::string_view kBlocks = "blocks.";
  if (!parameter.starts_with(kBlocks)) return translate(table.root, parameter);
  const size_t dot = parameter.find('.', kBlocks.size());
  const std::string_view index = parameter.substr(kBlocks.size(), dot - kBlocks.size());
  return fmt::format("{}{}{}.{}", table.prefix, table.block_prefix, index,
                     translate(table.block, parameter.substr(dot + 1)));
}

std::string_view base_prefix(const ModelConfig& config) {
  return family_of(config.family).names.prefix;
}

bool is_ignorable(const ModelConfig& config, std::string_view file_name) {
  const std::string name = fmt::format(".{}", file_name);  // endings begin with a dot
  if (name.ends_with(".causal_mask")) return true;         // of any family, in some versions
  for (const std::string_view ending : family_of(config.family).names.ignorable) {
    if (name.ends_with(ending)) return true;
  }
  return config.tied_head && file_name == hugging_face_name(config, "head.weight");
}

namespace {

// The name a parameter has in this folder: with or without the base prefix.
std::string name_in_folder(const SafetensorsFolder& folder, const ModelConfig& config,
                           const Parameter& parameter) {
  const std::string full = hugging_face_name(config, parameter.name());
  if (folder.contains(full)) return full;
  const std::string_view prefix = base_prefix(config);
  if (full.starts_with(prefix) && folder.contains(full.substr(prefix.size()))) {
    return full.substr(prefix.size());
  }
  // Of a tied pair, some programs keep the head.
  if (config.tied_head && parameter.name() == "embedding.tokens.weight") {
    const std::string head = hugging_face_name(config, "head.weight");
    if (folder.contains(head)) return head;
  }
  return {};
}

// Of files: they may have more dimensions than a Shape.
std::string text_of(const std::vector<int64_t>& extents) {
  return fmt::format("({})", fmt::join(extents, ", "));
}

// What is wrong with the tensor that is to be the parameter; "" when nothing is.
std::string misfit(const ModelConfig& config, const Parameter& parameter, const std::string& name,
                   const SafetensorsFolder::TensorInfo& tensor) {
  if (!tensor.dtype || !is_floating(*tensor.dtype)) {
    return fmt::format("\n  dtype: {}: expected F32, BF16, F16 or F64, got {}", name,
                       tensor.dtype_name);
  }
  const Shape& expected = parameter.shape();
  const std::vector<int64_t>& got = tensor.shape;
  if (got == expected.extents()) return "";
  const bool table =
      expected.rank() == 2 && got.size() == 2 && got[1] == expected[1] &&
      expected[0] == config.vocabulary &&
      (parameter.name() == "embedding.tokens.weight" || parameter.name() == "head.weight");
  return fmt::format("\n  shape: {}: expected {}, got {}{}", name, expected.str(), text_of(got),
                     table ? fmt::format(" (vocab_size is {} in config.json, {} in the weights)",
                                         expected[0], got[0])
                           : "");
}

// Of the part: as they lie in the file, or exactly converted where the dtypes differ.
bool equal_values(const SafetensorsFolder& folder, const std::string& one, const std::string& other,
                  ComparedPart part) {
  const SafetensorsFolder::TensorInfo &a = folder.tensor(one), &b = folder.tensor(other);
  if (a.shape != b.shape || !b.dtype || !is_floating(*b.dtype)) return false;
  const DType as = *a.dtype == *b.dtype ? *a.dtype : DType::kF64;
  constexpr int64_t kStretch = 1 << 16;
  std::vector<std::byte> left(kStretch * size_of(as)), right(left.size());
  const int64_t end = a.numel * (part.index + 1) / part.parts;
  for (int64_t first = a.numel * part.index / part.parts; first < end; first += kStretch) {
    const int64_t count = std::min(kStretch, end - first);
    folder.read_elements(one, first, count, as, left.data());
    folder.read_elements(other, first, count, as, right.data());
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(count) * size_of(as)) != 0) {
      return false;
    }
  }
  return true;
}

// A head of its own beside a table that is said to be tied: either the file or its config.json is
// wrong, and dropping the head would make another model of it.
std::string untied(const SafetensorsFolder& folder, const ModelConfig& config,
                   const std::string& table, ComparedPart part) {
  const std::string head = hugging_face_name(config, "head.weight");
  if (!config.tied_head || head == table || !folder.contains(head)) return "";
  if (equal_values(folder, table, head, part)) return "";
  return fmt::format("\n  tied: {}: expected absent or equal to {}, as tie_word_embeddings says",
                     head, table);
}

}  // namespace

std::map<std::string, std::string> names_in_folder(const SafetensorsFolder& folder,
                                                   const ModelConfig& config,
                                                   const std::vector<Parameter*>& parameters,
                                                   ComparedPart compared) {
  std::map<std::string, std::string> names;
  std::set<std::string> used;
  std::string problems, table;
  for (const Parameter* parameter : parameters) {
    if (is_lora(*parameter)) continue;  // of an adapter's folder
    const std::string name = name_in_folder(folder, config, *parameter);
    if (name.empty()) {
      problems += fmt::format("\n  missing: {} {}", hugging_face_name(config, parameter->name()),
                              parameter->shape().str());
      continue;
    }
    const std::string wrong = misfit(config, *parameter, name, folder.tensor(name));
    problems += wrong;
    if (wrong.empty() && parameter->name() == "embedding.tokens.weight") table = name;
    names.emplace(parameter->name(), name);
    used.insert(name);
  }
  for (const auto& [name, tensor] : folder.tensors()) {
    if (!used.count(name) && !is_ignorable(config, name)) {
      problems += fmt::format("\n  unexpected: {}", name);
    }
  }
  // Where there are other problems, which all ranks see, each compares all and so can say all.
  if (!table.empty()) {
    problems += untied(folder, config, table, problems.empty() ? compared : ComparedPart{});
  }
  if (!problems.empty()) {  // a tensor may be there and only the index lack it
    for (const std::string& odd : folder.warnings()) problems += "\n  note: " + odd;
  }
  FSDP_CHECK(problems.empty(), "{}: tensors do not fit the {} model of its config.json:{}",
             folder.path().string(), config.family, problems);
  return names;
}

}  // namespace fsdp::models
