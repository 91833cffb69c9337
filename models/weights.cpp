// Sources of parameter values.
#include "models/weights.h"

#include <algorithm>

#include "core/io/safetensors.h"
#include "core/rng.h"
#include "core/shard_args.h"

namespace fsdp::models {

namespace {

void fill_uniform(const Parameter& parameter, uint64_t seed, int64_t first, Tensor& values) {
  const uint64_t name = hash_name(parameter.name());
  const double bound = parameter.initializer().bound;
  Backend& backend = values.backend();
  const Tensor exact = Tensor::empty(backend, values.shape(), DType::kF64);
  if (backend.holds_values()) {
    std::vector<double> numbers(static_cast<size_t>(values.numel()));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double uniform = uniform_at(seed, name, static_cast<uint64_t>(first) + i);
      numbers[i] = bound * (2 * uniform - 1);
    }
    exact.write(numbers.data());
  }
  backend.run(backend.compute_stream(), CastArgs{exact, values});
}

// The part of the row that is in `values`.
void clear_row(const Parameter& parameter, int64_t row, int64_t first, Tensor& values) {
  const int64_t width = parameter.shape()[1];
  const int64_t begin = std::max(first, row * width);
  const int64_t end = std::min(first + values.numel(), (row + 1) * width);
  if (begin >= end) return;
  const Tensor part = values.slice(begin - first, Shape{end - begin});
  Backend& backend = values.backend();
  backend.fill_zero(backend.compute_stream(), part.data(), part.bytes());
}

}  // namespace

FillFunction from_scratch(uint64_t seed, int64_t padding_row) {
  return [=](const Parameter& parameter, int64_t first, Tensor& values) {
    const Initializer& init = parameter.initializer();
    Backend& backend = values.backend();
    if (init.bound != 0) return fill_uniform(parameter, seed, first, values);
    backend.run(backend.compute_stream(), FillNormalArgs{values, init.mean, init.deviation, seed,
                                                         hash_name(parameter.name()), first});
    const bool table = parameter.name() == "embedding.tokens.weight" ||
                       parameter.name() == "embedding.positions.weight";
    if (padding_row >= 0 && table) clear_row(parameter, padding_row, first, values);
  };
}

FillFunction from_folder(const std::string& path, const ModelConfig& config,
                         const std::vector<Parameter*>& model_parameters, ComparedPart compared) {
  SafetensorsFolder folder = SafetensorsFolder::open(path);
  auto names = names_in_folder(folder, config, model_parameters, compared);
  return from_folder(std::move(folder), std::move(names));
}

FillFunction from_folder(SafetensorsFolder folder, std::map<std::string, std::string> names) {
  struct Source {
    SafetensorsFolder folder;
    std::map<std::string, std::string> names;
  };
  const auto source = std::make_shared<const Source>(Source{std::move(folder), std::move(names)});
  return [source](const Parameter& parameter, int64_t first, Tensor& values) {
    std::vector<std::byte> host(values.bytes());
    source->folder.read_elements(source->names.at(parameter.name()), first, values.numel(),
                                 values.dtype(), host.data());
    values.write(host.data());
  };
}

}  // namespace fsdp::models
