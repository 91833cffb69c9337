// Losses of padded rows, from rows of a data set to the model, against transformers in float64
// (tests/fixtures/objectives.json): on both sides, with labels of the whole row and of the answer.
#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "models/weights.h"
#include "tests/support/places.h"
#include "tests/support/temp_folder.h"
#include "tools/data/loader.h"
#include "tools/engine/session.h"

namespace fsdp {
namespace {

struct Rows {
  std::vector<int32_t> tokens;
  std::vector<data::ExampleSpan> spans;
  explicit Rows(const Json& fixture, bool answered) {
    for (size_t i = 0; i < fixture["rows"].size(); ++i) {
      for (const Json& token : fixture["rows"][i]) tokens.push_back(token);
      const uint32_t answer = answered ? fixture["answers"][i].get<uint32_t>() : 0;
      spans.push_back({tokens.size(), answer, answer});
    }
  }
};

// How a batch is computed.
struct Way {
  int ranks = 1;
  int64_t rows_per_pass = 0;
  bool to_longest = true;
};

double loss_of(const Json& fixture, const Json& entry, const Way& way) {
  const bool sft = entry["objective"].text() == "sft", left = entry["side"].text() == "left";
  const Rows rows(fixture, sft);
  const auto folder = test::fixture_path("models") / entry["model"].text();
  double loss = 0;
  comm::run_local_ranks(way.ranks, [&](comm::Communicator& world) {
    SessionOptions options;
    options.model = models::read_config(folder / "config.json");
    options.max_length = fixture["length"];
    options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
    options.fsdp.fixed_order = way.rows_per_pass > 0;
    options.training = false;
    Session session(world, test::on_cpu(), options);
    session.initialise(models::from_folder(folder, options.model, session.parameters()));
    const data::RowLayout layout = {.objective = sft ? data::Objective::kSft : data::Objective::kLm,
                                    .side = left ? data::PadSide::kLeft : data::PadSide::kRight,
                                    .pad_token = fixture["pad_token"]};
    const data::Loader loader(
        {.sequences = data::example_sequences({.tokens = rows.tokens, .examples = rows.spans},
                                              options.max_length, layout),
         .sequence_length = options.max_length,
         .to_longest = way.to_longest,
         .batch = static_cast<int64_t>(rows.spans.size()),
         .shuffle = false,
         .rows_per_pass = way.rows_per_pass,
         .rank = world.rank(),
         .world = world.size()});
    const Batch batch = loader.batch(0, models::input_rules(options.model));
    CHECK(batch.global_label_tokens == entry["label_tokens"].get<int64_t>());
    CHECK(batch.mask.empty() != left);
    const double mine = session.evaluate(batch);
    if (world.rank() == 0) loss = mine;
  });
  return loss;
}

TEST_CASE("padded rows have the loss of transformers, on both sides and however they are dealt") {
  const Json fixture = read_json_file(test::fixture_path("objectives.json"))["losses"];
  CHECK(fixture["cases"].size() == 20);
  for (const Json& entry : fixture["cases"]) {
    CAPTURE(entry.dump());
    const bool bloom = entry["model"].text() == "bloom_padded";  // its rounded constant in GELU
    const double expected = entry["loss_f64"], limit = bloom ? 1e-9 : 1e-12;
    for (const Way& way : {Way{}, Way{.ranks = 3}, Way{.ranks = 2, .rows_per_pass = 1}}) {
      CHECK(std::abs(loss_of(fixture, entry, way) / expected - 1) < limit);
    }
  }
}

// The fixture says so of transformers, but for GPT-2's learned positions, which count padding.
TEST_CASE("the side of the padding decides nothing") {
  const Json fixture = read_json_file(test::fixture_path("objectives.json"))["losses"];
  const Json& cases = fixture["cases"];
  for (size_t i = 0; i + 1 < cases.size(); i += 2) {
    REQUIRE(cases[i]["side"].text() == "left");
    REQUIRE(cases[i + 1]["side"].text() == "right");
    const double left = loss_of(fixture, cases[i], {}), right = loss_of(fixture, cases[i + 1], {});
    CHECK((std::abs(left / right - 1) < 1e-12) == (cases[i]["model"].text() != "gpt2"));
  }
}

}  // namespace
}  // namespace fsdp
