// Contract: tools/sweep/sweep_cases.h.
#include "tools/sweep/sweep_cases.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/text/similar_names.h"
#include "tools/checkpoint/resume.h"
#include "tools/config/step_shape.h"
#include "tools/predict/memory_view.h"
#include "tools/train/config_to_session.h"
#include "tools/train/data_paths.h"
#include "tools/train/model_shape.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using Layers = std::vector<const GivenKeys*>;  // a later one counts more

// One of the two is the length of a run: the later one counts.
void replace_length(GivenKeys& keys, const std::string& key) {
  if (key == "train.steps") keys.erase("train.epochs");
  if (key == "train.epochs") keys.erase("train.steps");
}

GivenKeys merged(const Layers& layers) {
  GivenKeys out;
  for (const GivenKeys* layer : layers) {
    for (const auto& [key, given] : *layer) {
      replace_length(out, key);
      out[key] = given;
    }
  }
  return out;
}

config::TrainConfig configuration(const Recipe& recipe, const Layers& layers) {
  std::vector<config::Override> overrides;
  int layer = 0;  // a key of a sweep has one of its own
  for (const auto& [key, given] : merged(layers)) {
    if (key != "ranks") overrides.emplace_back(key + "=" + given.value, given.place, ++layer);
  }
  std::string base;
  if (recipe.is_configuration) base = read_file(recipe.file);
  if (!recipe.include.empty()) base = "include: " + Json(recipe.include).dump() + "\n";
  config::TrainConfig config = config::parse_config(base, recipe.file.string(), overrides);
  config.runtime.run_dir.clear();  // of an included file: each run has one of its own
  resolve_paths(config, recipe.file);
  return config;
}

int ranks_in(const Recipe& recipe, const Layers& layers) {
  const GivenKeys keys = merged(layers);
  const auto found = keys.find("ranks");
  if (found == keys.end()) return recipe.ranks;
  const auto& [value, place] = found->second;
  const bool digits = !value.empty() && value.size() <= 5 &&
                      value.find_first_not_of("0123456789") == std::string::npos;
  const int ranks = digits ? std::stoi(value) : 0;
  FSDP_CHECK(ranks >= 1 && ranks <= 65536, "{}: ranks: expected an integer from 1 to 65536, got {}",
             place, value);
  return ranks;
}

// What a run would refuse, as far as it is known without the text.
void check_case(const config::TrainConfig& config, int ranks) {
  const config::DataSection& data = config.data;
  FSDP_CHECK(data.synthetic() || !data.training_files().empty(),
             "data.train: expected at least one file");
  std::vector<std::string> files = data.training_files();
  if (!data.held_out()) files.insert(files.end(), data.validation.begin(), data.validation.end());
  for (const std::string& file : files) {
    FSDP_CHECK(data.is_tokens() || fs::exists(file), "data: {}: no such file", file);
  }
  config::step_shape(config, ranks);
  session_options(config, model_config(config, vocabulary_of(config)), ranks, {});
}

FullSizeCase full_size_case(const Recipe& recipe, const FullSize& own, const FullSize* common,
                            Layers layers, int ranks) {
  if (common) layers.push_back(&common->set);
  layers.push_back(&own.set);
  FullSizeCase out = {.config = configuration(recipe, layers),
                      .ranks = own.ranks > 0                 ? own.ranks
                               : common && common->ranks > 0 ? common->ranks
                                                             : ranks,
                      .gpu = own.gpu.empty() && common ? common->gpu : own.gpu};
  if (!out.gpu.empty()) gpu_memory(out.gpu, out.ranks);  // there is such a one
  config::step_shape(out.config, out.ranks);
  return out;
}

SweepCase case_of(const Recipe& recipe, const NamedCase& named) {
  const Layers layers = {&recipe.set, &named.keys, &recipe.typed};
  try {
    SweepCase out = {.name = named.name,
                     .ranks = ranks_in(recipe, layers),
                     .config = configuration(recipe, layers)};
    check_case(out.config, out.ranks);
    const FullSize* const common = recipe.full_size ? &*recipe.full_size : nullptr;
    if (named.full_size || common) {
      const FullSize own = named.full_size.value_or(FullSize());
      out.full_size = full_size_case(recipe, own, common, layers, out.ranks);
    }
    // A run that goes on may be started in another folder.
    out.config.places.clear();
    put_paths_in(out.config, fs::current_path());
    return out;
  } catch (const Error& error) {
    fail("{} (case {})", error.what(), named.name);
  }
}

std::vector<NamedCase> combined(const std::vector<GridKey>& grid, const std::string& file) {
  std::vector<VariedKey> varied;
  for (const GridKey& each : grid) varied.push_back(each.varied);
  std::vector<NamedCase> out;
  for (const auto& [name, values] : combinations_of(varied, file + ": grid")) {
    NamedCase& added = out.emplace_back(NamedCase{.name = name, .place = file});
    for (size_t i = 0; i < values.size(); ++i) {
      added.keys[varied[i].key] = {values[i], grid[i].place};
    }
  }
  return out;
}

std::vector<NamedCase> named_cases(const Recipe& recipe) {
  if (!recipe.grid.empty()) return combined(recipe.grid, recipe.file.string());
  if (!recipe.cases.empty()) return recipe.cases;
  return {{.name = recipe.name(), .place = recipe.file.string()}};
}

}  // namespace

std::vector<SweepCase> cases_of(const Recipe& recipe) {
  std::vector<SweepCase> out;
  std::vector<std::string> names;
  for (const NamedCase& named : named_cases(recipe)) {
    FSDP_CHECK(std::find(names.begin(), names.end(), named.name) == names.end(),
               "{}: two cases would have the name {}", named.place, named.name);
    names.push_back(named.name);
    out.push_back(case_of(recipe, named));
  }
  const bool known = recipe.baseline.empty() ||
                     std::find(names.begin(), names.end(), recipe.baseline) != names.end();
  FSDP_CHECK(known, "{}: baseline: there is no case {}; the nearest is {}", recipe.file.string(),
             recipe.baseline, nearest_key(recipe.baseline, names));
  return out;
}

}  // namespace fsdp::tools
