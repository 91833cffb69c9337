// A visitor that takes every declared field from a YAML map, and then complains about the keys that
// no field took. An override is a YAML map of its own, read the same way.
// Contract: tools/config/config_reader.h. The list of options: options.h.
#include "tools/config/config_reader.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/io/odd_bytes.h"
#include "core/text/similar_names.h"
#include "tools/config/options.h"

namespace fsdp::config {
namespace {

constexpr const char* kSweepHint = "; a run has one value of a key: fsdp sweep takes several";

}  // namespace

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

namespace {

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

// A scalar that is not quoted may be a number or a truth, as in YAML 1.2.
Json json_of_scalar(const std::string& text) {
  if (text == "True" || text == "TRUE") return true;
  if (text == "False" || text == "FALSE") return false;
  try {
    Json value = Json::parse(text);
    if (value.is_number() || value.is_boolean()) return value;
  } catch (const std::exception&) {  // a text
  }
  return text;
}

Json json_of(const YAML::Node& node) {
  Json out;
  if (node.IsMap()) {
    out = Json::object();
    for (const auto& item : node) {
      FSDP_CHECK(item.first.IsScalar(), "expected a name, got {}", text_of(item.first));
      const std::string& name = item.first.Scalar();
      FSDP_CHECK(!out.contains(name), "\"{}\" is given twice", name);
      out[name] = json_of(item.second);
    }
  } else if (node.IsSequence()) {
    out = Json::array();
    for (const YAML::Node& item : node) out.push_back(json_of(item));
  } else if (node.IsScalar()) {
    const bool is_text = is_quoted(node) || node.Tag() == "tag:yaml.org,2002:str";
    out = is_text ? Json(node.Scalar()) : json_of_scalar(node.Scalar());
  }
  return out;
}

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
      FSDP_CHECK(read_node_at(found->second, name, value), "{}: {}{}: expected {}{}, got {}{}{}",
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

  bool read_node_at(const Item& item, const std::string& name, const Value& value) const {
    if (!value.as<JsonMap>()) return read_node(item.value, value);
    try {
      return read_node(item.value, value);
    } catch (const Error& error) {
      fail("{}: {}{}: {}", source_.at(item.key), prefix_, name, error.what());
    }
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
    if (auto* const map = value.as<JsonMap>()) {
      if (node.IsMap()) map->value = json_of(node);
      if (node.IsNull()) map->value = Json::object();
      return node.IsMap() || node.IsNull();
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

}  // namespace

namespace {

// Keys have none.
void put_odd_bytes(YAML::Node node) {
  if (node.IsScalar()) node = without_stand_ins(escapes_as_written(node.Scalar()));
  for (auto item : node) put_odd_bytes(node.IsMap() ? item.second : YAML::Node(item));
}

std::vector<YAML::Node> documents_of(const std::string& text) {
  if (!may_have_odd_bytes(text)) return YAML::LoadAll(text);
  std::vector<YAML::Node> documents = YAML::LoadAll(escapes_as_stand_ins(text));
  for (const YAML::Node& document : documents) put_odd_bytes(document);
  return documents;
}

}  // namespace

std::vector<YAML::Node> load(const std::string& text, const Source& source) {
  try {
    return documents_of(text);
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

namespace {

// The value of an override: YAML where it is a scalar, [a, b] or {a: b}; else the text itself.
YAML::Node override_value(const std::string& text) {
  try {
    const std::vector<YAML::Node> documents = documents_of(text);
    const YAML::Node node = documents.empty() ? YAML::Node() : documents.front();
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

}  // namespace

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
  const Source source{on_one_line(given.typed), false, without_stand_ins(text.substr(equals + 1))};
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

}  // namespace fsdp::config
