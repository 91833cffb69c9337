// What is kept of a model's folder beside weights, configuration and tokenizer.
#include "tools/model_folders/companion_files.h"

#include <set>
#include <string>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& item : fs::directory_iterator(folder)) out.insert(item.path().filename());
  return out;
}

TEST_CASE("companion files: licence, card and the code that auto_map names") {
  const test::TempFolder from;
  for (const char* name : {"LICENSE", "license.txt", "NOTICE", "USE_POLICY.md", "README.md",
                           "modeling_x.py", "optimizer.pt", "model.safetensors", "notes.txt"}) {
    from.write(name, name);
  }
  fs::create_symlink("../blobs/0", from / "LICENSE.lost");
  from.write("config.json", "{}");
  {
    const test::TempFolder to;
    to.write("README.md", "its own");
    copy_companion_files(from.path(), to.path());
    CHECK(names_in(to.path()) ==
          std::set<std::string>{"LICENSE", "license.txt", "NOTICE", "USE_POLICY.md", "README.md"});
    CHECK(read_file(to / "README.md") == "its own");
  }
  for (const char* file : {"config.json", "tokenizer_config.json"}) {
    const test::TempFolder to;
    from.write("config.json", "{}");
    from.write(file, R"({"auto_map": {"AutoConfig": "modeling_x.XConfig"}})");
    copy_companion_files(from.path(), to.path());
    CHECK(names_in(to.path()).contains("modeling_x.py"));
  }
  const test::TempFolder to;
  copy_companion_files("/no/such/folder", to.path());
  CHECK(names_in(to.path()).empty());
}

struct Folder {
  test::TempFolder folder;
  Folder() { write("config.json", {}); }
  // A small Llama's with these keys in place of its own.
  void write(const char* name, const std::map<std::string, Json>& keys) {
    Json json = Json::object();
    if (std::string(name) == "config.json") {
      json = Json::parse(models::config_json(test::tiny_llama(), "float32"));
      for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) json.erase(key);
    }
    for (const auto& [key, value] : keys) json[key] = value;
    folder.write(name, json.dump());
  }
  Json key(const char* file, const char* name) const {
    const Json json = read_json_file(folder / file);
    return json.contains(name) ? json.at(name) : Json("absent");
  }
  Json config(const char* name) const { return key("config.json", name); }
  Json generation(const char* name) const { return key("generation_config.json", name); }
};

TEST_CASE_FIXTURE(Folder, "aligned tokens: the tokenizer's end comes first, the others stay") {
  write("config.json", {{"eos_token_id", 0}});
  write("generation_config.json",
        {{"eos_token_id", 0}, {"top_p", 0.9}, {"_from_model_config", true}});
  CHECK(align_tokens(folder.path(), {.end = 1}) ==
        std::vector<std::string>{"eos_token_id: 1 (config.json 0, generation_config.json 0)"});
  CHECK(config("eos_token_id") == 1);
  CHECK(generation("eos_token_id") == Json::array({1, 0}));
  CHECK(generation("top_p") == 0.9);
  CHECK(generation("_from_model_config") == "absent");
  CHECK(align_tokens(folder.path(), {.end = 1}).empty());
  CHECK(align_tokens(folder.path(), {.end = 3}).size() == 1);
  CHECK(generation("eos_token_id") == Json::array({3, 1, 0}));
}

TEST_CASE_FIXTURE(Folder, "aligned tokens: an end that is there already") {
  write("config.json", {{"eos_token_id", Json::array({5, 2})}});
  write("generation_config.json", {{"eos_token_id", Json::array({5, 2})}});
  CHECK(align_tokens(folder.path(), {.end = 2}).size() == 1);
  CHECK(config("eos_token_id") == 2);
  CHECK(generation("eos_token_id") == Json::array({5, 2}));  // it is there
  write("generation_config.json", {{"top_k", 5}});           // none there
  CHECK(align_tokens(folder.path(), {.end = 2}).size() == 1);
  CHECK(generation("eos_token_id") == Json::array({2}));
}

TEST_CASE_FIXTURE(Folder, "aligned tokens: files with nothing to change keep their bytes") {
  const std::string config = R"({ "model_type": "llama", "vocab_size": 9,  "eos_token_id": 1,
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 8, "bos_token_id": null})";
  const std::string generation = R"({ "eos_token_id":   [1, 0]})";
  folder.write("config.json", config);
  folder.write("generation_config.json", generation);
  CHECK(align_tokens(folder.path(), {.begin = -1, .end = 1, .padding = -1}).empty());
  CHECK(align_tokens(folder.path(), {}).empty());                                    // says nothing
  CHECK(align_tokens(folder.path(), {.begin = 9, .end = 9, .padding = 9}).empty());  // no such row
  CHECK(read_file(folder / "config.json") == config);
  CHECK(read_file(folder / "generation_config.json") == generation);
  CHECK(token_differences(folder.path(), {.end = 2}).size() == 1);
  CHECK(read_file(folder / "config.json") == config);
}

TEST_CASE_FIXTURE(Folder, "aligned tokens: begin and padding, also that there is none") {
  write("config.json", {{"bos_token_id", 1}, {"eos_token_id", 2}});
  write("generation_config.json", {{"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", 4}});
  CHECK(align_tokens(folder.path(), {.begin = -1, .end = 2, .padding = 3}) ==
        std::vector<std::string>{"bos_token_id: null (config.json 1, generation_config.json 1)",
                                 "pad_token_id: 3 (config.json null, generation_config.json 4)"});
  CHECK(config("bos_token_id").is_null());
  CHECK(generation("bos_token_id") == "absent");
  CHECK(config("pad_token_id") == 3);
  CHECK(generation("pad_token_id") == 3);
  CHECK(generation("eos_token_id") == 2);
  // What a family takes without the key: Llama begins with 1 and ends with 2.
  write("config.json", {});
  CHECK(token_differences(folder.path(), {.begin = 1, .end = 2}) ==
        std::vector<std::string>{"bos_token_id: 1 (config.json 1)"});
}

TEST_CASE_FIXTURE(Folder, "aligned tokens: without a generation_config.json there stays none") {
  write("config.json", {{"eos_token_id", 0}});
  CHECK(align_tokens(folder.path(), {.end = 1}).size() == 1);
  CHECK(config("eos_token_id") == 1);
  CHECK_FALSE(std::filesystem::exists(folder / "generation_config.json"));
}

}  // namespace
}  // namespace fsdp::tools
