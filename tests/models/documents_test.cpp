// Documents that share a row: their loss and gradients are the sum over rows of their own, for
// every family, with windows, recompute, micro-steps and low-rank terms; none moves a bit of
// another. Rotary rows are made once a pass. Kernels: tests/kernels/attention_test.cpp. Sharded:
// tests/tools/engine/documents_test.cpp.
#include "tests/support/documents.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"
#include "tools/engine/session.h"

namespace fsdp::models {
namespace {

using test::kDocumentLength;
using Doubles = std::vector<double>;

constexpr double kScale = 0.05;

struct Rig {
  explicit Rig(const ModelConfig& model_config, bool lora = false)
      : config(model_config), tape(backend), model(config, backend, DType::kF64, kDocumentLength) {
    if (lora) add_lora(model, {.r = 3, .alpha = 5, .targets = {"all-linear"}});
    for (Parameter* p : model.parameters()) {
      const uint64_t seed = hash_name(p->name());
      p->set_value(test::random_tensor(backend, p->shape(), DType::kF64, seed, -0.6, 0.6));
    }
    model.set_tape(&tape);
  }
  DeviceBatch on_device(const Batch& batch) {
    return upload(batch, config, kDocumentLength, backend, DType::kF64);
  }
  // The loss, and the gradients of all that is trained, of the batches as micro-steps of one step.
  std::vector<Doubles> gradients(const std::vector<Batch>& batches) {
    std::vector<Doubles> out(1, Doubles{0});
    for (const Batch& batch : batches) {
      const DeviceBatch device = on_device(batch);
      const Tensor loss =
          model.loss(device.tokens, device.targets, device.context({}, false), kScale);
      out[0][0] += loss.item();
      tape.backward(loss);
    }
    for (Parameter* p : model.parameters()) {
      if (!p->trainable()) continue;
      out.push_back(p->gradient().to_doubles());
      p->clear_gradient();
    }
    return out;
  }
  Doubles logits(const Batch& batch) {
    const Tape::Pause pause(tape);
    const DeviceBatch device = on_device(batch);
    return model.logits(device.tokens, device.context({}, false)).to_doubles();
  }
  size_t activations() {
    return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
  }

