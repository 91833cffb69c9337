// Contract: tools/data/tokenizer/tokenizer_class.h.
#include "tools/data/tokenizer/tokenizer_class.h"

#include <algorithm>

#include "core/io/hub_files.h"
#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {

const Json& tokenizer_classes_json();  // tokenizer_classes.json

namespace {

TokenizerClass class_of(const Json& json) {
  const auto text = [&](const char* key) {
    const Json* const found = json.find(key);
    return found ? std::string_view(found->text()) : std::string_view();
  };
  const auto flag = [&](const char* key) { return json.value(key, false); };
  return {.name = text("name"),
          .bos = text("bos"),
          .eos = text("eos"),
          .unk = text("unk"),
          .pad = text("pad"),
          .frames = flag("frames"),
          .adds_begin = flag("adds_begin"),
          .leaves_prefix = flag("leaves_prefix"),
          .prefixes_nested = flag("prefixes_nested"),
          .makes_special = flag("makes_special"),
          .infills = flag("infills"),
          .refuses_begin = flag("refuses_begin"),
          .keeps_no_padding = flag("keeps_no_padding"),
          .model_types = json.value("model_types", std::vector<std::string>())};
}

template <typename Has>
const TokenizerClass* find_class(const Has& has) {
  const std::span<const TokenizerClass> all = tokenizer_classes();
  const auto found = std::find_if(all.begin(), all.end(), has);
  return found == all.end() ? nullptr : &*found;
}

const TokenizerClass* by_model_type(std::string_view type) {
  const auto has = [&](const TokenizerClass& c) {
    return std::find(c.model_types.begin(), c.model_types.end(), type) != c.model_types.end();
  };
  return find_class(has);
}

ChosenClass by_name(const std::string& name, const std::filesystem::path& file) {
  if (const TokenizerClass* of = tokenizer_class(name)) return {of, "", name};
  return {&tokenizer_classes().front(),
          fmt::format("{} names the tokenizer_class \"{}\", whose rules are not known here: it is "
                      "read as PreTrainedTokenizerFast",
                      file.filename().string(), name),
          name};
}

}  // namespace

std::span<const TokenizerClass> tokenizer_classes() {
  static const std::vector<TokenizerClass> classes = [] {
    std::vector<TokenizerClass> all;
    for (const Json& each : tokenizer_classes_json()) all.push_back(class_of(each));
    return all;
  }();
  return classes;
}

const TokenizerClass* tokenizer_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  return find_class([&](const TokenizerClass& c) { return c.name == name; });
}

ChosenClass choose_class(const std::filesystem::path& folder, const Json& config) {
  const auto file = folder / "tokenizer_config.json", model_file = folder / "config.json";
  const JsonNode keys(config, file.string());
  if (config.is_object() && keys.has("tokenizer_class")) {
    return by_name(keys.text("tokenizer_class"), file);
  }
  if (is_named(model_file)) {
    const Json model = read_json_file(model_file);
    const JsonNode of_model(model, model_file.string());
    if (of_model.has("tokenizer_class")) {
      return by_name(of_model.text("tokenizer_class"), model_file);
    }
    if (of_model.has("model_type")) {
      const std::string type = of_model.text("model_type");
      if (const TokenizerClass* of = by_model_type(type)) return {of, ""};
      return {&tokenizer_classes().front(),
              fmt::format("{} has the model_type \"{}\", whose tokenizer class is not known here: "
                          "it is read as PreTrainedTokenizerFast",
                          model_file.filename().string(), type)};
    }
  }
  if (config.is_null() && !is_named(folder / "special_tokens_map.json") &&
      !is_named(folder / "added_tokens.json")) {
    return {};
  }
  return {&tokenizer_classes().front(),
          "no file beside it names a tokenizer_class or a model_type: it is read as "
          "PreTrainedTokenizerFast"};
}

}  // namespace fsdp::data
