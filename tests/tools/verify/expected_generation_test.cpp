// generation.json of a reference folder: what is read, and what is wrong with it by file and key.
#include <doctest/doctest.h>

#include "tests/support/reference_copy.h"
#include "tools/verify/expected_results.h"

namespace fsdp::tools {
namespace {

using test::contains;
using test::ReferenceCopy;
using Ids = std::vector<int32_t>;

TEST_CASE("generation: prompts and new tokens, judged in f32 and f64") {
  const auto folder = test::fixture_path("models/gpt2");
  const ExpectedResults f64 = read_expected_results(folder, {.dtype = DType::kF64});
  REQUIRE(f64.generation);
  CHECK(f64.generation->prompts == std::vector<Ids>{{37, 84, 3}, {86, 91, 95, 28, 12, 86, 90}});
  CHECK(f64.generation->batched[1] == Ids{30, 69, 88, 56, 56, 12, 56, 86, 63, 78, 63, 78});
  CHECK(f64.generation->alone[0] == Ids{70, 88, 42, 43, 43, 43, 44, 43, 88, 70, 78, 63});
  CHECK(f64.generation->limit == 0);
  CHECK(f64.longest_sequence() == 7 + 12);
  CHECK_FALSE(read_expected_results(folder, {.dtype = DType::kBF16}).generation->limit);
  const ReferenceCopy without("models/gpt2");
  std::filesystem::remove(without.path() / "generation.json");
  CHECK_FALSE(read_expected_results(without.path(), {}).generation);
}

TEST_CASE("generation: mistakes are named") {
  const auto error = [](const std::string& key, const Json& value) {
    const ReferenceCopy copy("models/gpt2");
    copy.set("generation.json", key.c_str(), value);
    return copy.error();
  };
  const auto check = [&](const std::string& key, const Json& value, const std::string& part) {
    const std::string message = error(key, value);
    CHECK_MESSAGE(contains(message, "generation.json: " + part), message);
  };
  check("/prompts/0/1", 97, "prompts[0][1]: expected a token of the vocabulary of 97, got 97");
  check("/prompts/0/1", 1.5, "prompts[0][1]: expected a token");
  check("/prompts/0", Json::array(), "prompts[0]: empty");
  check("/prompts", Json::array(), "prompts: empty");
  check("/prompts/2", Json{1, 2}, "batched.new_ids: expected 3 texts, one for each prompt, got 2");
  check("/batched", Json::object(), "batched.new_ids: missing");
  check("/batched/new_ids/1", Json{1, 2}, "batched.new_ids[1]: expected 12 tokens");
  check("/alone/1/new_ids", Json{1, 2}, "alone[1].new_ids: expected 12 tokens");
  check("/alone", Json::array(), "alone: expected 2 texts, one for each prompt, got 0");
}

}  // namespace
}  // namespace fsdp::tools
