// The loops, and the comparison of a folder's model with them.
#include "tests/support/plain_model.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/io/safetensors.h"
#include "core/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/input_rules.h"
#include "models/key_bias.h"
#include "models/names.h"
#include "models/weights.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::test {
namespace plain {

Doubles linear(const Doubles& x, const Doubles& weight, const Doubles& bias) {
  const size_t out = bias.size(), in = weight.size() / out;
  Doubles y;
  for (size_t row = 0; row < x.size() / in; ++row) {
    for (size_t o = 0; o < out; ++o) {
      double sum = bias[o];
      for (size_t i = 0; i < in; ++i) sum += x[row * in + i] * weight[o * in + i];
      y.push_back(sum);
    }
  }
  return y;
}

Doubles layer_norm(const Doubles& x, const Doubles& weight, const Doubles& bias, double epsilon) {
  const size_t width = weight.size();
  Doubles y;
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double mean = 0, variance = 0;
    for (size_t i = 0; i < width; ++i) mean += x[begin + i] / static_cast<double>(width);
    for (size_t i = 0; i < width; ++i) {
      variance += (x[begin + i] - mean) * (x[begin + i] - mean) / static_cast<double>(width);
    }
    for (size_t i = 0; i < width; ++i) {
      y.push_back((x[begin + i] - mean) / std::sqrt(variance + epsilon) * weight[i] + bias[i]);
    }
  }
  return y;
}

Doubles causal_attention(const Doubles& q, const Doubles& k, const Doubles& v, int heads,
                         size_t hidden, const std::vector<bool>& hidden_keys) {
  const size_t width = hidden / static_cast<size_t>(heads);
  Doubles out(q.size());
  for (size_t t = 0; t < q.size() / hidden; ++t) {
    for (size_t head = 0; head < hidden; head += width) {
      Doubles weights;
      double total = 0;
      for (size_t s = 0; s <= t; ++s) {
        double score = 0;
        for (size_t i = head; i < head + width; ++i) score += q[t * hidden + i] * k[s * hidden + i];
        const bool seen = hidden_keys.empty() || !hidden_keys[s];
        weights.push_back(seen ? std::exp(score / std::sqrt(static_cast<double>(width))) : 0);
        total += weights.back();
      }
      for (size_t s = 0; s <= t; ++s) {
        for (size_t i = head; i < head + width; ++i) {
          out[t * hidden + i] += weights[s] / total * v[s * hidden + i];
        }
      }
    }
  }
  return out;
}

Doubles add(Doubles x, const Doubles& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}

Doubles apply(Doubles x, double (*f)(double)) {
  for (double& value : x) value = f(value);
  return x;
}

Doubles rows_of(const Doubles& table, const std::vector<int32_t>& rows, size_t width) {
  Doubles out;
  for (const int32_t row : rows) {
    const auto begin =
        table.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * width);
    out.insert(out.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
  }
  return out;
}

double cross_entropy(const Doubles& logits, const std::vector<int32_t>& labels) {
  const size_t vocabulary = logits.size() / labels.size();
  double sum = 0;
  for (size_t t = 0; t < labels.size(); ++t) {
    if (labels[t] < 0) continue;
    double total = 0;
    for (size_t i = 0; i < vocabulary; ++i) total += std::exp(logits[t * vocabulary + i]);
    sum += std::log(total) - logits[t * vocabulary + static_cast<size_t>(labels[t])];
  }
  return sum;
}

}  // namespace plain

Weights random_weights(const Shapes& shapes) {
  Weights weights;
  for (const auto& [name, extents] : shapes) {
    weights[name] = random_values(Shape(extents).numel(), hash_name(name), -0.7, 0.7);
  }
  return weights;
}

namespace {

// max |a - b| / max |b|, or `least` where b is smaller: a bias of keys has no gradient but
// rounding.
double difference(const Doubles& a, const Doubles& b, double least = 0.01) {
  REQUIRE(a.size() == b.size());
  double error = 0, largest = least;
  for (size_t i = 0; i < b.size(); ++i) {
    error = std::max(error, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return error / largest;
}

void write_weights(const TempFolder& folder, const Shapes& shapes, const Weights& weights) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, extents] : shapes) specs.push_back({name, DType::kF64, extents});
  SafetensorsWriter writer(folder / "model.safetensors", specs);
  for (const auto& [name, values] : weights) {
    writer.write(name, values.data(), values.size() * sizeof(double));
  }
  writer.finish();
}

