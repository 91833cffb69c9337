// Hugging Face config.json: the keys that every family has. Those of one family: models/families.
#include <filesystem>

#include "core/io/file.h"
#include "models/family.h"

namespace fsdp::models {

ModelConfig read_config(const std::string& path) { return parse_config(read_file(path), path); }

ModelConfig parse_config(const std::string& text, const std::string& path) {
  const Json json = parse_json(text, path);
  const ConfigKeys keys(json, path);
  const std::string name = keys.get<std::string>("model_type");
  try {
    const Family& family = family_of(name);
    ModelConfig config = family_defaults(name);
    config.initializer_range = keys.get_or<double>("initializer_range", 0.02);
    config.tied_head = keys.get_or<bool>("tie_word_embeddings", config.tied_head);
    config.bos_token = keys.token("bos_token_id");
    config.eos_token = keys.token("eos_token_id");
    family.read(keys, config);
    validate(config);
    return config;
  } catch (const Error& error) {
    const std::string what = error.what();
    fail("{}", what.starts_with(path) ? what : path + ": " + what);
  }
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "float64";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    default:
      return "float32";
  }
}

std::vector<int64_t> read_end_tokens(const std::string& folder) {
  std::vector<int64_t> ids;
  for (const char* name : {"generation_config.json", "config.json"}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!ids.empty() || !std::filesystem::exists(path)) continue;
    const Json json = parse_json(read_file(path), path.string());
    ids = ConfigKeys(json, path.string()).tokens("eos_token_id");
  }
  return ids;
}

std::string config_json(const ModelConfig& config, const std::string& dtype) {
  const Family& family = family_of(config.family);
  const auto token = [](int64_t id) { return id < 0 ? OrderedJson(nullptr) : OrderedJson(id); };
  OrderedJson json = {{"architectures", {config.model_class}}, {"model_type", config.family}};
  json.update(family.write(config));
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = config.tied_head;
  json["bos_token_id"] = token(config.bos_token);
  json["eos_token_id"] = token(config.eos_token);
  json["dtype"] = dtype;
  json["torch_dtype"] = dtype;  // transformers before 4.56
  return json.dump(2) + "\n";
}

}  // namespace fsdp::models
