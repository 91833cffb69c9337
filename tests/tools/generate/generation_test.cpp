// Whole generations of tiny models: one text whatever is beside it in the batch, with and without
// cache, on any number of ranks, sharded and not; stop tokens, and texts longer than the model.
// Tokens of another program: tests/e2e/verify_models.sh. Sampling: tests/models/sampling_test.cpp.
// Requirements: S1.7.
#include "tools/generate/generation.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

using Ids = std::vector<int32_t>;
using Texts = std::vector<Ids>;

const Texts kPrompts = {{3, 1, 4}, {15}, {9, 2, 6, 5, 3}, {5, 8}};

struct Setting {
  models::ModelConfig model = test::tiny_llama();
  int ranks = 1;
  comm::Strategy strategy = comm::Strategy::kFullShard;
  GenerationOptions options = {.tokens = 6};
  uint64_t first_sample = 0;
  GenerationStats* stats = nullptr;
};

PlacedOptions session_options(const Setting& setting) {
  PlacedOptions options = {{.model = setting.model, .max_length = setting.model.max_positions}};
  options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
  options.fsdp.strategy = setting.strategy;
  options.training = false;
  return options;
}

std::vector<Generated> generate(const Texts& prompts, const Setting& setting) {
  std::vector<std::vector<Generated>> of_rank(static_cast<size_t>(setting.ranks));
  comm::run_local_ranks(setting.ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, session_options(setting));
    session.initialise(models::from_scratch(5));
    Texts used(prompts.size());
    const auto rank = static_cast<size_t>(world.rank());
    of_rank[rank] = generate_tokens(
        session, setting.options, prompts,
        [&](size_t prompt, int32_t token) { used[prompt].push_back(token); }, setting.first_sample,
        rank == 0 ? setting.stats : nullptr);
    for (size_t i = 0; i < prompts.size(); ++i) CHECK(used[i] == of_rank[rank][i].ids);
  });
  for (const auto& texts : of_rank) {
    REQUIRE(texts.size() == prompts.size());
    for (size_t i = 0; i < texts.size(); ++i) CHECK(texts[i].ids == of_rank[0][i].ids);
  }
  return of_rank[0];
}

Texts ids_of(const std::vector<Generated>& texts) {
  Texts ids;
  for (const Generated& text : texts) ids.push_back(text.ids);
  return ids;
}

// Each prompt by itself, on one rank, computing everything anew for every token.
Texts alone(const Texts& prompts, Setting setting) {
  setting.ranks = 1;
  setting.options.cache = false;
  Texts out;
  for (size_t i = 0; i < prompts.size(); ++i) {
    setting.first_sample = i;
    out.push_back(generate({prompts[i]}, setting)[0].ids);
  }
  return out;
}

TEST_CASE("generation: neither batch, cache, ranks nor sharding change a text") {
  for (const auto& model :
       {test::tiny_gpt2(), test::tiny_llama(), test::tiny_bloom(), test::tiny_fairseq()}) {
    for (const double temperature : {0.0, 1.5}) {
      CAPTURE(model.family);
      CAPTURE(temperature);
      Setting setting = {.model = model};
      setting.options.sampling = {.temperature = temperature, .seed = 11};
      const Texts expected = alone(kPrompts, setting);
      for (const Ids& text : expected) CHECK(text.size() == 6);
      CHECK(expected[0] != expected[3]);
      for (const bool cache : {true, false}) {
        setting.options.cache = cache;
        for (const int ranks : {1, 3}) {
          setting.ranks = ranks;
          setting.strategy = comm::Strategy::kFullShard;
          CHECK(ids_of(generate(kPrompts, setting)) == expected);
        }
      }
      setting.ranks = 6;  // two without a prompt
      setting.strategy = comm::Strategy::kNoShard;
      CHECK(ids_of(generate(kPrompts, setting)) == expected);
    }
  }
}

TEST_CASE("generation: random numbers are of the prompt's number, not of its place in a batch") {
  Setting setting;
  setting.options.sampling = {.temperature = 3, .seed = 2};
  const Texts all = ids_of(generate(kPrompts, setting));
  setting.first_sample = 2;
  CHECK(ids_of(generate({kPrompts[2], kPrompts[3]}, setting)) == Texts{all[2], all[3]});
  CHECK(ids_of(generate({kPrompts[0]}, setting))[0] != all[0]);  // now prompt 2
}

TEST_CASE("generation: batch after batch, the texts are those of one batch") {
  Setting setting;
  setting.options.sampling = {.temperature = 3, .seed = 2};
  const Texts expected = ids_of(generate(kPrompts, setting));
  for (const size_t batch : {1, 3, 4, 9}) {
    CAPTURE(batch);
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      Session session = place_session(world, session_options(setting));
      session.initialise(models::from_scratch(5));
      Texts used(kPrompts.size());
      std::vector<size_t> done;
      const auto all = generate_in_batches(
          session, setting.options, kPrompts, batch,
          [&](size_t prompt, int32_t token) { used[prompt].push_back(token); },
          [&](size_t prompt, const Generated& text) {
            CHECK(text.ids == used[prompt]);
            // Its batch is done, the next one has not begun.
            const size_t after = (prompt / batch + 1) * batch;
            if (after < used.size()) CHECK(used[after].empty());
            done.push_back(prompt);
          });
      CHECK(ids_of(all) == expected);
      CHECK(done == std::vector<size_t>{0, 1, 2, 3});
    });
  }
}

