// Reading: every key is taken once, and what is left over is a mistake.
#include "tools/sweep/recipe.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/odd_bytes.h"
#include "core/text/similar_names.h"
#include "tools/config/key_values.h"
#include "tools/report/run_columns.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kRecipeKeys = {"question", "include",   "set",     "grid",
                                              "cases",    "ranks",     "repeat",  "columns",
                                              "baseline", "full_size", "evaluate"};
constexpr int kMostRanks = 65536, kMostRuns = 1000;

std::set<std::string> sections() {
  std::set<std::string> names;
  for (const auto& [key, value] : config::key_values(config::TrainConfig())) {
    names.insert(key.substr(0, key.find('.')));
  }
  return names;
}

// As --set takes it.
std::string text_of(const YAML::Node& node) {
  if (node.IsNull()) return "null";
  if (!node.IsScalar()) {
    YAML::Emitter text;
    text << YAML::Flow << node;
    return text.c_str();
  }
  const std::string text = without_stand_ins(node.Scalar());
  return node.Tag() == "!" ? Json(text).dump() : text;  // quoted
}

int integer_of(const std::string& text, int most, const std::string& place,
               const std::string& key) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  FSDP_CHECK(error == std::errc() && rest == end && value >= 1 && value <= most,
             "{}: {}: expected an integer from 1 to {}, got {}", place, key, most, text);
  return value;
}

class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file) {}

  Recipe read(const YAML::Node& root) {
    FSDP_CHECK(root.IsMap(), "{}: expected keys of a recipe, got none", file_.string());
    if (is_configuration(root)) return {.file = file_, .is_configuration = true};
    Recipe out = {.file = file_};
    for (const auto& [key, value] : members(root, "")) read_key(key, value, out);
    const auto given = [&](const char* key) { return static_cast<bool>(root[key]); };
    FSDP_CHECK(!out.question.empty(),
               "{}: question: expected what the experiment is for, in a sentence", file_.string());
    FSDP_CHECK(!given("grid") || !given("cases"),
               "{}: expected either grid or cases: a case of both would have no name",
               at(root["cases"]));
    FSDP_CHECK((!given("grid") || !out.grid.empty()) && (!given("cases") || !out.cases.empty()),
               "{}: expected at least one case, got an empty grid or empty cases", file_.string());
    return out;
  }

 private:
  struct Member {
    std::string key;
    YAML::Node value;
  };

  std::string at(const YAML::Node& node) const {
    return fmt::format("{}:{}", file_.string(), node.Mark().line + 1);
  }

  // Of a map, in their order.
  std::vector<Member> members(const YAML::Node& map, const std::string& what) {
    FSDP_CHECK(map.IsMap(), "{}: {}: expected keys, got {}", at(map), what, text_of(map));
    std::vector<Member> out;
    for (const auto& item : map) {
      FSDP_CHECK(item.first.IsScalar(), "{}: expected a key, got {}", at(item.first),
                 text_of(item.first));
      const std::string& key = item.first.Scalar();
      FSDP_CHECK(std::none_of(out.begin(), out.end(),
                              [&](const Member& before) { return before.key == key; }),
                 "{}: key \"{}\" is given twice", at(item.first), key);
      out.push_back({key, item.second});
      places_[key] = at(item.first);
    }
    return out;
  }

  bool is_configuration(const YAML::Node& root) {
    const std::set<std::string> names = sections();
    bool any = false;
    for (const auto& [key, value] : members(root, "")) {
      if (!names.contains(key) && key != "include") return false;
      any = any || names.contains(key);
    }
    return any;
  }

  void read_key(const std::string& key, const YAML::Node& value, Recipe& out) {
    if (key == "question") out.question = scalar(value, key);
    if (key == "include") out.include = texts(value, key);
    if (key == "set") add_keys(members(value, key), "", out.set);
    if (key == "grid") out.grid = grid(value);
    if (key == "cases") out.cases = cases(value);
    if (key == "ranks") out.ranks = integer_of(scalar(value, key), kMostRanks, at(value), key);
    if (key == "repeat") out.repeat = integer_of(scalar(value, key), kMostRuns, at(value), key);
    if (key == "columns") out.columns = columns(value);
    if (key == "baseline") out.baseline = scalar(value, key);
    if (key == "full_size") out.full_size = full_size(value);
    if (key == "evaluate") out.evaluate = texts(value, key);
    const bool known = std::find(kRecipeKeys.begin(), kRecipeKeys.end(), key) != kRecipeKeys.end();
    FSDP_CHECK(known, "{}: unknown key \"{}\"; {}", places_[key], key,
               sections().contains(key.substr(0, key.find('.')))
                   ? std::string("keys of the configuration stand below set")
                   : fmt::format("the nearest is \"{}\"", nearest_key(key, kRecipeKeys)));
  }

  std::string scalar(const YAML::Node& node, const std::string& key) const {
    FSDP_CHECK(node.IsScalar() && !node.Scalar().empty(), "{}: {}: expected a text, got {}",
               at(node), key, text_of(node));
    return node.Scalar();
  }

  std::vector<std::string> texts(const YAML::Node& node, const std::string& key) const {
    if (!node.IsSequence()) return {scalar(node, key)};
    std::vector<std::string> out;
    for (const YAML::Node& item : node) out.push_back(scalar(item, key));
    return out;
  }

  std::vector<std::string> columns(const YAML::Node& node) const {
    const std::vector<std::string> names = texts(node, "columns");
    for (const std::string& name : names) {
      try {
        run_column(name);
      } catch (const Error& error) {
        fail("{}: columns: {}", at(node), error.what());
      }
    }
    return names;
  }

  // Sections become dotted keys.
  void add_keys(const std::vector<Member>& members_of_map, const std::string& prefix,
                GivenKeys& out) {
    for (const auto& [name, value] : members_of_map) {
      const std::string key = prefix + name;
      if (value.IsMap()) {
        add_keys(members(value, key), key + ".", out);
        continue;
      }
      check_key(key, at(value));
      FSDP_CHECK(out.emplace(key, GivenKey{text_of(value), at(value)}).second,
                 "{}: key \"{}\" is given twice", at(value), key);
    }
  }

  static void check_key(const std::string& key, const std::string& place) {
    FSDP_CHECK(key != "runtime.run_dir", "{}: runtime.run_dir: each run has a directory of its own",
               place);
  }

  std::vector<GridKey> grid(const YAML::Node& node) {
    std::vector<GridKey> out;
    for (const auto& [key, values] : members(node, "grid")) {
      check_key(key, at(values));
      FSDP_CHECK(values.IsSequence() && values.size() > 0,
                 "{}: grid: {}: expected a list of values, got {}", at(values), key,
                 text_of(values));
      GridKey& added = out.emplace_back(GridKey{{key, {}}, at(values)});
      for (const YAML::Node& value : values) added.varied.values.push_back(text_of(value));
    }
    return out;
  }

  std::vector<NamedCase> cases(const YAML::Node& node) {
    std::vector<NamedCase> out;
    for (const auto& [name, keys] : members(node, "cases")) {
      NamedCase& added = out.emplace_back(NamedCase{.name = name, .place = places_[name]});
      const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("._-+=,").find(static_cast<char>(c)) != std::string_view::npos;
      });
      FSDP_CHECK(plain && !name.empty() && name.size() <= 200 && name[0] != '.',
                 "{}: cases: \"{}\": expected letters, digits and . _ - + = , because a folder has "
                 "this name",
                 added.place, name);
      if (keys.IsNull()) continue;
      std::vector<Member> all = members(keys, name);
      std::erase_if(all, [&](const Member& each) {
        if (each.key != "full_size") return false;
        added.full_size = full_size(each.value);
        return true;
      });
      add_keys(all, "", added.keys);
    }
    return out;
  }

  FullSize full_size(const YAML::Node& node) {
    FullSize out = {.place = at(node)};
    for (const auto& [key, value] : members(node, "full_size")) {
      FSDP_CHECK(key == "set" || key == "ranks" || key == "gpu",
                 "{}: full_size: unknown key \"{}\"; expected set, ranks, gpu", places_[key], key);
      if (key == "set") add_keys(members(value, key), "", out.set);
      if (key == "ranks") {
        out.ranks = integer_of(scalar(value, key), kMostRanks, at(value), "full_size: ranks");
      }
      if (key == "gpu") out.gpu = scalar(value, key);
    }
    return out;
  }

  fs::path file_;
  std::map<std::string, std::string> places_;  // of the keys that were read last
};

