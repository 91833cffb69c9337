// Finding the parts of a model and putting them together.
#include "tools/runtime/model_source.h"

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/adapter_folder.h"
#include "models/names.h"
#include "tools/data/tokenizer.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

models::ModelConfig ModelSource::config() const {
  return models::read_config((folder / "config.json").string());
}

models::FillFunction ModelSource::values(models::CausalLM& model) const {
  const models::FillFunction base =
      models::from_folder(folder.string(), model.config(), model.parameters());
  return adapter.empty() ? base : models::merged_with_adapter(base, adapter, model);
}

std::string ModelSource::default_tokenizer() const {
  const std::string of_adapter = data::default_tokenizer(adapter.string());
  return of_adapter != "bytes" ? of_adapter : data::default_tokenizer(folder.string());
}

ModelSource find_model(const fs::path& folder, const fs::path& base) {
  if (!models::is_adapter_folder(folder)) {
    FSDP_CHECK(base.empty(), "{}: expected an adapter beside a base: no {}", folder.string(),
               models::kAdapterConfigFile);
    return {folder, ""};
  }
  return {base.empty() ? fs::path(models::adapter_base(folder)) : base, folder};
}

namespace {

DType dtype_of_weights(const fs::path& folder) {
  const SafetensorsFolder weights = SafetensorsFolder::open(folder);
  std::optional<DType> found;
  for (const auto& [name, tensor] : weights.tensors()) {
    FSDP_CHECK(tensor.dtype && (!found || *found == *tensor.dtype),
               "{}: tensors of several dtypes: say which one to write", folder.string());
    found = tensor.dtype;
  }
  FSDP_CHECK(found.has_value(), "{}: no tensors", folder.string());
  return *found;
}

void write_tensors(const ModelSource& source, models::CausalLM& model, Backend& backend,
                   const fs::path& path, DType dtype) {
  const auto name_of = [&](const Parameter& parameter) {
    return models::hugging_face_name(model.config(), parameter.name());
  };
  const models::FillFunction values = source.values(model);
  std::vector<SafetensorsSpec> specs;
  for (const Parameter* p : model.parameters()) {
    specs.push_back({name_of(*p), dtype, p->shape().extents()});
  }
  SafetensorsWriter writer(path, specs);
  for (const Parameter* p : model.parameters()) {
    Tensor tensor = Tensor::empty(backend, Shape{p->numel()}, dtype, MemoryCategory::kWorkspace);
    values(*p, 0, tensor);
    std::vector<std::byte> host(tensor.bytes());
    tensor.read(host.data());
    writer.write(name_of(*p), host.data(), host.size());
  }
  writer.finish();
}

}  // namespace

void write_model(const ModelSource& source, const fs::path& folder, std::optional<DType> dtype) {
  FSDP_CHECK(!fs::exists(folder), "{}: is there already", folder.string());
  const models::ModelConfig config = source.config();
  const DType saved = dtype ? *dtype : dtype_of_weights(source.folder);
  cpu::CpuBackend backend;
  models::CausalLM model(config, backend, DType::kF32, 1);  // its parameters are shapes only
  fs::create_directories(folder);
  write_tensors(source, model, backend, folder / "model.safetensors", saved);
  write_file_atomically(folder / "config.json",
                        models::config_json(config, models::torch_name(saved)));
  const fs::path generation = source.folder / "generation_config.json";
  if (fs::exists(generation)) {
    write_file_atomically(folder / "generation_config.json", read_file(generation));
  }
  data::copy_tokenizer_files(source.default_tokenizer(), folder);
}

}  // namespace fsdp::tools
