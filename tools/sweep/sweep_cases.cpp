// Contract: tools/sweep/sweep_cases.h.
#include "tools/sweep/sweep_cases.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/checkpoint/resume.h"
#include "tools/config/key_values.h"
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
using Configurations = std::vector<const config::TrainConfig*>;

bool names_model(const GivenKeys& layer) {
  const auto named = [&](const char* key) {
    const auto found = layer.find(key);
    return found != layer.end() && !found->second.value.empty() && found->second.value != "\"\"";
  };
  return named("model.path") || named("model.preset");
}

// Steps and epochs are both the length of a run: the one of a later layer counts. So it is with a
// folder, a preset and sizes, which say which model it is.
GivenKeys merged(const Layers& layers) {
  GivenKeys out;
  for (const GivenKeys* layer : layers) {
    if (names_model(*layer)) {
      std::erase_if(out, [](const auto& item) { return config::says_which_model(item.first); });
    }
    if (layer->contains("train.steps")) out.erase("train.epochs");
    if (layer->contains("train.epochs")) out.erase("train.steps");
    for (const auto& [key, given] : *layer) out[key] = given;
  }
  return out;
}

// `notes`: where to add what the configuration has left out, or found beside its files.
config::TrainConfig configuration(const Recipe& recipe, const Layers& layers,
                                  std::vector<std::string>& notes) {
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
  const auto add = [&](const std::string& note) {
    const bool said = std::find(notes.begin(), notes.end(), note) != notes.end();
    if (!note.empty() && !said) notes.push_back(note);
  };
  add(config.length_note);
  for (const std::string& note : config.notes) add(note);
  for (const std::string& note : resolve_paths(config, recipe.file, LookFirst::kBeside)) add(note);
  return config;
}

// Why a configuration has left the key out.
std::string why_left_out(const config::TrainConfig& config, const std::string& key) {
  for (const std::string& note : config.notes) {
    const size_t keys = note.find(", and left out: ");
    if (keys != std::string::npos && note.find(" " + key + ": ", keys) != std::string::npos) {
      return note.substr(0, keys);
    }
  }
  return "left out";
}

bool has_left_out(const config::TrainConfig& config, const std::string& key) {
  return std::find(config.left_out.begin(), config.left_out.end(), key) != config.left_out.end();
}

bool is_usual(const config::TrainConfig& config, const std::string& key) {
  const auto values = config::key_values(config), usual = config::key_values({});
  for (size_t i = 0; i < usual.size(); ++i) {
    if (usual[i].first == key) return values[i].second == usual[i].second;
  }
  return true;
}

// Refuses a key that one of the configurations has left out, and that does nothing in the others.
void check_effect(const std::string& given, const GivenKey& as, const Configurations& all) {
  if (given == "ranks") return;
  for (const auto& [key, place] : config::parse_keys({{given + "=" + as.value, as.place}}).places) {
    const auto without = std::find_if(all.begin(), all.end(),
                                      [&](const auto* each) { return has_left_out(*each, key); });
    if (without == all.end()) continue;
    const bool works = std::any_of(all.begin(), all.end(),
                                   [&](const auto* each) { return !is_usual(*each, key); });
    FSDP_CHECK(works, "{}: {}: {}{}", as.place, key, why_left_out(**without, key),
               all.size() > 1 ? ", in any case" : "");
  }
}

void check_effects(const GivenKeys& keys, const Configurations& all) {
  for (const auto& [key, given] : keys) check_effect(key, given, all);
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

// What a run or its evaluation would refuse, as far as it is known without the text.
void check_case(const config::TrainConfig& config, int ranks, bool evaluated) {
  const config::DataSection& data = config.data;
  FSDP_CHECK(
      config.train.save || !evaluated, "{}",
      config::with_place(config, "train.save: expected true, because evaluate needs the model"));
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
                            Layers layers, int ranks, std::vector<std::string>& notes) {
  if (common) layers.push_back(&common->set);
  layers.push_back(&own.set);
  std::vector<std::string> own_notes;
  FullSizeCase out = {.config = configuration(recipe, layers, own_notes),
                      .ranks = own.ranks > 0                 ? own.ranks
                               : common && common->ranks > 0 ? common->ranks
                                                             : ranks,
                      .gpu = own.gpu.empty() && common ? common->gpu : own.gpu};
  try {
    if (!out.gpu.empty()) gpu_memory(out.gpu, out.ranks);  // there is such a one
  } catch (const Error& error) {
    fail("{}: full_size: {}", own.gpu.empty() && common ? common->place : own.place, error.what());
  }
  take_published_sizes(out.config);  // of the model that is named
  config::step_shape(out.config, out.ranks);
  // Another model than the one that is trained is what full_size is for.
  std::erase_if(own_notes, [](const std::string& note) {
    return note.starts_with("model.") && note.find(" takes the place of ") != note.npos;
  });
  for (const std::string& note : own_notes) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
  }
  return out;
}

