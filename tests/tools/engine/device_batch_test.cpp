// Copies of a batch: a rank without rows, padding, and what is refused. Losses of padded rows:
// session_test.cpp. Requirements: S1.3.
#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"
#include "tools/engine/session.h"

namespace fsdp {
namespace {

using Doubles = std::vector<double>;
constexpr int64_t kLongest = 4;

DeviceBatch on(cpu::CpuBackend& backend, const Batch& batch,
               const models::ModelConfig& model = test::tiny_gpt2()) {
  return upload(batch, model, kLongest, backend, DType::kF32);
}

TEST_CASE("device batch: what the batch has, as tensors") {
  cpu::CpuBackend backend;
  const DeviceBatch device = on(backend, {.rows = 2,
                                          .length = 3,
                                          .tokens = {1, 2, 3, 4, 5, 6},
                                          .targets = {-100, 3, -100, 5, 6, -100},
                                          .samples = {7, 9}});
  CHECK(device.tokens.shape() == Shape{2, 3});
  CHECK(device.tokens.to_doubles() == Doubles{1, 2, 3, 4, 5, 6});
  CHECK(device.targets.shape() == Shape{6});
  CHECK(device.targets.to_doubles() == Doubles{-100, 3, -100, 5, 6, -100});
  CHECK(device.samples.to_doubles() == Doubles{7, 9});
  CHECK_FALSE(device.key_bias.defined());
  const ForwardContext context = device.context({.step = 5}, true);
  CHECK(context.training);
  CHECK(context.dropout.step == 5);
  CHECK(context.samples == &device.samples);
  CHECK(context.key_bias == nullptr);
  CHECK(context.positions == nullptr);
}

TEST_CASE("device batch: a rank without rows computes one that counts nothing") {
  cpu::CpuBackend backend;
  const DeviceBatch device = on(backend, {.rows = 0, .length = 3});
  CHECK(device.tokens.to_doubles() == Doubles{0, 0, 0});
  CHECK(device.targets.to_doubles() == Doubles{-100, -100, -100});
  CHECK(device.samples.to_doubles() == Doubles{0});
}

TEST_CASE("device batch: a mask hides keys, positions are looked up") {
  cpu::CpuBackend backend;
  const DeviceBatch device = on(backend, {.rows = 1,
                                          .length = 4,
                                          .tokens = {1, 2, 3, 4},
                                          .mask = {1, 1, 1, 0},
                                          .positions = {2, 3, 4, 1}});
  CHECK(device.context({}, false).key_bias == &device.key_bias);
  CHECK(device.context({}, false).positions == &device.positions);
  CHECK(device.positions.to_doubles() == Doubles{2, 3, 4, 1});
  CHECK(device.targets.to_doubles() == Doubles{-100, -100, -100, -100});
}

TEST_CASE("device batch: documents that share a row, and the pairs of tokens that are left") {
  cpu::CpuBackend backend;
  const Batch batch = {.rows = 1,
                       .length = 4,
                       .tokens = {1, 2, 3, 4},
                       .positions = {0, 1, 2, 0},
                       .first_key = {0, 0, 0, 3}};
  const DeviceBatch device = on(backend, batch);
  const ForwardContext context = device.context({}, false);
  CHECK(context.first_key == &device.first_key);
  CHECK(device.first_key.to_doubles() == Doubles{0, 0, 0, 3});
  CHECK(context.pairs == 6 + 1);
  const DeviceBatch plain = on(backend, {.rows = 1, .length = 2, .tokens = {1, 2}});
  CHECK(plain.context({}, false).first_key == nullptr);
  CHECK(plain.context({}, false).pairs == 0);
  // A model that looks up no positions gets none.
  CHECK(on(backend, batch, test::tiny_llama()).context({}, false).positions != nullptr);
  for (const models::ModelConfig& model : {test::tiny_bloom(), test::tiny_workshop()}) {
    CHECK(on(backend, batch, model).context({}, false).positions == nullptr);
    CHECK(on(backend, batch, model).context({}, false).first_key != nullptr);
  }
}

TEST_CASE("device batch: lengths and tokens out of range are refused") {
  cpu::CpuBackend backend;
  const auto refusal = [&](const Batch& batch) {
    return test::error_of([&] { on(backend, batch); });
  };
  CHECK(refusal({.rows = 0, .length = 5}) == "[batch] length: expected within [1, 4], got 5");
  CHECK(refusal({.rows = 0, .length = 0}) == "[batch] length: expected within [1, 4], got 0");
  CHECK(test::contains(refusal({.rows = 1, .length = 1, .tokens = {-1}}),
                       "[batch] token: expected within the vocabulary of "));
}

}  // namespace
}  // namespace fsdp
