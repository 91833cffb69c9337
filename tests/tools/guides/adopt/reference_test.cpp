// What accelerate and transformers make of configurations, recorded from these libraries
// (tests/differential/foreign_configs.py), and whether every key of theirs is known.
// Requirements: S2.2, S3.1.
#include <map>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/adopted.h"
#include "tools/config/key_values.h"
#include "tools/guides/adopt/adoption.h"
#include "tools/guides/adopt/read_tree.h"

namespace fsdp::adopt {
namespace {

Json reference() { return read_json_file(test::adopt_fixture("reference.json")); }

// As the file of a configuration has it.
std::string value_text(const Json& value) {
  if (value.is_string()) return value.text();
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

// One configuration of ours, with the keys that wait as comments.
class Values {
 public:
  explicit Values(const test::Adopted& adopted) : adopted_(adopted) {
    for (const auto& [key, value] : config::key_values(adopted.config)) values_[key] = value;
  }

  void check(const std::string& key, const Json& expected) const {
    CAPTURE(key);
    const std::string text = value_text(expected);
    const std::string comment = "# " + key.substr(key.rfind('.') + 1) + ": " + text + " ";
    const std::string ours = values_.at(key) == "auto" && text == "1" ? "1" : values_.at(key);
    CAPTURE(ours);
    CAPTURE(text);
    CHECK((ours == text || ours == '"' + text + '"' || adopted_.says(comment)));
  }

 private:
  const test::Adopted& adopted_;
  std::map<std::string, std::string> values_;
};

void check_sharding(const test::Adopted& adopted, const Json& expected) {
  const Values values(adopted);
  for (const char* key : {"strategy", "wrap", "backward_prefetch", "forward_prefetch"}) {
    values.check(std::string("fsdp.") + key, expected[key]);
  }
  values.check("train.recompute.mode", expected["recompute"]);
  CHECK(adopted.config.fsdp.wrap_classes == expected["classes"].get<std::vector<std::string>>());
  CHECK(adopted.config.fsdp.min_num_params.value_or(0) ==
        (expected["min_num_params"].is_null() ? 0 : expected["min_num_params"].get<int64_t>()));
}

// What a wrong configuration ends with: every case of the recording has its mistake there.
std::string last_key(const std::string& text) {
  const std::string key = parse_tree(text, "a.yaml").back().key;
  return key.substr(key.rfind('.') + 1);
}

TEST_CASE("adopt: what accelerate and transformers themselves make of a configuration") {
  int errors = 0, sharded = 0;
  const AdoptOptions literal = {.literal = true, .ranks_per_node = 4};
  const Json all = reference();
  for (const Json& each : all["cases"]) {
    const std::string text = each["text"];
    CAPTURE(text);
    const test::TempFolder folder;
    const auto file = folder.write("a.yaml", text);
    const auto adopt = each["program"] == "hf" ? adopt_hugging_face : adopt_accelerate;
    if (each.contains("error")) {
      ++errors;
      CHECK(test::contains(test::error_of([&] { adopt(file, literal); }), last_key(text)));
      continue;
    }
    const test::Adopted adopted(adopt(file, literal));
    if (!each["sharding"].is_null()) {
      ++sharded;
      check_sharding(adopted, each["sharding"]);
    } else {
      CHECK(adopted.config.fsdp.options.strategy == comm::Strategy::kNoShard);
    }
    if (!each.contains("training")) continue;
    for (const auto& [key, value] : each["training"].items()) {
      if (!value.is_null()) Values(adopted).check(key, value);
    }
  }
  CHECK(errors == 9);
  CHECK(sharded == 33);
}

// full_shard that keeps what a forward has gathered is shard_grad_op.
void check_strategy(const test::Adopted& adopted, const std::string& expected) {
  const comm::FsdpOptions& options = adopted.config.fsdp.options;
  const bool shards = options.strategy == comm::Strategy::kFullShard ||
                      options.strategy == comm::Strategy::kShardGradOp;
  if (!shards || !options.reshard_after_forward)
    CHECK(choice_name(options.strategy) == expected);
  else
    CHECK(expected == (*options.reshard_after_forward ? "full_shard" : "shard_grad_op"));
}

// Files that the libraries themselves wrote, whole, and their own values.
TEST_CASE(
    "adopt: every key and value of TrainingArguments and SFTConfig as two versions write them") {
  const AdoptOptions literal = {.literal = true, .ranks_per_node = 4};
  int cases = 0;
  for (const char* name : {"written_4.57.json", "written_5.24.json"}) {
    const Json all = read_json_file(test::adopt_fixture(name));
    for (const auto& [key, value] : all["base"].items()) {
      CHECK_MESSAGE(knows_key(hugging_face_program(), key), key);
    }
    CHECK(all["base"].size() > 110);
    for (const Json& each : all["cases"]) {
      Json values = all["base"];
      Json expected = all["expected"];
      for (const auto& [key, value] : each["changes"].items()) values[key] = value;
      for (const auto& [key, value] : each["expected"].items()) expected[key] = value;
      const std::string changes = each["changes"].dump();
      CAPTURE(name);
      CAPTURE(changes);
      const test::TempFolder folder;
      const auto file = folder.write("args.json", values.dump({.indent = 1}));
      const test::Adopted adopted(adopt_hugging_face(file, literal));
      for (const std::string& line : warnings_of(adopted.text)) {
        CHECK_MESSAGE(!test::contains(line, "a key of a newer version"), line);
        if (each["changes"].empty()) FAIL_CHECK(line);
      }
      const Values ours(adopted);
      for (const auto& [key, value] : expected.items()) {
        if (value.is_null()) continue;
        if (key == "fsdp.strategy")
          check_strategy(adopted, value.text());
        else if (value.is_array())
          CHECK(adopted.config.fsdp.wrap_classes == value.get<std::vector<std::string>>());
        else
          ours.check(key, value);
      }
      ++cases;
    }
  }
  CHECK(cases == 42);
}

TEST_CASE("adopt: every key of accelerate and TrainingArguments is known") {
  const Json all = reference();
  const auto check = [&](const Program& program, const char* list, const std::string& section) {
    for (const Json& key : all[list])
      CHECK_MESSAGE(knows_key(program, section + key.text()), key.text());
  };
  check(accelerate_program(), "accelerate_keys", "");
  check(accelerate_program(), "fsdp_keys", "fsdp_config.");
  check(accelerate_program(), "deepspeed_keys", "deepspeed_config.");
  check(hugging_face_program(), "schedule_keys", "lr_scheduler_kwargs.");
  CHECK(all["deepspeed_keys"].size() > 10);
  CHECK(all["schedule_keys"].size() > 10);
  CHECK_FALSE(knows_key(accelerate_program(), "learning_rate"));
  CHECK_FALSE(knows_key(hugging_face_program(), "lr_scheduler_kwargs.min_lr_rat"));
}

}  // namespace
}  // namespace fsdp::adopt
