// Very small models against transformers 4.57.1, its inner casts to float32 made casts to float64:
// every activation, plain and as a gate, GPT-2's scales of scores, layer types, types of rope
// scaling. The weights follow a formula; loss and norms of all gradients are those of
// tests/fixtures/small_models.json, which tests/differential/small_models.py writes.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/input_rules.h"
#include "models/names.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::models {
namespace {

using Doubles = std::vector<double>;

struct Results {
  double loss = 0;
  Doubles norms;  // of the parameters' gradients, by Hugging Face name
};

Results compute(const Json& json, double amplitude) {
  cpu::CpuBackend backend;
  const ModelConfig config = parse_config(json.dump(), "config.json");
  CausalLM model(config, backend, DType::kF64, 6);
  Tape tape(backend);
  model.set_tape(&tape);
  std::vector<Parameter*> parameters = model.parameters();
  std::sort(parameters.begin(), parameters.end(), [&](const auto* a, const auto* b) {
    return hugging_face_name(config, a->name()) < hugging_face_name(config, b->name());
  });
  for (size_t t = 0; t < parameters.size(); ++t) {
    Doubles values(static_cast<size_t>(parameters[t]->numel()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = amplitude * std::sin(1 + 0.7 * static_cast<double>(i) + 1.3 * double(t));
    }
    parameters[t]->set_value(Tensor::from_host(backend, parameters[t]->shape(), values));
  }
  const std::vector<int32_t> ids = {1, 2, 4, 2, 0, 3};
  const Tensor labels = Tensor::from_host(backend, Shape{6}, shifted_labels(ids, 1, 6));
  const Tensor sum = model.loss(Tensor::from_host(backend, Shape{1, 6}, ids), labels, {}, 1.0 / 5);
  Results out = {.loss = sum.item() / 5, .norms = {}};
  tape.backward(sum);
  for (const Parameter* p : parameters) {
    double squares = 0;
    for (const double x : p->gradient().to_doubles()) squares += x * x;
    out.norms.push_back(std::sqrt(squares));
  }
  return out;
}

TEST_CASE("small models: loss and gradients of every way of computing are transformers'") {
  const Json cases = read_json_file(test::fixture_path("small_models.json"));
  CHECK(cases.size() >= 100);
  for (const Json& expected : cases) {
    CAPTURE(expected["config"].dump());
    CAPTURE(expected["amplitude"].get<double>());
    const Results got = compute(expected["config"], expected["amplitude"]);
    CHECK(std::abs(got.loss - expected["loss"].get<double>()) < 1e-11);
    const auto norms = expected["norms"].get<Doubles>();
    REQUIRE(got.norms.size() == norms.size());
    const double largest = *std::max_element(norms.begin(), norms.end());
    for (size_t t = 0; t < norms.size(); ++t) {
      CAPTURE(t);
      CHECK(std::abs(got.norms[t] - norms[t]) < 1e-10 * largest);
    }
  }
}

}  // namespace
}  // namespace fsdp::models
