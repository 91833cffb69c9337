// A text evaluated with a model's folder: against what transformers' logits in f64 say of the same
// tokens. More texts, adapters, and validation while training: tests/e2e/eval.sh.
#include "tools/evaluate/text_evaluation.h"

#include <cmath>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/verify/expected_results.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kVocabulary = 97;

// One character of three bytes for each token.
std::string character(int64_t token) {
  return {'\xe4', static_cast<char>(0xb8 + token / 64), static_cast<char>(0x80 + token % 64)};
}

// The fixture's model with a tokenizer of such characters, and the first row of the fixture's
// tokens as a text.
struct Case {
  Case() {
    const fs::path fixture = test::fixture_path("models/gpt2");
    fs::copy_file(fixture / "model.safetensors", folder / "model.safetensors");
    Json config = read_json_file(fixture / "config.json");
    config.erase("eos_token_id");  // else a document has one token more
    config["unheard_of"] = 1;
    folder.write("config.json", config.dump());
    Json vocabulary = Json::object();
    for (int i = 0; i < kVocabulary; ++i) vocabulary[character(i)] = i;
    const Json model = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}};
    const Json tokenizer = {
        {"version", "1.0"},        {"added_tokens", Json::array()}, {"normalizer", Json()},
        {"pre_tokenizer", Json()}, {"post_processor", Json()},      {"decoder", {{"type", "Fuse"}}},
        {"model", model}};
    folder.write("tokenizer.json", tokenizer.dump());
    // Else the class that the model_type names adds its own tokens.
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
    const ExpectedTensors expected = *read_expected_results(fixture, {}).pass->logits;
    length = expected.shape("input_ids")[1];
    std::vector<int32_t> ids = expected.read_integers("input_ids");
    ids.resize(static_cast<size_t>(length));  // the first row
    const std::vector<double> logits = expected.read("logits");
    for (size_t i = 0; i < ids.size(); ++i) {
      text += character(ids[i]);
      if (i + 1 == ids.size()) break;
      const double* const row = &logits[i * kVocabulary];
      double sum = 0;
      for (int v = 0; v < kVocabulary; ++v) sum += std::exp(row[v]);
      nats += std::log(sum) - row[ids[i + 1]];
    }
    folder.write("text.txt", text);
  }

  test::TempFolder folder;
  std::string text;
  int64_t length = 0;
  double nats = 0;  // of all tokens but the first
};

TEST_CASE("text evaluation: the loss that transformers' logits give, in every unit") {
  const Case expected;
  for (const int ranks : {1, 2}) {
    std::vector<std::string> notes;
    int64_t heard = 0;
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      RankContext rank{.world = world, .local_ranks = ranks};
      const TextFigures figures =
          evaluate_text({.model = {.folder = expected.folder.path().string(), .dtype = "f64"},
                         .files = {(expected.folder / "text.txt").string()},
                         .cache = (expected.folder / "cache").string()},
                        rank,
                        {.note = [&](const std::string& text) { notes.push_back(text); },
                         .progress = [&](int64_t, int64_t, const TextLoss&, double) { ++heard; }});
      const double loss = expected.nats / static_cast<double>(expected.length - 1);
      CHECK(figures.tokens == expected.length);
      CHECK(figures.loss.tokens == expected.length - 1);
      CHECK(figures.loss.mean() == doctest::Approx(loss).epsilon(1e-12));
      CHECK(figures.perplexity() == doctest::Approx(std::exp(loss)).epsilon(1e-12));
      CHECK(figures.bits_per_token() == doctest::Approx(loss / std::log(2)).epsilon(1e-12));
      if (world.rank() != 0) return;
      CHECK(figures.bytes == 3 * expected.length);
      CHECK(figures.bits_per_byte() == doctest::Approx(loss / std::log(2) / 3).epsilon(1e-12));
    });
    // By rank 0 alone: the key that nobody knows, and the weights' dtype.
    REQUIRE(notes.size() == 2);
    CHECK(test::contains(notes[0], "unheard_of: unknown key"));
    CHECK(notes[1] == "the weights are f32, the computation is f64: --dtype f32 takes less memory");
    CHECK(heard == 1);
  }
}

}  // namespace
}  // namespace fsdp::tools
