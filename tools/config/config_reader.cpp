// Reading the configuration: a visitor that takes every declared field from a YAML map, and then
// complains about the keys that no field took. An override is a YAML map of its own, read the same
// way over what is there already. So are files that another one includes: they are read first.
// Contract: tools/config/config.h. The list of options: options.h. Layers: effects.h.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/similar_names.h"
#include "tools/config/config.h"
#include "tools/config/effects.h"
#include "tools/config/guests.h"
#include "tools/config/key_values.h"
#include "tools/config/options.h"

namespace fsdp::config {
namespace {

// Where a node came from.
struct Source {
  std::string name;        // file, or what was typed
  bool has_lines = false;  // of a file
  std::string raw;         // of an override: the text after '='

  std::string at(const YAML::Node& node) const {
    if (!has_lines || node.Mark().is_null()) return name;
    return fmt::format("{}:{}", name, node.Mark().line + 1);
  }
  // Hydra's sweep of an override: a.b=1,2
  bool has_several_values() const { return !has_lines && raw.find(',') != std::string::npos; }
};

constexpr const char* kSweepHint = "; a run has one value of a key: fsdp sweep takes several";

std::string text_of(const YAML::Node& node) {
  if (node.IsNull()) return "nothing";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a section";
  constexpr size_t kShown = 80;  // characters; a file that is no YAML is one large scalar
  const std::string& text = node.Scalar();
  size_t end = std::min(text.size(), kShown);
  while (end < text.size() && end > 0 && (text[end] & 0xc0) == 0x80) --end;  // within a character
  return "\"" + text.substr(0, end) + (end < text.size() ? "..." : "") + "\"";
}

// The dotted names of all fields, with their aliases, and sections.
class KeyList : public KeyedVisitor {
 public:
  void option(const char* key, Value, const char*, const OptionField& about) override {
    keys.push_back(prefix_ + key);
    for (const char* alias : about.aliases) keys.push_back(prefix_ + alias);
  }
  void section(const char* key, const char* help, const std::function<void(Visitor&)>& inside,
               OnResume on_resume) override {
    keys.push_back(prefix_ + key);
    KeyedVisitor::section(key, help, inside, on_resume);
  }
  std::vector<std::string> keys;
};

constexpr const char* kStarHint = "; quote a text that begins with a star: \"*\"";

// Digits that do not fit into 64 bits.
bool is_long_integer(const YAML::Node& node) {
  constexpr size_t kDigits = 19;
  if (!node.IsScalar()) return false;
  const std::string& text = node.Scalar();
  const size_t sign = text.starts_with('-') ? 1 : 0;
  return text.size() >= sign + kDigits && text.find_first_not_of("0123456789", sign) == text.npos;
}

bool is_quoted(const YAML::Node& node) { return node.Tag() == "!"; }

class Reader : public Visitor {
 public:
  Reader(const Source& source, const YAML::Node& map, std::string prefix, Places& places)
      : source_(source), prefix_(std::move(prefix)), places_(places) {
    for (const auto& item : map) {
      FSDP_CHECK(item.first.IsScalar(), "{}: expected a key, got {}", source_.at(item.first),
                 text_of(item.first));
      const auto [place, is_new] =
          items_.emplace(item.first.Scalar(), Item{item.first, item.second});
      FSDP_CHECK(is_new, "{}: key \"{}{}\" is given twice (first at {})", source_.at(item.first),
                 prefix_, item.first.Scalar(), source_.at(place->second.key));
    }
  }

