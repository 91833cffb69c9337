// Contract: tools/guides/adopt/read_tree.h.
#include "tools/guides/adopt/read_tree.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/file_kind.h"
#include "core/io/json.h"

namespace fsdp::adopt {
namespace {

class Flattener {
 public:
  explicit Flattener(const std::string& source) : source_(source) {}

  // The names of items of a list have no number.
  void add_map(const YAML::Node& map, const std::string& prefix, const std::string& name_prefix) {
    std::set<std::string> seen;
    for (const auto& item : map) {
      FSDP_CHECK(item.first.IsScalar(), "{}: expected a key, got a list or a section",
                 at(item.first));
      const std::string key = prefix + item.first.Scalar();
      FSDP_CHECK(seen.insert(key).second, "{}: key \"{}\" is given twice", at(item.first), key);
      add(key, name_prefix + item.first.Scalar(), item.first, item.second);
    }
  }
  std::string at(const YAML::Node& node) const {
    return fmt::format("{}:{}", source_, node.Mark().line + 1);
  }

  std::vector<Given> values;

 private:
  void add(const std::string& key, const std::string& name, const YAML::Node& written,
           const YAML::Node& value) {
    if (value.IsNull()) return;
    if (value.IsMap() && value.size() > 0) return add_map(value, key + ".", name + ".");
    const bool sections = value.IsSequence() && value.size() > 0 &&
                          std::all_of(value.begin(), value.end(),
                                      [](const YAML::Node& item) { return item.IsMap(); });
    for (size_t i = 0; sections && i < value.size(); ++i) {
      add_map(value[i], fmt::format("{}[{}].", key, i), name + "[].");
    }
    if (sections) return;
    Given given = {
        .key = key, .name = name, .values = {}, .is_list = !value.IsScalar(), .place = at(written)};
    if (value.IsScalar()) given.values.push_back(value.Scalar());
    for (const YAML::Node& item : value) {
      given.values.push_back(item.IsScalar() ? item.Scalar() : "{...}");
    }
    values.push_back(given);
  }

  const std::string& source_;
};

}  // namespace

std::vector<Given> parse_tree(const std::string& text, const std::string& source) {
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail("{}:{}: malformed YAML or JSON: {}", source, error.mark.line + 1, error.msg);
  }
  FSDP_CHECK(root.IsMap(), "{}: expected keys and values in YAML or JSON, got {}", source,
             root.IsNull()       ? "an empty file"
             : root.IsSequence() ? "a list"
                                 : "a text");
  Flattener flattener(source);
  flattener.add_map(root, "", "");
  return flattener.values;
}

std::vector<Given> read_tree(const std::filesystem::path& file) {
  FSDP_CHECK(file.extension() != ".py",
             "{}: expected keys and values in YAML or JSON, got a Python program, which is not run "
             "here. Where it has made its TrainingArguments or SFTConfig, add: "
             "open(\"args.json\", \"w\").write(training_args.to_json_string()); then: "
             "fsdp adopt hf args.json",
             file.string());
  const std::string text = read_file(file);
  FSDP_CHECK(!is_web_page(text),
             "{}: expected keys and values in YAML or JSON, got a web page (HTML)", file.string());
  // YAML takes more than JSON: a comma behind the last value, or a word without quotation marks.
  if (lower(file.extension().string()) == ".json") parse_json(text, file.string());
  return parse_tree(text, file.string());
}

std::vector<Given> read_lenient_tree(const std::filesystem::path& file) {
  return parse_tree(read_file(file), file.string());
}

}  // namespace fsdp::adopt
