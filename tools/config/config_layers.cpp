// The layers of a configuration: files that include others, and overrides, which count most. A
// later layer takes the place of what a layer below it says, and may take its effect away. A layer
// is what was written together: a file, a file that it includes, the --set of one command, a key of
// a sweep's grid. Contract: tools/config/config.h. One layer: config_reader.h. What a key needs to
// have an effect: needs in *_fields.cpp.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/held_stream.h"
#include "tools/config/config.h"
#include "tools/config/config_reader.h"
#include "tools/config/guests.h"
#include "tools/config/key_values.h"
#include "tools/config/options.h"

namespace fsdp::config {
namespace {

// ---------------------------------------------------------------------------- effects

// A file's key has an effect where it has one by itself, or over the files below. What is typed on
// top of them must have one at once. A key of a sweep is there for some of the sweep's runs.
enum class LayerKind : uint8_t { kFile, kTyped, kSweep };

class Effects {
 public:
  // A layer was read. `all`: with the layers below it. `alone`: the same keys over the defaults.
  void add_layer(const TrainConfig& all, const TrainConfig& alone, LayerKind kind);
  // What was read meanwhile has given keys their effect, or taken it away: `by` is a file, or what
  // was typed.
  void look(const TrainConfig& all, const std::string& by);

  // Whether the key had an effect where it was written, or by a layer above.
  bool had_effect(const std::string& key) const { return !never_.contains(key); }
  // What took the effect away; "": a layer below the one of the key.
  std::string lost_by(const std::string& key) const;

