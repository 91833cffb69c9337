// Every key that transformers 4.57 and PEFT know of the files that this program reads, set to
// another value than the default: what is read changes, or the key is refused by its name, or it
// is on a list of models/ignored_keys.json (or of its family), and then it does change nothing.
// The keys, their defaults and other values: tests/differential/config_keys.py.
#include "models/ignored_keys.h"

#include <doctest/doctest.h>

#include "models/adapter_folder.h"
#include "models/family.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::models {
namespace {

const Json& fixture() {
  static const Json json = read_json_file(test::fixture_path("config_keys.json"));
  return json;
}

// All that was read: a family writes every key that it reads.
std::string as_read(const Json& json) {
  return config_json(parse_config(json.dump(), "F"), "float32");
}

// "" where exactly one of the three is true.
template <typename Read>
std::string complaint(const std::string& key, const Json& entry, const Json& base, bool listed,
                      Read read) {
  Json without = base;
  if (entry.contains("beside")) without.update(entry["beside"]);
  Json with = without;
  with[key] = entry["other"];
  const std::string before = read(without);
  bool changed = false;
  std::string refusal;
  try {
    changed = read(with) != before;
  } catch (const Error& error) {
    refusal = error.what();
  }
  if (!refusal.empty() && !test::contains(refusal, key)) return key + ": not named by: " + refusal;
  if (listed && !refusal.empty()) return key + ": is on a list, but refused: " + refusal;
  if (listed && changed) return key + ": is on a list, but changes what is read";
  if (!listed && refusal.empty() && !changed) return key + ": neither read, refused nor on a list";
  return "";
}

TEST_CASE("ignored keys: every key of config.json is read, refused by name or listed") {
  for (const Family* family : families()) {
    const std::string name(family->name);
    CAPTURE(name);
    if (name == "transformer_lm_gpt3" || name == "workshop_gpt") continue;  // not of transformers
    REQUIRE(fixture()["families"].contains(name));
    Json keys = fixture()["common"];
    keys.update(fixture()["families"][name]);
    CHECK(keys.size() > 80);
    for (const auto& [key, entry] : keys.items()) {
      const bool own = key == "bos_token_id" || key == "pad_token_id";  // as is generation's
      const bool listed =
          is_ignored_in_config(*family, key) || (!own && is_ignored_in_generation(key));
      const std::string wrong = complaint(key, entry, {{"model_type", name}}, listed, as_read);
      CHECK(wrong == "");
    }
  }
}

TEST_CASE("ignored keys: every key of adapter_config.json is read, refused by name or listed") {
  const Json base = {
      {"peft_type", "LORA"}, {"r", 8}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}};
  const ModelConfig llama = family_defaults("llama");
  CHECK(fixture()["adapter"].size() > 40);
  for (const auto& [key, entry] : fixture()["adapter"].items()) {
    const std::string wrong =
        complaint(key, entry, base, is_ignored_in_adapter(key), [&](const Json& json) {
          return adapter_config_json(llama, parse_adapter_config(json.dump(), "A"));
        });
    CHECK(wrong == "");
  }
}

TEST_CASE("ignored keys: every key of generation_config.json is read or listed") {
  CHECK(fixture()["generation"].size() > 60);
  for (const auto& [key, entry] : fixture()["generation"].items()) {
    CAPTURE(key);
    CHECK(is_ignored_in_generation(key) == (key != "eos_token_id"));
  }
}

TEST_CASE("ignored keys: no default of generation_config.json chooses tokens, other values do") {
  int choosing = 0;
  for (const auto& [key, entry] : fixture()["generation"].items()) {
    CAPTURE(key);
    CHECK(chooses_tokens(key, entry["default"]) == (key == "top_k"));  // of 50 tokens, in sampling
    choosing += chooses_tokens(key, entry["other"]) ? 1 : 0;
  }
  CHECK(choosing == 39);
  for (const char* key : {"guidance_scale", "num_beams", "repetition_penalty", "top_p"}) {
    CAPTURE(key);
    CHECK(!chooses_tokens(key, 1));
    CHECK(!chooses_tokens(key, 1.0));
    CHECK(chooses_tokens(key, 0));
  }
  for (const char* key : {"min_new_tokens", "min_p", "no_repeat_ngram_size", "top_k"}) {
    CAPTURE(key);
    CHECK(!chooses_tokens(key, 0));
    CHECK(chooses_tokens(key, 1));
  }
  for (const int token : {0, 1}) CHECK(chooses_tokens("forced_bos_token_id", token));
  CHECK(!chooses_tokens("suppress_tokens", Json::array()));
}

TEST_CASE("ignored keys: a key that is neither read, refused nor listed is found") {
  const Json entry = {{"other", 1}};
  CHECK(complaint("logit_scale", entry, {{"model_type", "llama"}}, false, as_read) ==
        "logit_scale: neither read, refused nor on a list");
  CHECK(complaint("hidden_size", {{"other", 64}}, {{"model_type", "llama"}}, true, as_read) ==
        "hidden_size: is on a list, but changes what is read");
  const test::TempFolder folder;
  const auto unknown = [&](const Json& json) {
    return unknown_config_keys(folder.write("config.json", json.dump()));
  };
  CHECK(unknown({{"model_type", "qwen2"}, {"logit_scale", 2}, {"top_k", 3}, {"use_cache", 1}}) ==
        std::vector<std::string>{"logit_scale"});
  const Json linear = {{"rope_type", "linear"}, {"factor", 2}, {"facter", 3}};
  CHECK(unknown({{"model_type", "llama"}, {"rope_scaling", linear}}) ==
        std::vector<std::string>{"rope_scaling.facter"});
  const Json unscaled = {{"rope_typ", "linear"}, {"factor", 2}};
  CHECK(unknown({{"model_type", "llama"}, {"rope_parameters", unscaled}}) ==
        std::vector<std::string>{"rope_parameters.factor", "rope_parameters.rope_typ"});
  const auto unknown_generation = [&](const Json& json) {
    return unknown_generation_keys(folder.write("generation_config.json", json.dump()));
  };
  CHECK(unknown_generation({{"eos_token_id", 1}, {"top_k", 3}, {"top_kk", 3}, {"use_cache", 1}}) ==
        std::vector<std::string>{"top_kk"});
  for (const auto& [name, entries] : fixture()["families"].items()) {
    CAPTURE(name);
    Json all = {{"model_type", name}};
    for (const Json& keys : {fixture()["common"], entries}) {
      for (const auto& [key, entry] : keys.items()) {
        // The families without this attribute multiply by it where a file has it: null is no
        // number.
        const bool no_number = key == "partial_rotary_factor" && entry["default"].is_null();
        if (!no_number) all[key] = entry["default"];
      }
    }
    CHECK(unknown(all) == std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace fsdp::models
