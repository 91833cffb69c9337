// Every key that transformers reads of a tokenizer_config.json (fixtures/tokenizers/classes.json),
// and every component of the tokenizers library, with every key that it writes
// (fixtures/tokenizers/keys.json, by tests/differential/tokenizer_keys.py): the component is
// refused by its name, or each of its keys is read or on the list of ignored ones. A key counts as
// read when a value that means nothing is refused with the key's name.
#include <set>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/tokenizer/hugging_face.h"
#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {

const Json& ignored_keys_json();

namespace {

const Json& fixture() {
  static const Json json = read_json_file(test::fixture_path("tokenizers/keys.json"));
  return json;
}

std::string error_of(const Json& file) {
  return test::error_of([&] { HuggingFaceTokenizer tokenizer(file.dump(), "t.json"); });
}

using Path = std::vector<std::string>;  // keys, and indices of arrays
int64_t walked = 0;
std::set<std::pair<std::string, std::string>> met;  // of the list: component, key

Json& at(Json& root, const Path& path) {
  Json* out = &root;
  for (const std::string& part : path) {
    out = out->is_array() ? &(*out)[std::stoul(part)] : &(*out)[part];
  }
  return *out;
}

// "" when the keys of the object at `place` are what they should be.
std::string complaint(const Json& file, const Path& place, const std::string& component) {
  Json whole = file;
  for (const auto& [key, value] : at(whole, place).items()) {
    ++walked;
    Json changed = file;
    at(changed, place)[key] = Json::parse("{\"absurd\": [1]}");
    const std::string error = error_of(changed), where = component + ", " + key + ": ";
    const bool named = test::contains(error, key);
    if (is_ignored(component, key)) met.emplace(component, key);
    if (is_ignored(component, key) && !error.empty()) return where + "ignored, but: " + error;
    if (!is_ignored(component, key) && !named) return where + "neither read nor ignored: " + error;
  }
  Json changed = file;
  at(changed, place)["new_key"] = 1;
  const std::string error = error_of(changed);
  return test::contains(error, "unknown key \"new_key\"") ? "" : component + ": " + error;
}

Json with(const std::string& stage, const Json& component) {
  Json file = fixture()["file"];
  file[stage] = component;
  return file;
}

TEST_CASE("ignored keys: every key of every component is read or listed") {
  CHECK(error_of(fixture()["file"]).empty());
  CHECK(complaint(fixture()["file"], {}, "file") == "");
  CHECK(complaint(fixture()["file"], {"added_tokens", "0"}, "added token") == "");
  int known = 0, refused = 0;
  for (const std::string stage :
       {"model", "normalizer", "pre_tokenizer", "post_processor", "decoder"}) {
    for (const Json& component : fixture()[stage]) {
      const auto type = component["type"].get<std::string>();
      const Json file = with(stage, component);
      const std::string error = error_of(file);
      CAPTURE(stage);
      CAPTURE(type);
      if (!error.empty()) {
        ++refused;
        const bool by_name = test::contains(error, stage + ".type: unknown ") &&
                             test::contains(error, "\"" + type + "\"; expected ");
        CHECK(by_name);
        continue;
      }
      ++known;
      CHECK(complaint(file, {stage}, stage + " " + type) == "");
    }
  }
  CHECK(known == 28);
  CHECK(refused == 17);
}

TEST_CASE("ignored keys: within a template, and of old versions") {
  const auto of_type = [](const std::string& stage, const std::string& type) {
    for (const Json& component : fixture()[stage]) {
      if (component["type"] == type) return component;
    }
    return Json();
  };
  const Json file = with("post_processor", of_type("post_processor", "TemplateProcessing"));
  CHECK(complaint(file, {"post_processor", "single", "0", "SpecialToken"}, "template piece") == "");
  CHECK(complaint(file, {"post_processor", "single", "1", "Sequence"}, "template piece") == "");
  CHECK(complaint(file, {"post_processor", "special_tokens", "<s>"}, "template token") == "");
  for (const std::string stage : {"pre_tokenizer", "decoder"}) {
    Json metaspace = of_type(stage, "Metaspace");
    metaspace["str_rep"] = "x";
    metaspace["add_prefix_space"] = true;
    CHECK(complaint(with(stage, metaspace), {stage}, stage + " Metaspace") == "");
  }
}

// A key is read when a value that means nothing changes what some class does, and a note or an
// error names the key.
TEST_CASE("ignored keys: every key of a tokenizer_config.json is read or listed") {
  const Json known = read_json_file(test::fixture_path("tokenizers/classes.json"));
  test::TempFolder folder;
  folder.write("tokenizer.json", fixture()["file"].dump());
  int read = 0;
  for (const Json& name : known["keys"]) {
    const std::string key = name.text();
    CAPTURE(key);
    bool named = false, said = false;
    for (const auto& [of, unused] : known["classes"].items()) {
      Json config = {{"tokenizer_class", of}, {"add_bos_token", false}};
      const auto outcome = [&] {
        folder.write("tokenizer_config.json", config.dump());
        std::string note;
        const std::string error =
            test::error_of([&] { note = HuggingFaceTokenizer(folder / "tokenizer.json").note(); });
        return error + note;
      };
      const std::string before = outcome();
      config[key] = Json::parse("{\"absurd\": [1]}");
      const std::string after = outcome();
      said |= before != after;
      named |= before != after && test::contains(after, key);
    }
    const bool ignored = is_ignored("tokenizer_config", key);
    if (ignored) met.emplace("tokenizer_config", key);
    CHECK(named != ignored);
    CHECK(said != ignored);
    read += named ? 1 : 0;
  }
  CHECK(read > 20);
}

TEST_CASE("ignored keys: all of the list were met, each with a reason") {
  for (const auto& [component, lists] : ignored_keys_json().items()) {
    for (const auto& [reason, keys] : lists.items()) {
      CHECK(reason.size() > 20);
      for (const Json& key : keys) {
        CAPTURE(component);
        CAPTURE(key);
        CHECK(met.contains({component, key.text()}));
      }
    }
  }
  CHECK(!is_ignored("file", "normalizer"));
  CHECK(!is_ignored("", "padding"));
  CHECK(walked > 60);
}

TEST_CASE("ignored keys: another version of the format is refused") {
  Json file = fixture()["file"];
  file["version"] = "2.0";
  CHECK(error_of(file) == "t.json: version: expected \"1.0\", got \"2.0\"");
}

}  // namespace
}  // namespace fsdp::data
