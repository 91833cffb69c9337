// Finding the parts of a model and putting them together.
#include "tools/model_folders/load_model.h"

#include <algorithm>
#include <cstdio>

#include <fmt/ranges.h>

#include "core/io/config_keys.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "core/io/patience.h"
#include "core/io/safetensors.h"
#include "models/adapter_folder.h"
#include "models/hub_names.h"
#include "models/ignored_keys.h"
#include "models/names.h"
#include "tools/config/config.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/data/tokenizer/vocabulary_files.h"
#include "tools/model_folders/checkpoint_model.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

models::ModelConfig ModelSource::config() const {
  return models::read_config((folder / "config.json").string());
}

models::FillFunction ModelSource::values(models::CausalLM& model,
                                         models::ComparedPart compared) const {
  return values(model,
                models::from_folder(folder.string(), model.config(), model.parameters(), compared));
}

models::FillFunction ModelSource::values(models::CausalLM& model,
                                         const models::FillFunction& base) const {
  return adapter.empty() ? base : models::merged_with_adapter(base, adapter, model);
}

namespace {

struct EndTokens {
  std::vector<int64_t> ids;
  fs::path file;  // that says them
};

EndTokens said_end_tokens(const fs::path& folder) {
  const auto said_by = [](const Json& json, const fs::path& file) -> EndTokens {
    return {ConfigKeys(json, file.string()).tokens("eos_token_id"), file};
  };
  EndTokens out;
  const GenerationConfig own = read_generation_config(folder);
  if (own.is_there()) out = said_by(own.keys, own.file);
  const fs::path config = folder / "config.json";
  return out.ids.empty() && fs::exists(config) ? said_by(read_json_file(config), config) : out;
}

}  // namespace

GenerationConfig read_generation_config(const fs::path& folder) {
  GenerationConfig out = {.file = folder / "generation_config.json"};
  if (!is_named(out.file)) return out;
  try {
    Json keys = read_json_file(out.file);
    FSDP_CHECK(keys.is_object(), "{}: expected a JSON object", out.file.string());
    out.keys = std::move(keys);
  } catch (const SystemError&) {  // nobody knows what it says
    throw;
  } catch (const Error& error) {
    out.problem = error.what();
  }
  return out;
}

std::vector<int64_t> ModelSource::end_tokens() const {
  std::vector<int64_t> ids = said_end_tokens(folder).ids;
  // Neither says: transformers then takes what its class has.
  const bool said = read_generation_config(folder).is_there() ||
                    read_json_file(folder / "config.json").contains("eos_token_id");
  if (const int64_t id = said ? -1 : config().eos_token; id >= 0) ids.push_back(id);
  return ids;
}

std::string ModelSource::unused_choices() const {
  // Without the first, as in older folders, transformers takes the choices of the second.
  const GenerationConfig own = read_generation_config(folder);
  const char* const name = own.is_there() ? "generation_config.json" : "config.json";
  const Json json = own.is_there() ? own.keys : read_json_file(folder / name);
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    if (models::chooses_tokens(key, value)) keys.push_back(key);
  }
  return keys.empty() ? "" : fmt::format("{}: {}", name, fmt::join(keys, ", "));
}

std::vector<std::string> ModelSource::notes_on_generation() const {
  std::vector<std::string> notes;
  if (const std::string unused = unused_choices(); !unused.empty()) {
    notes.push_back(unused +
                    ": not used: options of this command say how tokens are chosen, and how many");
  }
  const GenerationConfig own = read_generation_config(folder);
  if (own.is_there()) {
    for (const std::string& key : models::unknown_generation_keys(own.file.string())) {
      notes.push_back(fmt::format("{}: {}: unknown key: not used", own.file.string(), key));
    }
  }
  const EndTokens end = said_end_tokens(folder);
  const int64_t vocabulary = config().vocabulary;
  for (const int64_t id : end.ids) {
    if (id >= 0 && id < vocabulary) continue;
    notes.push_back(
        fmt::format("{}: eos_token_id: {}: ends no text: the model's tokens are 0 to {}",
                    end.file.string(), id, vocabulary - 1));
  }
  return notes;
}

std::string ModelSource::default_tokenizer() const {
  const bool of_adapter = !adapter.empty() && !data::tokenizer_file_in(adapter).empty();
  return data::default_tokenizer((of_adapter ? adapter : folder).string());
}