  void option(const char* key, Value value, const char*, const OptionField& about) override {
    std::string taken_as;
    const auto take_as = [&](const std::string& name) {
      const auto found = items_.find(name);
      if (found == items_.end()) return;
      FSDP_CHECK(taken_as.empty(), "{}: key \"{}{}\" is given twice (as \"{}\" and \"{}\")",
                 source_.at(found->second.key), prefix_, key, taken_as, name);
      taken_as = name;
      found->second.taken = true;
      places_[prefix_ + key] = source_.at(found->second.key);
      FSDP_CHECK(read_node(found->second.value, value), "{}: {}{}: expected {}{}, got {}{}{}",
                 source_.at(found->second.key), prefix_, name, value.expected(),
                 is_long_integer(found->second.value) ? " of at most 64 bits" : "",
                 text_of(found->second.value), value.why_not(found->second.value.Scalar()),
                 source_.has_several_values() ? kSweepHint : "");
    };
    take_as(key);
    for (const char* alias : about.aliases) take_as(alias);
  }

  void section(const char* key, const char*, const std::function<void(Visitor&)>& inside,
               OnResume) override {
    const auto found = items_.find(key);
    if (found == items_.end()) return;
    found->second.taken = true;
    const YAML::Node& node = found->second.value;
    FSDP_CHECK(node.IsMap() || node.IsNull(), "{}: {}{}: expected a section, got {}",
               source_.at(found->second.key), prefix_, key, text_of(node));
    Reader inner(source_, node, prefix_ + key + ".", places_);
    inside(inner);
    inner.refuse_unknown_keys();
  }

  // Replaces what was there.
  void list(const char* key, Value, const char*, const OptionField&, Sections& sections) override {
    const auto found = items_.find(key);
    if (found == items_.end()) return;
    found->second.taken = true;
    const YAML::Node& node = found->second.value;
    places_[prefix_ + key] = source_.at(found->second.key);
    FSDP_CHECK(node.IsSequence() || node.IsNull(), "{}: {}{}: expected a list of sections, got {}",
               source_.at(found->second.key), prefix_, key, text_of(node));
    const Source inside{source_.name, source_.has_lines, ""};
    sections.clear();
    for (const YAML::Node& item : node) {
      FSDP_CHECK(item.IsMap(), "{}: {}{}: expected a list of sections, got one of {}",
                 source_.at(item), prefix_, key, text_of(item));
      Reader inner(inside, item, prefix_ + key + ".", places_);
      sections.add(inside.at(item), inner);
      inner.refuse_unknown_keys();
    }
  }

  void refuse_unknown_keys() const {
    for (const auto& [key, item] : items_) {
      if (item.taken) continue;
      KeyList known;
      TrainConfig defaults;
      visit(known, defaults);
      const std::string nearest = nearest_key(prefix_ + key, known.keys);
      if (nearest == prefix_ + key) {
        fail("{}: key \"{}\": sections are nested in the file, not joined by dots",
             source_.at(item.key), nearest);
      }
      fail("{}: unknown key \"{}{}\"; {}", source_.at(item.key), prefix_, key,
           hint(prefix_ + key, nearest, known.keys));
    }
  }

 private:
  struct Item {
    YAML::Node key;
    YAML::Node value;
    bool taken = false;
  };

  // The nearest key where it may be what was meant, else all keys of this section.
  std::string hint(const std::string& key, const std::string& nearest,
                   const std::vector<std::string>& known) const {
    const auto last_part = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
    if (resembles(key, nearest) || resembles(last_part(key), last_part(nearest))) {
      return fmt::format("the nearest known key is \"{}\"", nearest);
    }
    std::vector<std::string> here;
    for (const std::string& name : known) {
      const bool inside = name.starts_with(prefix_) && name.size() > prefix_.size();
      if (inside && name.find('.', prefix_.size()) == std::string::npos) {
        here.push_back(name.substr(prefix_.size()));
      }
    }
    return fmt::format("expected {}", fmt::join(here, ", "));
  }