// The plain model on a batch. Position t predicts token t + 1.
struct Expected {
  const PlainModel& model;
  const PlainBatch& batch;
  bool shifted = true;
  int32_t padding = -1;  // is no target

  std::vector<int32_t> row(int64_t i) const {
    const auto begin = batch.tokens.begin() + i * batch.length;
    return {begin, begin + batch.length};
  }
  Doubles logits(const Weights& weights) const {
    Doubles all;
    for (int64_t i = 0; i < batch.rows; ++i) {
      const Doubles one = model(weights, row(i));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }
  double loss(const Weights& weights) const {
    double sum = 0;
    for (int64_t i = 0; i < batch.rows; ++i) {
      std::vector<int32_t> labels = row(i);
      if (shifted) {
        labels.erase(labels.begin());
        labels.push_back(-1);
      }
      std::replace(labels.begin(), labels.end(), padding, -1);
      sum += plain::cross_entropy(model(weights, row(i)), labels);
    }
    return sum;
  }
  // Central differences of fourth order.
  Doubles gradient(Weights weights, const std::string& name) const {
    constexpr double kStep = 1e-4;  // small: no ReLU may change sides
    Doubles out;
    for (double& value : weights[name]) {
      const double before = value;
      const auto at = [&](double steps) {
        value = before + steps * kStep;
        return loss(weights);
      };
      const double near = at(1) - at(-1), far = at(2) - at(-2);
      out.push_back((8 * near - far) / (12 * kStep));
      value = before;
    }
    return out;
  }
};

}  // namespace

void check_against_plain(const std::string& config_json, const Shapes& shapes,
                         const PlainBatch& batch, const PlainModel& plain) {
  const Weights weights = random_weights(shapes);
  const TempFolder folder;
  write_weights(folder, shapes, weights);
  models::ModelConfig config = models::read_config(folder.write("config.json", config_json));
  const Expected expected = {plain, batch, config.shifted_labels,
                             config.position_offset > 0 ? 1 : -1};

  cpu::CpuBackend backend;
  Tape tape(backend);
  models::CausalLM model(config, backend, DType::kF64, batch.length);
  const models::FillFunction fill = models::from_folder(folder.path(), config, model.parameters());
  for (Parameter* p : model.parameters()) {
    Tensor values = Tensor::empty(backend, Shape{p->numel()}, DType::kF64);
    fill(*p, 0, values);
    p->set_value(values.view(p->shape()));
  }
  model.set_tape(&tape);
  CHECK(model.parameters().size() == shapes.size());
  const Shape shape = {batch.rows, batch.length};
  const Tensor tokens = Tensor::from_host(backend, shape, batch.tokens);
  const models::InputRules rules = models::input_rules(config);
  ForwardContext context;
  Tensor key_bias, positions;  // of tokens that are padding, as a session makes them
  const std::vector<int32_t> mask = models::padding_mask(rules, batch.tokens, {});
  if (!mask.empty()) {
    key_bias = models::make_key_bias(config, backend, DType::kF64, mask, batch.rows);
    const auto counted = models::counted_positions(rules, mask, batch.length);
    positions = Tensor::from_host(backend, shape, counted);
    context = {.key_bias = &key_bias, .positions = &positions};
  }
  {
    const Tape::Pause pause(tape);
    const Doubles logits = model.logits(tokens, context).to_doubles();
    CHECK(difference(logits, expected.logits(weights)) < 1e-12);
  }
  const std::vector<int32_t> shifted =
      rules.shifted_labels ? models::shifted_labels(batch.tokens, batch.rows, batch.length)
                           : batch.tokens;
  // Without a mask: the plain model, too, predicts at positions that see padding alone.
  const std::vector<int32_t> labels = models::predicted_targets(rules, shifted, {}, batch.length);
  const Tensor loss = model.loss(
      tokens, Tensor::from_host(backend, Shape{batch.rows * batch.length}, labels), context, 1);
  CHECK(std::abs(loss.item() / expected.loss(weights) - 1) < 1e-12);
  tape.backward(loss);
  for (Parameter* p : model.parameters()) {
    CAPTURE(p->name());
    const Doubles numeric =
        expected.gradient(weights, models::hugging_face_name(config, p->name()));
    CHECK(difference(p->gradient().to_doubles(), numeric) < 1e-8);
  }
}

}  // namespace fsdp::test