 private:
  std::set<std::string> never_;  // had an effect
  std::map<std::string, std::string> lost_by_;
};

std::set<std::string> without_effect(const TrainConfig& config) {
  std::set<std::string> keys;
  for (const KeyWithoutEffect& each : keys_without_effect(config)) keys.insert(each.key);
  return keys;
}

void Effects::add_layer(const TrainConfig& all, const TrainConfig& alone, LayerKind kind) {
  const std::set<std::string> here = without_effect(all), by_itself = without_effect(alone);
  for (const auto& [key, place] : alone.places) {
    lost_by_.erase(key);
    const bool lost = here.contains(key);
    const bool had = !lost || kind == LayerKind::kSweep ||
                     (kind == LayerKind::kFile && !by_itself.contains(key));
    if (had) {
      never_.erase(key);
    } else {
      never_.insert(key);
    }
    if (lost) lost_by_[key] = "";
  }
}

void Effects::look(const TrainConfig& all, const std::string& by) {
  const std::set<std::string> lost = without_effect(all);
  const auto has_effect = [&](const auto& item) { return !lost.contains(item); };
  std::erase_if(never_, has_effect);
  std::erase_if(lost_by_, [&](const auto& item) { return has_effect(item.first); });
  for (const std::string& key : lost) lost_by_.try_emplace(key, by);
}

std::string Effects::lost_by(const std::string& key) const {
  const auto found = lost_by_.find(key);
  return found == lost_by_.end() ? "" : found->second;
}

// ---------------------------------------------------------------------------- layers

// The defaults by key, as the file has them.
std::map<std::string, std::string> usual_values() {
  std::map<std::string, std::string> out;
  for (const auto& [key, value] : key_values({})) out[key] = value;
  return out;
}

// The order of --set on the command line is known: the last one counts. That of flags is not.
void settle_twice(TrainConfig& config, const std::string& key, const std::string& first,
                  const std::string& last) {
  const bool ordered = first.starts_with("--set ") && last.starts_with("--set ");
  FSDP_CHECK(ordered, "{}: given twice, with different values: {} and {}", key, first, last);
  config.notes.push_back(fmt::format("{}: {} counts, and not {}", key, last, first));
}

// All of them. `applied` is called after each.
void apply_overrides(TrainConfig& config, const std::vector<Override>& overrides,
                     const std::function<void(const Override&)>& applied = {}) {
  Places typed;
  std::map<std::string, std::string> values;  // by key, of those that are given
  for (const Override& given : overrides) {
    config.places.clear();
    apply_override(config, given);
    for (const auto& [key, value] : key_values(config)) {
      if (!config.places.contains(key)) continue;
      const auto [place, is_new] = values.emplace(key, value);
      if (place->second == value) continue;
      settle_twice(config, key, typed[key], given.typed);
      place->second = value;
    }
    for (const auto& [key, place] : config.places) typed[key] = place;
    if (applied) applied(given);
  }
  config.places = std::move(typed);
}

// As a layer each, in their order.
void apply_layers(TrainConfig& config, const std::vector<Override>& overrides, Effects& effects) {
  std::map<int, std::vector<Override>> layers;
  for (const Override& each : overrides) layers[each.layer].push_back(each);
  apply_overrides(config, overrides,
                  [&](const Override& given) { effects.look(config, given.typed); });
  for (const auto& [number, layer] : layers) {
    TrainConfig alone;
    apply_overrides(alone, layer);
    effects.add_layer(config, alone, number == 0 ? LayerKind::kTyped : LayerKind::kSweep);
  }
}

// Keys that another layer has taken the effect of have their default; one note for each reason.
void leave_out_lost(TrainConfig& config, const Effects& effects) {
  std::set<std::string> done;  // one that is left out may be what another one needs
  const auto next = [&]() -> std::optional<KeyWithoutEffect> {
    for (const KeyWithoutEffect& each : keys_without_effect(config)) {
      if (effects.had_effect(each.key) && done.insert(each.key).second) return each;
    }
    return std::nullopt;
  };
  const std::map<std::string, std::string> usual = usual_values();
  std::map<std::string, std::vector<std::string>> left_out;  // by why
  while (const std::optional<KeyWithoutEffect> lost = next()) {
    const std::string by = effects.lost_by(lost->key);
    left_out[lost->reason + (by.empty() ? "" : fmt::format(" ({})", by))].push_back(
        fmt::format("{}: {} ({})", lost->key, lost->value, config.places.at(lost->key)));
    apply_override(config, lost->key + "=" + usual.at(lost->key));
    config.places.erase(lost->key);
    config.left_out.push_back(lost->key);
  }
  for (const auto& [why, keys] : left_out) {
    config.notes.push_back(
        fmt::format("no effect {}, and left out: {}", why, fmt::join(keys, ", ")));
  }
}

// The keys of sizes, which say which model it is where neither a folder nor a preset does.
std::vector<std::string> size_keys() {
  const TrainConfig c;
  const ModelSection& m = c.model;
  const auto keys = [&](const auto&... members) {
    return std::vector<std::string>{key_of(c, members)...};
  };
  return keys(m.model_type, m.vocab_size, m.hidden_size, m.layers, m.heads, m.kv_heads, m.head_dim,
              m.ffn, m.activation, m.rope_theta, m.tie_embeddings, m.norm_epsilon, m.max_positions);
}

// A model that this layer names takes the place of the one that layers below describe.
void replace_model(TrainConfig& config, Places& below) {
  const ModelSection& model = config.model;
  const std::string path_key = key_of(config, model.path),
                    preset_key = key_of(config, model.preset);
  const bool folder = !model.path.empty() && config.places.contains(path_key);
  const bool preset = !model.preset.empty() && config.places.contains(preset_key);
  if (!folder && !preset) return;
  const Places given = config.places;
  std::vector<std::string> replaced;
  const auto drop = [&](const std::string& key, const std::string& usual) {
    const auto old = below.find(key);
    if (old == below.end() || given.contains(key)) return;
    replaced.push_back(fmt::format("{} ({})", key, old->second));
    below.erase(old);
    apply_override(config, key + "=" + usual);
  };
  const auto usual = usual_values();
  for (const std::string& key : size_keys()) drop(key, usual.at(key));
  drop(folder ? preset_key : path_key, "");
  config.places = given;
  if (replaced.empty()) return;
  const std::string key = folder ? path_key : preset_key;
  config.notes.push_back(
      fmt::format("{} ({}) takes the place of {}", key, given.at(key), fmt::join(replaced, ", ")));
}

// Runs `read` over what the configuration has so far. What it gives counts more: train.steps takes
// the place of train.epochs, and the other way round; a model the place of another one.
void read_over(TrainConfig& config, const std::function<void()>& read) {
  Places below = std::move(config.places);
  config.places.clear();
  read();
  const auto given = [&](const auto& member) {
    return config.places.contains(key_of(config, member));
  };
  TrainSection& train = config.train;
  const bool steps = given(train.steps), epochs = given(train.epochs);
  const auto replace = [&](int64_t& value, int64_t with) {
    const auto old = below.find(key_of(config, value));
    if (value != with && old != below.end()) {
      config.length_note = fmt::format("{}: {} ({})", old->first, value, old->second);
    }
    value = with;
  };
  replace_model(config, below);
  if (steps && !epochs) replace(train.epochs, 0);
  if (epochs && train.epochs > 0 && !steps) {
    replace(train.steps, TrainSection().steps);
    below.erase(key_of(config, train.steps));
  }
  config.places.merge(below);
}

// What read_over() has replaced becomes a sentence, where the value that counts is given.
void note_on_length(TrainConfig& config) {
  if (config.length_note.empty()) return;
  const TrainSection& train = config.train;
  const int64_t& length = train.epochs > 0 ? train.epochs : train.steps;
  const auto place = config.places.find(key_of(config, length));
  config.length_note = place == config.places.end()
                           ? ""
                           : fmt::format("{}: {} ({}) counts instead of {}", place->first, length,
                                         place->second, config.length_note);
}

// One of the two is the length of the run.
void check_length(const TrainConfig& config) {
  const auto steps = config.places.find(key_of(config, config.train.steps));
  FSDP_CHECK(config.train.epochs == 0 || steps == config.places.end(),
             "train.epochs: expected nothing beside train.steps, got {} and {} steps ({})",
             config.train.epochs, config.train.steps, steps->second);
}

// The files that `include` names, and the key is taken out.
std::vector<std::string> take_includes(YAML::Node& root, const Source& source) {
  std::vector<std::string> files;
  const YAML::Node value = root.IsMap() ? std::as_const(root)["include"] : YAML::Node();
  if (!value.IsDefined() || value.IsNull()) return files;
  const std::string place = source.at(value);
  const auto add = [&](const YAML::Node& item) {
    FSDP_CHECK(item.IsScalar() && !item.Scalar().empty(),
               "{}: include: expected a file or a list of files, got {}", place, text_of(item));
    files.push_back(item.Scalar());
  };
  if (value.IsSequence()) {
    for (const YAML::Node& item : value) add(item);
  } else {
    add(value);
  }
  root.remove("include");
  return files;
}

// Runs `read` on the text of a file. Where it is another program's, the error says how it is taken
// over.
template <typename Read>
auto read_own(const Source& file, const std::string& text, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    for (const ForeignConfiguration* foreign : guests_of<ForeignConfiguration>()) {
      const std::string way = foreign->way_over(file.name, text);
      if (!way.empty()) fail("{}; {}", error.what(), way);
    }
    throw;
  }
}

// `open`: the files that include this one, and itself.
void read_file_into(TrainConfig& config, const std::string& yaml,
                    const std::vector<std::filesystem::path>& open, Effects& effects) {
  const Source file{open.back().string(), true, ""};
  std::vector<YAML::Node> documents = read_own(file, yaml, [&] { return load(yaml, file); });
  FSDP_CHECK(documents.size() <= 1, "{}:{}: expected one YAML document, got {}", file.name,
             documents[1].Mark().line + 1, documents.size());
  if (documents.empty()) return;
  for (const std::string& name : take_includes(documents[0], file)) {
    const bool stream = is_name_of_stream(open.back().string());
    const std::filesystem::path beside = stream ? "" : open.back().parent_path();
    const auto included = (beside / name).lexically_normal();
    FSDP_CHECK(std::find(open.begin(), open.end(), included) == open.end(),
               "{}: include: {} includes itself", file.name, included.string());
    FSDP_CHECK(std::filesystem::is_regular_file(included),
               "{}: include: {}: no such file (looked for beside {})", file.name, included.string(),
               file.name);
    auto inner = open;
    inner.push_back(included);
    read_file_into(config, read_file(included), inner, effects);
  }
  read_over(config, [&] {
    read_own(file, yaml, [&] { read_into(config, documents[0], file); });
    // A file with every key is one that a run wrote: its steps mean nothing beside epochs.
    const bool whole_file = config.places.size() >= key_values(config).size();
    if (whole_file && config.train.epochs > 0) {
      config.places.erase(key_of(config, config.train.steps));
    }
  });
  effects.look(config, file.name);
  TrainConfig alone;
  read_into(alone, documents[0], file);
  effects.add_layer(config, alone, LayerKind::kFile);
}

}  // namespace

