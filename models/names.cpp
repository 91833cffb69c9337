// Translation by the tables of the families, and the search for the names of a folder.
#include "models/names.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "core/text/listed.h"
#include "core/text/shell_word.h"
#include "models/family.h"
#include "models/lora.h"

namespace fsdp::models {
namespace {

std::string translate(const Json& pairs, std::string_view name) {
  for (const auto& [ours, theirs] : pairs.items()) {
    if (name.starts_with(ours)) return theirs.text() + std::string(name.substr(ours.size()));
  }
  fail("[names] {}: no Hugging Face name", name);
}

}  // namespace

std::string hugging_face_name(const ModelConfig& config, std::string_view parameter) {
  const Json& table = names_of(family_of(config.family));
  constexpr std::string_view kBlocks = "blocks.";
  if (!parameter.starts_with(kBlocks)) return translate(table["root"], parameter);
  const size_t dot = parameter.find('.', kBlocks.size());
  const std::string_view index = parameter.substr(kBlocks.size(), dot - kBlocks.size());
  return fmt::format("{}{}{}.{}", table["prefix"].text(), table["block_prefix"].text(), index,
                     translate(table["block"], parameter.substr(dot + 1)));
}

std::string_view base_prefix(const ModelConfig& config) {
  return names_of(family_of(config.family))["prefix"].text();
}

bool is_ignorable(const ModelConfig& config, std::string_view file_name) {
  const std::string name = fmt::format(".{}", file_name);  // endings begin with a dot
  if (name.ends_with(".causal_mask")) return true;         // of any family, in some versions
  const Json* const endings = names_of(family_of(config.family)).find("ignorable");
  const auto has = [&](const Json& ending) { return name.ends_with(ending.text()); };
  if (endings && std::any_of(endings->begin(), endings->end(), has)) return true;
  return config.tied_head && file_name == hugging_face_name(config, "head.weight");
}

namespace {

// What wrappers of modules put into names, at their beginning or inside.
struct Wrapper {
  std::string_view part, by;
};
constexpr std::array kWrappers = {
    Wrapper{"module.", "DistributedDataParallel"}, Wrapper{"_orig_mod.", "torch.compile"},
    Wrapper{"_fsdp_wrapped_module.", "FSDP"},
    Wrapper{"_checkpoint_wrapped_module.", "activation checkpointing"}};

constexpr std::string_view kAdapterPrefix = "base_model.model.";  // of PEFT

// Where `part` begins in the name, or behind one of its dots; npos: nowhere.
size_t find_part(std::string_view name, std::string_view part) {
  size_t at = name.find(part);
  while (at != name.npos && at > 0 && name[at - 1] != '.') at = name.find(part, at + 1);
  return at;
}

std::string without(std::string name, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    for (size_t at; (at = find_part(name, part)) != name.npos;) name.erase(at, part.size());
  }
  return name;
}

// The tensors of a folder: the name that counts, and the name in the folder.
using Names = std::map<std::string, std::string>;

Names names_without(const SafetensorsFolder& folder, const std::vector<std::string>& stripped) {
  Names names;
  for (const auto& [name, tensor] : folder.tensors()) {
    const auto [place, added] = names.emplace(without(name, stripped), name);
    FSDP_CHECK(added, "{}: {} and {} become one name without {}", folder.path().string(),
               place->second, name, fmt::join(stripped, " and "));
  }
  return names;
}

// The name a parameter has among these: with or without the base prefix.
std::string name_among(const Names& names, const ModelConfig& config, std::string_view parameter) {
  const std::string full = hugging_face_name(config, parameter);
  if (names.contains(full)) return full;
  const std::string_view prefix = base_prefix(config);
  if (full.starts_with(prefix) && names.contains(full.substr(prefix.size()))) {
    return full.substr(prefix.size());
  }
  // Of a tied pair, some programs keep the head.
  if (config.tied_head && parameter == "embedding.tokens.weight") {
    const std::string head = hugging_face_name(config, "head.weight");
    if (names.contains(head)) return head;
  }
  return {};
}

// What all names begin with before a parameter's name; "": they are others, or begin as they
// should.
std::string common_prefix(const Names& names, const ModelConfig& config) {
  const std::string_view table = "embedding.tokens.weight";
  const std::string full = hugging_face_name(config, table);
  for (const auto& [name, stored] : names) {
    for (std::string_view known :
         {std::string_view(full), std::string_view(full).substr(base_prefix(config).size())}) {
      if (name == full || !name.ends_with(fmt::format(".{}", known))) continue;
      const std::string prefix = name.substr(0, name.size() - known.size());
      const auto has_it = [&](const auto& pair) { return pair.first.starts_with(prefix); };
      if (std::all_of(names.begin(), names.end(), has_it)) return prefix;
    }
  }
  return "";
}

// What has been put into names around those of a model.
struct Additions {
  std::vector<std::string> parts, by;
  std::ptrdiff_t names = 0;  // that have the part which most names have
};

Additions additions_to(const Names& names, const ModelConfig& config) {
  Additions out;
  const auto add = [&](std::string_view part, std::string_view who) {
    const auto having = std::count_if(names.begin(), names.end(), [&](const auto& pair) {
      return find_part(pair.first, part) != pair.first.npos;
    });
    if (having == 0) return;
    out.names = std::max(out.names, having);
    out.parts.emplace_back(part);
    out.by.emplace_back(who);
  };
  for (const Wrapper& wrapper : kWrappers) add(wrapper.part, wrapper.by);
  if (!out.parts.empty()) return out;
  const std::string prefix = common_prefix(names, config);
  if (!prefix.empty()) add(prefix, "another module around the model");
  return out;
}

std::string text_of(const ModelConfig& config, const Parameter& parameter) {
  return fmt::format("{} {}", hugging_face_name(config, parameter.name()), parameter.shape().str());
}

// What is said where something that is known has changed the names of the missing parameters, and
// which of them are missing even so; "": nothing has.
std::string explained(const SafetensorsFolder& folder, const ModelConfig& config,
                      const Names& names, const std::vector<const Parameter*>& missing) {
  const std::string where = folder.path().string();
  if (names.begin()->first.starts_with(kAdapterPrefix) &&
      names.rbegin()->first.starts_with(kAdapterPrefix)) {  // and so do all between them
    return fmt::format(
        "{}: names that begin with {} are those of an adapter of PEFT, not of a model: save it by "
        "PeftModel.save_pretrained (adapter_config.json, adapter_model.safetensors) for fsdp "
        "merge, or the whole model by merge_and_unload().save_pretrained",
        where, kAdapterPrefix);
  }
  const Additions added = additions_to(names, config);
  Names rest;
  for (const auto& [name, stored] : names) rest.emplace(without(name, added.parts), stored);
  std::vector<std::string> left, options;
  for (const Parameter* parameter : missing) {
    const bool found = !name_among(rest, config, parameter->name()).empty();
    if (!found) left.push_back(text_of(config, *parameter));
  }
  if (left.size() == missing.size()) return "";  // stripped names would not help
  for (const std::string& part : added.parts) options.push_back(shell_word(part));
  return fmt::format(
      "{}: {} of {} names of tensors have {} in them, of {}: fsdp convert "
      "--strip-prefix {} {} NEW writes a folder without{}",
      where, added.names, names.size(), fmt::join(added.parts, " and "),
      fmt::join(added.by, " and "), fmt::join(options, " --strip-prefix "), shell_word(where),
      listed(left, "missing even then"));
}

// Of files: they may have more dimensions than a Shape.
std::string text_of(const std::vector<int64_t>& extents) {
  return fmt::format("({})", fmt::join(extents, ", "));
}

// What is wrong with the tensor that is to be the parameter; "" when nothing is.
std::string misfit(const ModelConfig& config, const Parameter& parameter, const std::string& name,
                   const SafetensorsFolder::TensorInfo& tensor) {
  if (!tensor.dtype || !is_floating(*tensor.dtype)) {
    return fmt::format("dtype: {}: expected F32, BF16, F16 or F64, got {}", name,
                       tensor.dtype_name);
  }
  const Shape& expected = parameter.shape();
  const std::vector<int64_t>& got = tensor.shape;
  if (got == expected.extents()) return "";
  const bool table =
      expected.rank() == 2 && got.size() == 2 && got[1] == expected[1] &&
      expected[0] == config.vocabulary &&
      (parameter.name() == "embedding.tokens.weight" || parameter.name() == "head.weight");
  return fmt::format("shape: {}: expected {}, got {}{}", name, expected.str(), text_of(got),
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
std::string untied(const SafetensorsFolder& folder, const ModelConfig& config, const Names& names,
                   const std::string& table, ComparedPart part) {
  const auto head = names.find(hugging_face_name(config, "head.weight"));
  if (!config.tied_head || head == names.end() || head->second == table) return "";
  if (equal_values(folder, table, head->second, part)) return "";
  return fmt::format("\n  tied: {}: expected absent or equal to {}, as tie_word_embeddings says",
                     head->second, table);
}

}  // namespace

std::map<std::string, std::string> names_in_folder(const SafetensorsFolder& folder,
                                                   const ModelConfig& config,
                                                   const std::vector<Parameter*>& parameters,
                                                   ComparedPart compared,
                                                   const std::vector<std::string>& stripped) {
  const Names names = names_without(folder, stripped);
  std::map<std::string, std::string> out;
  std::set<std::string> used;
  std::vector<const Parameter*> absent;
  std::vector<std::string> missing, misfits, unexpected;
  std::string table;
  for (const Parameter* parameter : parameters) {
    if (is_lora(*parameter)) continue;  // of an adapter's folder
    const std::string name = name_among(names, config, parameter->name());
    if (name.empty()) {
      absent.push_back(parameter);
      missing.push_back(text_of(config, *parameter));
      continue;
    }
    const std::string& stored = names.at(name);
    const std::string wrong = misfit(config, *parameter, stored, folder.tensor(stored));
    if (!wrong.empty()) misfits.push_back(wrong);
    if (wrong.empty() && parameter->name() == "embedding.tokens.weight") table = stored;
    out.emplace(parameter->name(), stored);
    used.insert(name);
  }
  for (const auto& [name, stored] : names) {
    if (!used.count(name) && !is_ignorable(config, name)) unexpected.push_back(stored);
  }
  if (!missing.empty() && !names.empty()) {
    const std::string why = explained(folder, config, names, absent);
    FSDP_CHECK(why.empty(), "{}", why);
  }
  std::string problems =
      listed(missing, "missing") + listed(misfits) + listed(unexpected, "unexpected");
  // Where there are other problems, which all ranks see, each compares all and so can say all.
  if (!table.empty()) {
    problems += untied(folder, config, names, table, problems.empty() ? compared : ComparedPart{});
  }
  if (!problems.empty()) {  // a tensor may be there and only the index lack it
    for (const std::string& odd : folder.warnings()) problems += "\n  note: " + odd;
  }
  FSDP_CHECK(problems.empty(), "{}: tensors do not fit the {} model of its config.json:{}",
             folder.path().string(), config.family, problems);
  return out;
}

}  // namespace fsdp::models