  bool read_node(const YAML::Node& node, const Value& value) const {
    if (auto* const texts = value.as<std::vector<std::string>>()) {
      std::vector<std::string> items;
      if (node.IsMap()) return false;
      if (node.IsScalar()) items.push_back(node.Scalar());
      // What should have been a list but is no YAML; as one text it would be another pattern.
      const bool broken = node.IsScalar() && source_.raw == node.Scalar() &&
                          source_.raw.starts_with("[") && source_.raw.ends_with("]");
      FSDP_CHECK(!broken, "{}: malformed list{}", source_.name, kStarHint);
      for (const YAML::Node& item : node) {
        if (!item.IsScalar()) return false;
        items.push_back(item.Scalar());
      }
      *texts = items;
      return true;
    }
    if (auto* const text = value.as<std::string>()) {
      // An override is taken as typed, with its spaces and colons, unless it is quoted.
      const bool typed = !source_.raw.empty() && !is_quoted(node);
      if (!typed && !node.IsScalar() && !node.IsNull()) return false;
      *text = typed ? source_.raw : node.IsNull() ? "" : node.Scalar();
      return true;
    }
    if (node.IsNull() && value.is_optional()) return value.read("auto");
    if (!node.IsScalar()) return false;
    const bool number = value.as<int64_t>() || value.as<double>();
    if (number && is_quoted(node)) return false;
    return value.read(node.Scalar());
  }

  const Source& source_;
  std::string prefix_;
  Places& places_;
  std::map<std::string, Item> items_;
};

std::vector<YAML::Node> load(const std::string& text, const Source& source) {
  try {
    return YAML::LoadAll(text);
  } catch (const YAML::Exception& error) {
    const std::string hint = error.msg.find("alias") == std::string::npos ? "" : kStarHint;
    fail("{}:{}: malformed YAML: {}{}", source.name, error.mark.line + 1, error.msg, hint);
  }
}

void read_into(TrainConfig& config, const YAML::Node& node, const Source& source) {
  if (node.IsNull()) return;
  FSDP_CHECK(node.IsMap(), "{}: expected sections, got {}", source.at(node), text_of(node));
  Reader reader(source, node, "", config.places);
  visit(reader, config);
  reader.refuse_unknown_keys();
}

// The value of an override: YAML where it is a scalar, [a, b] or {a: b}; else the text itself.
YAML::Node override_value(const std::string& text) {
  try {
    const YAML::Node node = YAML::Load(text);
    if (node.IsMap() && text.find('{') != text.find_first_not_of(' ')) return YAML::Node(text);
    return node;
  } catch (const YAML::Exception&) {
    return YAML::Node(text);
  }
}

// For an error, which is one line.
std::string on_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool control = static_cast<uint8_t>(c) < 0x20 || c == 0x7f;
    out += control ? fmt::format("\\x{:02x}", static_cast<uint8_t>(c)) : std::string(1, c);
  }
  return out;
}

// "a.b=c" as the YAML map {a: {b: c}}.
void apply_override(TrainConfig& config, const Override& given) {
  const std::string& text = given.text;
  const size_t equals = text.find('=');
  FSDP_CHECK(equals != std::string::npos && equals > 0, "{}: expected key=value",
             on_one_line(given.typed));
  FSDP_CHECK(!text.starts_with('+'),
             "{}: no key can be added: fsdp train --help lists all of them, and a known one is set "
             "without the +",
             on_one_line(given.typed));
  const Source source{on_one_line(given.typed), false, text.substr(equals + 1)};
  YAML::Node node = override_value(source.raw);
  std::string path = text.substr(0, equals);
  while (!path.empty()) {
    const size_t dot = path.rfind('.');
    YAML::Node outer;
    outer[dot == std::string::npos ? path : path.substr(dot + 1)] = node;
    node.reset(outer);
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  read_into(config, node, source);
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
  std::map<std::string, std::string> usual;
  for (const auto& [key, value] : key_values({})) usual[key] = value;
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

// Runs `read` over what the configuration has so far. What it gives counts more: train.steps takes
// the place of train.epochs, and the other way round.
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
    const auto included = (open.back().parent_path() / name).lexically_normal();
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
