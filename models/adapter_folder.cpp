// Keys of adapter_config.json, tensors of adapter_model.safetensors.
#include "models/adapter_folder.h"

#include <cmath>
#include <map>
#include <set>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "models/causal_lm.h"
#include "models/config_keys.h"
#include "models/names.h"

namespace fsdp::models {

namespace fs = std::filesystem;

bool is_adapter_folder(const fs::path& folder) { return fs::exists(folder / kAdapterConfigFile); }

// ---------------------------------------------------------------------------- adapter_config.json

namespace {

// Keys that change nothing here. PEFT itself corrects a wrong fan_in_fan_out, the layout of the
// base's weights.
const std::set<std::string> kWithoutEffect = {
    "auto_mapping", "fan_in_fan_out",    "inference_mode", "megatron_core",
    "peft_version", "qalora_group_size", "revision",       "task_type"};
const std::set<std::string> kRead = {"base_model_name_or_path",
                                     "bias",
                                     "init_lora_weights",
                                     "lora_alpha",
                                     "lora_dropout",
                                     "peft_type",
                                     "r",
                                     "target_modules",
                                     "use_rslora"};

void refuse_unknown(const Json& json, const std::string& where) {
  for (const auto& [key, value] : json.items()) {
    if (kWithoutEffect.contains(key) || kRead.contains(key)) continue;
    const bool off = value.is_null() || value == false || value == "" ||
                     (value.is_structured() && value.empty());
    FSDP_CHECK(off, "{}: {}: {} is not supported by this build", where, key, value.dump());
  }
}

void refuse_other_kinds(const Json& json, const std::string& where) {
  const auto refuse_unless_one_of = [&](const char* key, std::initializer_list<Json> known) {
    if (!json.contains(key)) return;
    for (const Json& value : known) {
      if (json.at(key) == value) return;
    }
    fail("{}: {}: {} is not supported by this build", where, key, json.at(key).dump());
  };
  refuse_unless_one_of("peft_type", {"LORA"});
  refuse_unless_one_of("bias", {"none"});
  // How training began. The others change the base's weights too.
  refuse_unless_one_of("init_lora_weights", {true, false, "gaussian"});
}

void read_targets(const Json& json, const std::string& where, LoraConfig& lora) {
  const Json targets = json.value("target_modules", Json());
  if (targets.is_string() && targets != "all-linear") {
    lora.target_pattern = targets.get<std::string>();
  } else if (targets.is_string()) {
    lora.targets = {targets.get<std::string>()};
  } else if (!targets.is_null()) {
    FSDP_CHECK(targets.is_array(), "{}: target_modules: expected a list or a string, got {}", where,
               targets.dump());
    for (const Json& target : targets) {
      FSDP_CHECK(target.is_string(), "{}: target_modules: expected names, got {}", where,
                 target.dump());
      lora.targets.push_back(target.get<std::string>());
    }
  }
}

}  // namespace

LoraConfig read_adapter_config(const fs::path& folder) {
  const fs::path file = folder / kAdapterConfigFile;
  return parse_adapter_config(read_file(file), file.string());
}

LoraConfig parse_adapter_config(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  const ConfigKeys keys(json, where);
  refuse_other_kinds(json, where);
  refuse_unknown(json, where);
  LoraConfig lora = {.r = keys.get<int64_t>("r"),
                     .alpha = keys.get<double>("lora_alpha"),
                     .dropout = keys.get_or<double>("lora_dropout", 0),
                     .rank_stabilised = keys.get_or<bool>("use_rslora", false),
                     .base = keys.get_or<std::string>("base_model_name_or_path", "")};
  read_targets(json, where, lora);
  validate(lora, where + ": ");
  return lora;
}

std::string adapter_config_json(const ModelConfig& model, const LoraConfig& lora) {
  const bool is_whole = lora.alpha < 0x1p53 && std::floor(lora.alpha) == lora.alpha;
  OrderedJson targets = lora.targets;
  if (!lora.target_pattern.empty()) targets = lora.target_pattern;
  if (lora.targets == std::vector<std::string>{"all-linear"}) targets = "all-linear";
  if (targets.empty()) targets = nullptr;
  const OrderedJson json = {{"alpha_pattern", OrderedJson::object()},
                            {"auto_mapping", nullptr},
                            {"base_model_name_or_path", lora.base},
                            {"bias", "none"},
                            {"fan_in_fan_out", model.weight_layout == ops::WeightLayout::kInOut},
                            {"inference_mode", true},
                            {"init_lora_weights", true},
                            {"layers_pattern", nullptr},
                            {"layers_to_transform", nullptr},
                            {"lora_alpha", is_whole ? OrderedJson(static_cast<int64_t>(lora.alpha))
                                                    : OrderedJson(lora.alpha)},
                            {"lora_dropout", lora.dropout},
                            {"modules_to_save", nullptr},
                            {"peft_type", "LORA"},
                            {"r", lora.r},
                            {"rank_pattern", OrderedJson::object()},
                            {"revision", nullptr},
                            {"target_modules", targets},
                            {"task_type", "CAUSAL_LM"},
                            {"use_dora", false},
                            {"use_rslora", lora.rank_stabilised}};
  return json.dump(2) + "\n";
}

std::string adapter_base(const fs::path& folder) {
  const std::string base = read_adapter_config(folder).base;
  for (const fs::path& place : {folder / base, fs::path(base)}) {
    if (!base.empty() && fs::exists(place / "config.json")) return place.string();
  }
  fail("{}: base_model_name_or_path: \"{}\": no such folder with a config.json",
       (folder / kAdapterConfigFile).string(), base);
}

// ---------------------------------------------------------------------------- Tensors

namespace {

constexpr const char* kPrefix = "base_model.model.";  // of PeftModel and LoraModel

struct LayerNames {
  std::string a, b;
};

LayerNames names_of(const CausalLM& model, const Linear& layer) {
  const std::string name = kPrefix + hugging_face_name(model, layer);
  return {name + ".lora_A.weight", name + ".lora_B.weight"};
}

void check_tensors(const SafetensorsFile& file, const std::map<std::string, Shape>& expected,
                   const std::string& family) {
  std::string problems;
  for (const auto& [name, shape] : expected) {
    if (!file.contains(name)) {
      problems += fmt::format("\n  missing: {} {}", name, shape.str());
    } else if (const auto& got = file.entry(name).shape; got != shape.extents()) {
      problems += fmt::format("\n  shape: {}: expected {}, got ({})", name, shape.str(),
                              fmt::join(got, ", "));
    }
  }
  for (const auto& [name, entry] : file.entries()) {
    if (!expected.contains(name)) problems += fmt::format("\n  unexpected: {}", name);
  }
  FSDP_CHECK(problems.empty(), "{}: tensors do not fit the layers of its {} in this {} model:{}",
             file.path().string(), kAdapterConfigFile, family, problems);
}

struct OpenAdapter {
  LoraConfig lora;
  std::vector<Linear*> layers;
  std::shared_ptr<const SafetensorsFile> file;
};

OpenAdapter open_adapter(const fs::path& folder, CausalLM& model) {
  OpenAdapter out = {.lora = read_adapter_config(folder), .layers = {}, .file = {}};
  out.layers = lora_layers(model, out.lora);
  std::map<std::string, Shape> expected;
  for (const Linear* layer : out.layers) {
    const LayerNames names = names_of(model, *layer);
    expected[names.a] = Shape{out.lora.r, layer->in()};
    expected[names.b] = Shape{layer->out(), out.lora.r};
  }
  FSDP_CHECK(fs::exists(folder / kAdapterWeightsFile), "{}: no {}", folder.string(),
             kAdapterWeightsFile);
  out.file = std::make_shared<SafetensorsFile>(SafetensorsFile::open(folder / kAdapterWeightsFile));
  check_tensors(*out.file, expected, model.config().family);
  return out;
}

}  // namespace

std::string adapter_name(const ModelConfig& model, const Parameter& parameter) {
  return kPrefix + hugging_face_name(model, parameter.name());
}

FillFunction with_adapter(const FillFunction& base, const fs::path& folder, CausalLM& model) {
  return [base, file = open_adapter(folder, model).file, config = model.config()](
             const Parameter& parameter, int64_t first, Tensor& values) {
    if (!is_lora(parameter)) return base(parameter, first, values);
    std::vector<std::byte> host(values.bytes());
    file->read_elements(adapter_name(config, parameter), first, values.numel(), values.dtype(),
                        host.data());
    values.write(host.data());
  };
}

// ---------------------------------------------------------------------------- Merging

namespace {

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
};

Matrix read_matrix(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.entry(name);
  Matrix out = {entry.shape[0], entry.shape[1], {}};
  out.values.resize(static_cast<size_t>(entry.numel));
  file.read_elements(name, 0, entry.numel, DType::kF64, out.values.data());
  return out;
}

Matrix transposed(const Matrix& m) {
  Matrix out = {m.columns, m.rows, std::vector<double>(m.values.size())};
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) {
      out.values[static_cast<size_t>(j * m.rows + i)] =
          m.values[static_cast<size_t>(i * m.columns + j)];
    }
  }
  return out;
}