TEST_CASE("generation: texts longer than the model see its last positions, also in a batch") {
  for (const auto& model : {test::tiny_gpt2(), test::tiny_bloom()}) {
    CAPTURE(model.family);
    Setting setting = {.model = model};
    setting.model.max_positions = 8;
    setting.options.tokens = 9;
    setting.options.sampling = {.temperature = 1, .seed = 4};
    const Texts expected = alone(kPrompts, setting);
    for (const int ranks : {1, 2}) {
      setting.ranks = ranks;
      CHECK(ids_of(generate(kPrompts, setting)) == expected);
    }
    // A prompt longer than the model has positions continues as its end would.
    Ids longer(20, 1);
    longer.insert(longer.end(), {7, 3, 1, 1, 5, 2, 2, 4});
    setting.options.sampling = {};
    CHECK(generate({longer}, setting)[0].ids ==
          generate({Ids(longer.end() - 8, longer.end())}, setting)[0].ids);
  }
}

// [Note: fairseq's padding]
TEST_CASE("generation: fairseq's padding token changes no text and is never chosen") {
  Setting setting = {.model = test::tiny_fairseq()};
  for (const bool cache : {true, false}) {
    setting.options.cache = cache;
    CHECK(generate({{3, 1, 4}}, setting)[0].ids == generate({{3, 4}}, setting)[0].ids);
    CHECK(generate({{1, 1, 9, 1, 2}}, setting)[0].ids == generate({{9, 2}}, setting)[0].ids);
  }
  setting.options = {.tokens = 10, .sampling = {.temperature = 1e9}, .vocabulary = 3};
  bool drawn[3] = {};
  for (const Ids& text : ids_of(generate(kPrompts, setting))) {
    for (const int32_t id : text) drawn[id] = true;
  }
  CHECK(drawn[0]);
  CHECK_FALSE(drawn[1]);
  CHECK(drawn[2]);
}

TEST_CASE("generation: any of several stop tokens ends its text and no other") {
  Setting setting = {.ranks = 2};
  setting.options.sampling = {.temperature = 2, .seed = 3};
  const Texts free = ids_of(generate(kPrompts, setting));
  setting.options.stop = {free[0][2], free[2][4]};
  const std::vector<Generated> stopped = generate(kPrompts, setting);
  for (size_t i = 0; i < free.size(); ++i) {
    const auto& stop = setting.options.stop;
    const auto end = std::find_first_of(free[i].begin(), free[i].end(), stop.begin(), stop.end());
    CHECK(stopped[i].ids == Ids(free[i].begin(), end));
    CHECK(stopped[i].stopped == (end != free[i].end()));
  }
  CHECK(stopped[0].stopped);
  CHECK(stopped[2].stopped);
}

TEST_CASE("generation: ids that only pad the table are never chosen") {
  Setting setting;
  setting.options = {.tokens = 11, .sampling = {.temperature = 9}, .vocabulary = 4};
  for (const Ids& text : ids_of(generate(kPrompts, setting))) {
    for (const int32_t id : text) CHECK(id < 4);
  }
}

TEST_CASE("generation: a stop token ends a text although the tokenizer does not name it") {
  Setting setting;
  setting.options = {.tokens = 11};
  const int32_t likeliest = generate(kPrompts, setting)[0].ids[0];
  REQUIRE(likeliest > 0);
  setting.options.vocabulary = likeliest;
  CHECK(!generate(kPrompts, setting)[0].stopped);
  for (const Ids& stop : {Ids{likeliest}, Ids{likeliest, 1 << 20}}) {  // also beyond the table
    setting.options.stop = stop;
    const Generated text = generate(kPrompts, setting)[0];
    CHECK(text.stopped);
    CHECK(text.ids.empty());
  }
}

TEST_CASE("generation: statistics, and prompts without tokens") {
  GenerationStats stats;
  Setting setting = {.stats = &stats};
  generate(kPrompts, setting);
  CHECK(stats.prompt_tokens == 3 + 1 + 5 + 2);
  CHECK(stats.new_tokens == 4 * 5);  // of each text all but the first
  const models::ModelConfig& m = setting.model;
  CHECK(stats.cache_bytes ==
        static_cast<size_t>(2 * m.layers * 4 * m.max_positions * m.kv_heads * m.head_dim * 8));
  CHECK(stats.prompt_seconds > 0);
  CHECK(stats.new_token_seconds > 0);
  CHECK(test::error_of([&] {
          generate({{1}, {}}, setting);
        }) == "[generate] prompt: expected at least one token");
}

}  // namespace
}  // namespace fsdp::tools