bool says_which_model(const std::string& key) {
  const TrainConfig c;
  std::vector<std::string> keys = size_keys();
  keys.insert(keys.end(), {key_of(c, c.model.path), key_of(c, c.model.preset)});
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::string with_place(const TrainConfig& config, const std::string& message) {
  const auto place = config.places.find(message.substr(0, message.find(':')));
  return (place == config.places.end() ? "" : place->second + ": ") + message;
}

TrainConfig parse_keys(const std::vector<Override>& overrides) {
  TrainConfig config;
  apply_overrides(config, overrides);
  return config;
}

TrainConfig parse_config(const std::string& yaml, const std::string& source,
                         const std::vector<Override>& overrides) {
  TrainConfig config;
  Effects effects;
  read_file_into(config, yaml, {source}, effects);
  read_over(config, [&] { apply_layers(config, overrides, effects); });
  note_on_length(config);
  leave_out_lost(config, effects);
  try {
    check_length(config);
    check_config(config);
  } catch (const Error& error) {
    fail("{}", with_place(config, error.what()));
  }
  return config;
}

TrainConfig read_config(const std::filesystem::path& yaml_file,
                        const std::vector<Override>& overrides) {
  return parse_config(yaml_file.empty() ? "" : read_file(yaml_file), yaml_file.string(), overrides);
}

}  // namespace fsdp::config
