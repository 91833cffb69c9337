// Rotary tables: frequencies after Hugging Face's `rope_scaling`, cosines and sines.
#include <cmath>
#include <numbers>

#include "models/block.h"
#include "models/position_table.h"

namespace fsdp::models {
namespace {

// Llama 3.1: long wavelengths are stretched, short ones kept, wavelengths between blended
// (transformers modeling_rope_utils, _compute_llama3_parameters).
double llama3_frequency(const RopeConfig& rope, double frequency) {
  const double turns = rope.original_max_positions * frequency / (2 * std::numbers::pi);
  const double low = rope.low_frequency_factor;
  const double blend = (turns - low) / (rope.high_frequency_factor - low);
  const double s = std::min(1.0, std::max(0.0, blend));
  return frequency * ((1 - s) / rope.factor + s);
}

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t rotary_dim) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary_dim / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    const double frequency = 1.0 / std::pow(rope.theta, exponent);
    switch (rope.scaling) {
      case RopeConfig::Scaling::kNone:
        frequencies.push_back(frequency);
        break;
      case RopeConfig::Scaling::kLinear:
        frequencies.push_back(frequency / rope.factor);
        break;
      case RopeConfig::Scaling::kLlama3:
        frequencies.push_back(llama3_frequency(rope, frequency));
        break;
    }
  }
  return frequencies;
}

RopeTablesPtr make_rope_tables(const ModelConfig& config, Backend& backend, DType dtype,
                               int64_t positions) {
  if (config.positions != PositionKind::kRope) return nullptr;
  const std::vector<double> frequencies = rope_frequencies(config.rope, config.rotary_dim());
  const int64_t half = static_cast<int64_t>(frequencies.size());
  const auto table = [&](double (*function)(double)) {
    std::vector<double> values;
    for (int64_t t = 0; t < positions; ++t) {
      for (const double f : frequencies) values.push_back(function(static_cast<double>(t) * f));
    }
    const Shape shape = {positions, half};
    return position_table(backend, shape, std::move(values), dtype, config.buffer_dtype);
  };
  return std::make_shared<ops::RopeTables>(ops::RopeTables{
      table([](double x) { return std::cos(x); }), table([](double x) { return std::sin(x); })});
}

}  // namespace fsdp::models