SweepCase case_of(const Recipe& recipe, const NamedCase& named) {
  const Layers layers = {&recipe.set, &named.keys, &recipe.typed};
  try {
    SweepCase out = {.name = named.name, .ranks = ranks_in(recipe, layers)};
    out.config = configuration(recipe, layers, out.notes);
    // What is typed may take the effect of a case's keys away: that is a note.
    const bool alone = recipe.typed.empty();
    if (alone && !recipe.cases.empty()) check_effects(named.keys, {&out.config});
    check_case(out.config, out.ranks, !recipe.evaluate.empty());
    const FullSize* const common = recipe.full_size ? &*recipe.full_size : nullptr;
    if (named.full_size || common) {
      const FullSize own = named.full_size.value_or(FullSize());
      out.full_size = full_size_case(recipe, own, common, layers, out.ranks, out.notes);
      if (alone) check_effects(own.set, {&out.full_size->config});
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

// Arguments of fsdp eval, as far as they are known without a model.
void check_evaluate(const Recipe& recipe) {
  const std::string place = recipe.file.string() + ": evaluate: ";
  std::string option;
  for (const std::string& word : recipe.evaluate) {
    const bool is_option = word.starts_with("--");
    FSDP_CHECK(
        (is_option || !option.empty()) && !(is_option && word.find(' ') != std::string::npos),
        "{}expected a list of options, such as [--task, squad, --data, dev.json], got {}", place,
        word);
    if (is_option) {
      option = word;
    } else if (option == "--task") {
      FSDP_CHECK(word == "squad", "{}--task: expected squad, got {}", place, word);
    } else if (option == "--data") {
      const bool pattern = word.find('*') != std::string::npos;
      FSDP_CHECK(pattern || fs::exists(resolve_path(word, recipe.file, LookFirst::kBeside)),
                 "{}--data: {}: no such file", place, word);
    }
  }
}

// Columns that no run of the sweep can have a value for.
void check_columns(const Recipe& recipe) {
  const bool full_size = recipe.full_size || std::any_of(recipe.cases.begin(), recipe.cases.end(),
                                                         [](const NamedCase& each) {
                                                           return each.full_size.has_value();
                                                         });
  for (const std::string& name : recipe.columns) {
    const bool of_evaluation =
        name == "exact_match" || name == "f1" || name.starts_with("/evaluation/");
    FSDP_CHECK(!of_evaluation || !recipe.evaluate.empty(),
               "{}: columns: {}: it is empty without evaluate", recipe.file.string(), name);
    FSDP_CHECK(!name.starts_with("full_size_") || full_size,
               "{}: columns: {}: it is empty without full_size", recipe.file.string(), name);
  }
}

// Of the keys that are there for several cases.
void check_common_effects(const Recipe& recipe, const std::vector<SweepCase>& cases) {
  Configurations all, full;
  for (const SweepCase& each : cases) {
    all.push_back(&each.config);
    if (each.full_size) full.push_back(&each.full_size->config);
  }
  if (recipe.typed.empty()) check_effects(recipe.set, all);
  for (const auto& [varied, place] : recipe.grid) {
    check_effect(varied.key, {varied.values.front(), place}, all);
  }
  check_effects(recipe.typed, all);
  if (recipe.full_size) check_effects(recipe.full_size->set, full);
}

}  // namespace

std::vector<SweepCase> cases_of(const Recipe& recipe) {
  check_evaluate(recipe);
  check_columns(recipe);
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
  FSDP_CHECK(known, "{}: baseline: there is no case {}; expected one of {}", recipe.file.string(),
             recipe.baseline, fmt::join(names, ", "));
  check_common_effects(recipe, out);
  return out;
}

}  // namespace fsdp::tools
