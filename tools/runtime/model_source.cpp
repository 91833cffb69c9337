// Finding the parts of a model and putting them together.
#include "tools/runtime/model_source.h"

#include <cstdio>

#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/adapter_folder.h"
#include "models/config_keys.h"
#include "models/names.h"
#include "tools/config/config.h"
#include "tools/data/tokenizer.h"
#include "tools/runtime/model_folder.h"

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

std::vector<int64_t> ModelSource::end_tokens() const {
  std::vector<int64_t> ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const fs::path path = folder / name;
    if (!ids.empty() || !fs::exists(path)) continue;
    const Json json = read_json_file(path);
    ids = models::ConfigKeys(json, path.string()).tokens("eos_token_id");
  }
  return ids;
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

SessionOptions options_for_use(const models::ModelConfig& model, int64_t max_length,
                               const std::string& strategy, DType dtype, const RankContext& rank) {
  SessionOptions out;
  out.model = model;
  out.max_length = max_length;
  const char* const otherwise = rank.world.size() == 1 ? "no_shard" : "full_shard";
  out.fsdp.strategy = config::parse_strategy(strategy.empty() ? otherwise : strategy);
  out.fsdp.param_dtype = dtype;
  out.fsdp.reduce_dtype = accumulation_dtype(dtype);
  out.backend = rank.backend;
  out.training = false;
  return out;
}

std::vector<std::string> warnings_about(const fs::path& folder) {
  return SafetensorsFolder::open(folder).warnings();
}

void load_model(Session& session, const ModelSource& source) {
  models::FillFunction fill;
  agree(session.world(), [&] {
    fill = source.values(session.model());
    if (session.world().rank() != 0) return;
    for (const std::string& warning : warnings_about(source.folder)) {
      fmt::print(stderr, "fsdp: note: {}\n", warning);
    }
  });
  session.initialise(fill);
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

using NamedParameters = std::map<std::string, const Parameter*>;  // by Hugging Face name

void write_tensors(const fs::path& folder, const WeightsFile& file,
                   const NamedParameters& parameters, const models::FillFunction& values,
                   Backend& backend) {
  SafetensorsWriter writer(folder / file.name, file.tensors);
  for (const SafetensorsSpec& spec : file.tensors) {
    const Parameter& p = *parameters.at(spec.name);
    Tensor tensor =
        Tensor::empty(backend, Shape{p.numel()}, spec.dtype, MemoryCategory::kWorkspace);
    values(p, 0, tensor);
    std::vector<std::byte> host(tensor.bytes());
    tensor.read(host.data());
    writer.write(spec.name, host.data(), host.size());
  }
  writer.finish();
}

}  // namespace

void write_model(const ModelSource& source, const fs::path& folder, std::optional<DType> dtype) {
  const models::ModelConfig config = source.config();
  const DType saved = dtype ? *dtype : dtype_of_weights(source.folder);
  cpu::CpuBackend backend;
  models::CausalLM model(config, backend, DType::kF32, 1);  // its parameters are shapes only
  const models::FillFunction values = source.values(model);
  NamedParameters parameters;
  std::vector<SafetensorsSpec> tensors;
  for (const Parameter* p : model.parameters()) {
    tensors.push_back({models::hugging_face_name(config, p->name()), saved, p->shape().extents()});
    parameters[tensors.back().name] = p;
  }
  AtomicFolder out(folder);
  const std::vector<WeightsFile> files = split_into_files(tensors, kDefaultFileBytes);
  for (const WeightsFile& file : files) {
    write_tensors(out.temporary(), file, parameters, values, backend);
  }
  write_weights_index(out.temporary(), files);
  write_config_files(out.temporary(), config, models::torch_name(saved), source.folder);
  data::copy_tokenizer_files(source.default_tokenizer(), out.temporary());
  out.commit();
}

}  // namespace fsdp::tools