void add_typed(const std::string& text, Recipe& recipe) {
  const size_t equals = text.find('=');
  FSDP_CHECK(equals != std::string::npos && equals > 0, "--set {}: expected key=value", text);
  const std::string key = text.substr(0, equals), place = "--set " + text;
  FSDP_CHECK(key != "runtime.run_dir", "{}: each run has a directory of its own below --out",
             place);
  const bool of_recipe =
      key != "ranks" && std::find(kRecipeKeys.begin(), kRecipeKeys.end(), key) != kRecipeKeys.end();
  FSDP_CHECK(!of_recipe, "{}: {} is a key of the recipe, not of --set", place, key);
  const std::vector<std::string> values = split_at_commas(text.substr(equals + 1));
  const auto there = std::find_if(recipe.grid.begin(), recipe.grid.end(),
                                  [&](const GridKey& each) { return each.varied.key == key; });
  if (there != recipe.grid.end()) {
    *there = {{key, values}, place};
  } else if (values.size() == 1) {
    recipe.typed[key] = {values.front(), place};
  } else {
    FSDP_CHECK(recipe.cases.empty(),
               "{}: several values: the recipe has cases of its own, which take one value", place);
    recipe.grid.push_back({{key, values}, place});
  }
}

}  // namespace

Recipe parse_recipe(const std::string& yaml, const fs::path& file) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(escapes_as_stand_ins(yaml));
    FSDP_CHECK(documents.size() == 1, "{}: expected one YAML document, got {}", file.string(),
               documents.size());
    return Reader(file).read(documents.front());
  } catch (const YAML::Exception& error) {
    fail("{}:{}: malformed YAML: {}", file.string(), error.mark.line + 1, error.msg);
  }
}

Recipe read_recipe(const fs::path& file, const std::vector<std::string>& typed) {
  Recipe recipe = parse_recipe(read_file(file), file);
  for (const std::string& text : typed) add_typed(text, recipe);
  return recipe;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  return parts;
}

}  // namespace fsdp::tools