  cpu::CpuBackend backend;
  const ModelConfig config;
  Tape tape;
  CausalLM model;
};

// Largest error of a tensor, relative to its largest value. A bias of keys alone has gradient 0.
double difference(const std::vector<Doubles>& actual, const std::vector<Doubles>& expected) {
  double worst = 0;
  for (size_t n = 0; n < expected.size(); ++n) {
    double error = 0, largest = 1e-3;
    for (size_t i = 0; i < expected[n].size(); ++i) {
      error = std::max(error, std::abs(actual[n][i] - expected[n][i]));
      largest = std::max(largest, std::abs(expected[n][i]));
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}

template <typename Check>
void for_each_model(const Check& check) {
  for (const ModelConfig& config : test::document_models()) {
    for (const bool lora : {false, true}) {
      CAPTURE(config.family);
      CAPTURE(config.window);
      CAPTURE(lora);
      Rig rig(config, lora);
      check(rig);
    }
  }
}

TEST_CASE("documents: packed, they have the loss and gradients of rows of their own") {
  for_each_model([](Rig& rig) {
    const InputRules rules = input_rules(rig.config);
    const LabelledRows rows = test::packed_rows(rig.config.vocabulary);
    const Batch packed = make_batch(rows, rules, 0);
    std::vector<Batch> alone;
    for (const test::Document& document : test::kDocuments) {
      alone.push_back(make_batch(test::row_of(rows, document), rules, 0));
    }
    const std::vector<Doubles> expected = rig.gradients(alone);
    CHECK(expected.size() > 5);
    const std::vector<Batch> micro_steps = {rows_of(packed, {.first = 0, .count = 3}),
                                            rows_of(packed, {.first = 3, .count = 2})};
    for (const RecomputeMode mode :
         {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
      rig.model.set_recompute(mode);
      const bool whole = mode != RecomputeMode::kSelective;
      CHECK(difference(rig.gradients(whole ? std::vector{packed} : micro_steps), expected) < 1e-12);
    }
    Batch together = packed;  // the test notices documents that see each other
    together.first_key.clear();
    CHECK(difference(rig.gradients({together}), expected) > 1e-3);
  });
}

TEST_CASE("documents: other tokens in one change no bit of the others") {
  for_each_model([](Rig& rig) {
    const InputRules rules = input_rules(rig.config);
    const auto width = static_cast<size_t>(rig.config.vocabulary);
    for (const test::Document& document : test::kDocuments) {
      LabelledRows rows = test::packed_rows(rig.config.vocabulary);
      const auto begin = static_cast<size_t>(document.row * kDocumentLength + document.begin);
      const size_t end = begin + static_cast<size_t>(document.length);
      for (size_t i = begin; i < end; ++i) rows.labels[i] = kIgnoreIndex;
      const RowRange its_row = {.first = document.row, .count = 1};
      const Batch before = rows_of(make_batch(rows, rules, 0), its_row);
      for (size_t i = begin; i < end; ++i) rows.tokens[i] = 2 + (rows.tokens[i] + 3) % 15;
      const Batch after = rows_of(make_batch(rows, rules, 0), its_row);
      CHECK((rig.gradients({after}) == rig.gradients({before})));
      const Doubles expected = rig.logits(before), actual = rig.logits(after);
      for (int64_t t = 0; t < kDocumentLength; ++t) {
        const size_t i = static_cast<size_t>(t) * width;
        const bool same = std::equal(&actual[i], &actual[i] + width, &expected[i]);
        CHECK(same == (t < document.begin || t >= document.begin + document.length));
      }
    }
  });
}

TEST_CASE("documents: rotary rows by token are made once a pass, in the memory of one layer") {
  const auto kept = [](int64_t layers, RecomputeMode mode, bool packed) {
    Rig rig(test::tiny_llama(layers));
    rig.model.set_recompute(mode);
    Batch batch = make_batch(test::packed_rows(rig.config.vocabulary), {}, 0);
    if (!packed) batch.first_key = batch.positions = {};
    const DeviceBatch device = rig.on_device(batch);
    const size_t before = rig.activations();
    const Tensor loss =
        rig.model.loss(device.tokens, device.targets, device.context({}, false), kScale);
    const size_t held = rig.activations() - before;
    rig.tape.backward(loss);
    return held;
  };
  // cos and sin of 5 rows of 12 tokens, 3 angles each.
  const size_t rows = 2 * rounded_bytes(5 * kDocumentLength * 3 * sizeof(double));
  for (const RecomputeMode mode :
       {RecomputeMode::kNone, RecomputeMode::kSelective, RecomputeMode::kFull}) {
    for (const int64_t layers : {1, 2, 5}) {
      CHECK(kept(layers, mode, true) - kept(layers, mode, false) == rows);
    }
  }
}

TEST_CASE("documents: with padding that is hidden, or a block without rotary rows: an error") {
  Rig rig(test::tiny_llama());
  const Batch batch = make_batch(test::packed_rows(rig.config.vocabulary), {}, 0);
  Batch masked = batch;
  masked.mask.assign(batch.tokens.size(), 1);
  CHECK(test::contains(test::error_of([&] { rig.logits(masked); }),
                       "[attention] first_key: expected no key_bias that hides keys"));
  const DeviceBatch device = rig.on_device(batch);
  Block block("blocks.0",
              BlockSpec{rig.config, 0, make_rope_tables(rig.config, rig.backend, DType::kF64, 12)});
  for (Parameter* p : block.parameters()) {
    p->set_value(Tensor::zeros(rig.backend, p->shape(), DType::kF64));
  }
  const Tensor x = Tensor::zeros(rig.backend, Shape{5, kDocumentLength, 13}, DType::kF64);
  CHECK(test::error_of([&] { block(x, device.context({}, false)); }) ==
        "[attention] positions: expected the rows of the rotary tables with them");
}

}  // namespace
}  // namespace fsdp::models
