// Models with a key-value cache: the logits of tokens fed in pieces are those of the whole text, in
// every family; rows padded in front give what each gives alone.
#include <doctest/doctest.h>

#include "core/kv_cache.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/key_bias.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using Doubles = std::vector<double>;
using Ids = std::vector<int32_t>;

constexpr int64_t kCapacity = 12;

struct Tiny {
  explicit Tiny(const ModelConfig& c) : config(c), model(c, backend, DType::kF64, kCapacity) {
    for (Parameter* p : model.parameters()) {
      const uint64_t seed = hash_name(p->name());
      p->set_value(test::random_tensor(backend, p->shape(), DType::kF64, seed, -0.6, 0.6));
    }
  }
  KvCache cache(int64_t rows) {
    return KvCache(backend, {.layers = config.layers,
                             .rows = rows,
                             .capacity = kCapacity,
                             .kv_heads = config.kv_heads,
                             .head_dim = config.head_dim});
  }
  Tensor upload(int64_t rows, const Ids& values) {
    return Tensor::from_host(backend, Shape{rows, static_cast<int64_t>(values.size()) / rows},
                             values);
  }
  // (T, V) of one text.
  Doubles alone(const Ids& text) { return model.logits(upload(1, text), {}).to_doubles(); }

  ModelConfig config;
  cpu::CpuBackend backend;
  CausalLM model;
};

std::vector<ModelConfig> configs() {
  ModelConfig window = test::tiny_llama();
  window.window = 3;
  return {test::tiny_gpt2(), test::tiny_llama(), window, test::tiny_bloom(), test::tiny_neox()};
}

// The logits (V) of one token are those at `position` of the whole text.
void check_same(const Doubles& got, size_t row, const Doubles& whole, size_t position, int64_t V) {
  const auto width = static_cast<size_t>(V);
  for (size_t v = 0; v < width; ++v) {
    CHECK(got[row * width + v] == doctest::Approx(whole[position * width + v]).epsilon(1e-12));
  }
}

TEST_CASE("cache: a text fed in pieces has the logits of the whole text") {
  const Ids text = {3, 7, 1, 11, 0, 5, 5, 2, 9, 4, 8, 6};
  for (const ModelConfig& config : configs()) {
    CAPTURE(config.family);
    CAPTURE(config.window);
    Tiny tiny(config);
    const Doubles whole = tiny.alone(text);
    for (const std::vector<size_t>& pieces :
         {std::vector<size_t>{12}, {5, 1, 1, 1, 1, 1, 1, 1}, {1, 4, 3, 4}}) {
      KvCache cache = tiny.cache(1);
      size_t first = 0;
      for (const size_t count : pieces) {
        Ids piece(text.begin() + static_cast<long>(first),
                  text.begin() + static_cast<long>(first + count));
        Ids at(count);
        for (size_t i = 0; i < count; ++i) at[i] = static_cast<int32_t>(first + i);
        const Tensor positions = tiny.upload(1, at);
        const Doubles got =
            tiny.model.logits(tiny.upload(1, piece), {.positions = &positions, .cache = &cache})
                .to_doubles();
        for (size_t i = 0; i < count; ++i) {
          check_same(got, i, whole, first + i, config.vocabulary);
        }
        first += count;
        CHECK(cache.length() == static_cast<int64_t>(first));
      }
    }
  }
}

TEST_CASE("cache: rows padded in front have the logits of each text alone, at every step") {
  const std::vector<Ids> texts = {{3, 7, 1, 11, 0, 5, 5, 2}, {9, 4, 8, 6, 1}, {2, 2, 0, 7, 3, 1}};
  constexpr size_t kNew = 3;  // tokens at the end of each text, which are fed one by one
  for (const ModelConfig& config : configs()) {
    CAPTURE(config.family);
    CAPTURE(config.window);
    Tiny tiny(config);
    std::vector<Doubles> whole;
    Ids tokens, positions, mask;
    for (const Ids& text : texts) {
      whole.push_back(tiny.alone(text));
      const size_t pads = texts[0].size() - text.size();
      for (size_t column = 0; column < static_cast<size_t>(kCapacity); ++column) {
        mask.push_back(column >= pads);
        if (column >= texts[0].size() - kNew) continue;
        tokens.push_back(column < pads ? 0 : text[column - pads]);
        positions.push_back(column < pads ? 0 : static_cast<int32_t>(column - pads));
      }
    }
    const auto rows = static_cast<int64_t>(texts.size());
    const Tensor bias = make_key_bias(config, tiny.backend, DType::kF64, mask, rows);
    for (const bool with_cache : {true, false}) {
      KvCache cache = tiny.cache(rows);
      const auto last = [&](const Ids& ids, const Ids& at) {
        const Tensor where = tiny.upload(rows, at);
        return tiny.model
            .last_logits(
                tiny.upload(rows, ids),
                {.key_bias = &bias, .positions = &where, .cache = with_cache ? &cache : nullptr})
            .to_doubles();
      };
      Doubles got = last(tokens, positions);
      for (size_t step = 0;; ++step) {
        Ids next, at;
        for (size_t row = 0; row < texts.size(); ++row) {
          const size_t length = texts[row].size() - kNew + step;  // tokens seen
          check_same(got, row, whole[row], length - 1, config.vocabulary);
          if (step == kNew) continue;
          next.push_back(texts[row][length]);
          at.push_back(static_cast<int32_t>(length));
        }
        if (step == kNew || !with_cache) break;
        got = last(next, at);
      }
    }
  }
}

TEST_CASE("cache: without positions it is refused") {
  Tiny tiny(test::tiny_llama());
  KvCache cache = tiny.cache(1);
  CHECK(test::error_of([&] {
          tiny.model.logits(tiny.upload(1, {1, 2}), {.cache = &cache});
        }) == "[model] a cache: expected positions with it");
}

}  // namespace
}  // namespace fsdp::models