void check_model_folder(const fs::path& folder) {
  if (fs::is_directory(folder)) return;
  const std::string name = folder.string();
  FSDP_CHECK(!models::is_preset(name),
             "{}: expected a model's folder: this is a preset, which has sizes but no weights; a "
             "folder holds config.json and model.safetensors",
             name);
  FSDP_CHECK(!fs::exists(folder), "{}: expected a model's folder, got a file", name);
  fail_missing(fmt::format("{}: no such folder{}", name, models::instead_of(name)));
}

ModelSource find_model(const fs::path& given, const fs::path& base) {
  const fs::path folder = model_in(given);
  if (!models::is_adapter_folder(folder)) {
    FSDP_CHECK(base.empty(), "{}: a base needs an adapter, and this folder has no {}",
               folder.string(), models::kAdapterConfigFile);
    check_model_folder(folder);
    return {folder, ""};
  }
  if (base.empty()) return {models::adapter_base(folder), folder};
  const fs::path model = snapshot_in(base);
  check_model_folder(model);
  return {model, folder};
}

int64_t most_tokens(const models::ModelConfig& model) {
  const bool bounded = model.positions == models::PositionKind::kLearned ||
                       model.positions == models::PositionKind::kRope;
  return bounded ? model.max_positions : INT64_MAX;
}

int64_t seen_tokens(const models::ModelConfig& model, int64_t prompt, int64_t tokens) {
  const int64_t room = std::max(model.max_positions, prompt);
  return std::min({most_tokens(model), room, prompt + tokens});
}

PlacedOptions options_for_use(const models::ModelConfig& model, int64_t max_length,
                              const ModelOptions& how, const RankContext& rank) {
  const DType dtype = parse_dtype(how.dtype);
  PlacedOptions out;
  out.model = model;
  out.max_length = max_length;
  const char* const otherwise = rank.world.size() == 1 ? "no_shard" : "full_shard";
  out.fsdp.strategy = config::parse_strategy(how.strategy.empty() ? otherwise : how.strategy);
  out.fsdp.param_dtype = dtype;
  out.fsdp.reduce_dtype = accumulation_dtype(dtype);
  out.backend = rank.backend;
  out.training = false;
  return out;
}

std::optional<DType> dtype_of_weights(const fs::path& folder) {
  const models::ModelConfig config = ModelSource{folder, ""}.config();
  const SafetensorsFolder weights = SafetensorsFolder::open(folder);
  std::map<DType, size_t> bytes;
  for (const auto& [name, tensor] : weights.tensors()) {
    if (!tensor.dtype || !is_floating(*tensor.dtype)) continue;  // a mask
    if (models::is_ignorable(config, name)) continue;
    bytes[*tensor.dtype] += static_cast<size_t>(tensor.numel) * size_of(*tensor.dtype);
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto most = std::max_element(bytes.begin(), bytes.end(), fewer);
  return most == bytes.end() ? std::nullopt : std::optional(most->first);
}

std::vector<std::string> warnings_about(const fs::path& folder) {
  std::vector<std::string> warnings = SafetensorsFolder::open(folder).warnings();
  const std::string config = (folder / "config.json").string();
  for (const std::string& key : models::unknown_config_keys(config)) {
    warnings.push_back(
        fmt::format("{}: {}: unknown key: nothing is computed from it", config, key));
  }
  const std::string broken = read_generation_config(folder).problem;
  if (!broken.empty()) warnings.push_back(broken + ": not used; config.json has what it would say");
  return warnings;
}

void load_model(Session& session, const ModelSource& source,
                const std::function<void(const std::string& text)>& note) {
  models::FillFunction fill;
  agree(session.world(), [&] {
    fill = source.values(session.model(), {session.world().rank(), session.world().size()});
    if (session.world().rank() != 0) return;
    for (const std::string& warning : warnings_about(source.folder)) note(warning);
    const std::optional<DType> stored = dtype_of_weights(source.folder);
    if (stored && size_of(*stored) < size_of(session.compute_dtype())) {
      note(fmt::format("the weights are {}, the computation is {}: --dtype {} takes less memory",
                       name_of(*stored), name_of(session.compute_dtype()), name_of(*stored)));
    }
  });
  session.initialise(fill);
}

}  // namespace fsdp::tools