// Adds elements [first, first + size) of scale * left * right, counted row by row.
void add_product(const Matrix& left, const Matrix& right, double scale, int64_t first,
                 std::vector<double>& out) {
  const auto size = static_cast<int64_t>(out.size());
  for (int64_t done = 0; done < size;) {
    const int64_t row = (first + done) / right.columns, column = (first + done) % right.columns;
    const int64_t count = std::min(right.columns - column, size - done);
    for (int64_t k = 0; k < left.columns; ++k) {
      const double factor = scale * left.values[static_cast<size_t>(row * left.columns + k)];
      const double* from = right.values.data() + k * right.columns + column;
      double* to = out.data() + done;
      for (int64_t j = 0; j < count; ++j) to[j] += factor * from[j];
    }
    done += count;
  }
}

}  // namespace

FillFunction merged_with_adapter(const FillFunction& base, const fs::path& folder,
                                 CausalLM& model) {
  const OpenAdapter adapter = open_adapter(folder, model);
  std::map<std::string, LayerNames> adapted;  // by the weight's parameter
  for (const Linear* layer : adapter.layers) {
    adapted.emplace(layer->weight().name(), names_of(model, *layer));
  }
  const bool in_out = model.config().weight_layout == ops::WeightLayout::kInOut;
  return [base, adapted, in_out, file = adapter.file, scale = adapter.lora.scale()](
             const Parameter& parameter, int64_t first, Tensor& values) {
    const auto found = adapted.find(parameter.name());
    if (found == adapted.end()) return base(parameter, first, values);
    Backend& backend = values.backend();
    Tensor exact = Tensor::empty(backend, values.shape(), DType::kF64, MemoryCategory::kWorkspace);
    base(parameter, first, exact);
    std::vector<double> host = exact.to_doubles();
    const Matrix a = read_matrix(*file, found->second.a), b = read_matrix(*file, found->second.b);
    in_out ? add_product(transposed(a), transposed(b), scale, first, host)
           : add_product(b, a, scale, first, host);
    exact.write(host.data());
    backend.cast(backend.compute_stream(), exact, values);
  };
}

}  // namespace fsdp::models
