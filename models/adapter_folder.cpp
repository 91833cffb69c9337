// Keys of adapter_config.json, tensors of adapter_model.safetensors.
#include "models/adapter_folder.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include "core/io/config_keys.h"
#include "core/io/file.h"
#include "core/io/file_kind.h"
#include "core/io/hub_files.h"
#include "core/io/patience.h"
#include "core/io/safetensors.h"
#include "core/shard_args.h"
#include "core/text/listed.h"
#include "core/text/shell_word.h"
#include "models/causal_lm.h"
#include "models/ignored_keys.h"
#include "models/names.h"

namespace fsdp::models {

namespace fs = std::filesystem;

bool is_adapter_folder(const fs::path& folder) { return is_named(folder / kAdapterConfigFile); }

// ---------------------------------------------------------------------------- adapter_config.json

namespace {

// Keys that this program does not know are refused unless they are off.
void refuse_unknown(const ConfigKeys& keys, const Json& json) {
  for (const std::string& key : keys.unasked()) {
    if (is_ignored_in_adapter(key)) continue;
    const Json& value = json.at(key);
    const bool off = value.is_null() || value == false || value == "" ||
                     (value.is_structured() && value.empty());
    FSDP_CHECK(off, "{}: {}: {} is not supported by this build", keys.where(), key, value.dump());
  }
}

// How training began. What changes only A and B is past; what takes a part of the base's weights
// into them makes W + B A of the base that is on the disk another model. PEFT computes this part
// again where it can; its save_pretrained(path_initial_model_for_weight_conversion) makes a plain
// LoRA of the adapter, and writes true here.
void refuse_changed_base(const ConfigKeys& keys, const Json& json) {
  if (!keys.has("init_lora_weights") || json.at("init_lora_weights").is_boolean()) return;
  std::string how = keys.get<std::string>("init_lora_weights");
  std::transform(how.begin(), how.end(), how.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string method = how.substr(0, how.find("_niter_"));
  if (method == "gaussian" || method == "orthogonal" || method == "eva" || method == "mica") return;
  const bool computed_again = how == "pissa" || how == "olora" || how == "loftq";
  const bool known = computed_again || method == "pissa" || how == "corda" || how == "lora_ga";
  FSDP_CHECK(known, "{}: init_lora_weights: \"{}\" is not supported by this build", keys.where(),
             how);
  fail(
      "{}: init_lora_weights: \"{}\" is not supported by this build: training began with a base "
      "that this method had changed, which the base on the disk is not; {}",
      keys.where(), how,
      computed_again
          ? "in Python, PeftModel.from_pretrained(BASE, ADAPTER).merge_and_unload()"
            ".save_pretrained(\"NEW\") makes a model of both"
          : "the program that trained the adapter makes a plain LoRA of it with save_pretrained("
            "..., path_initial_model_for_weight_conversion=...)");
}

// mlx-lm gives its folders the names that PEFT has, and other keys and tensors.
void refuse_adapter_of_mlx(const ConfigKeys& keys, const Json& json) {
  const bool is_peft = json.contains("peft_type");
  if (is_peft || !(json.contains("fine_tune_type") || json.contains("lora_parameters"))) return;
  const fs::path folder = fs::path(keys.where()).parent_path();
  const Json* const model = json.find("model");
  const std::string base = model && model->is_string() ? model->text() : "BASE";
  fail(
      "{}: an adapter of mlx-lm (fine_tune_type and lora_parameters, no peft_type), and not of "
      "PEFT; mlx_lm.fuse --model {} --adapter-path {} --save-path NEW makes a model of both",
      keys.where(), shell_word(base), shell_word(folder.empty() ? "." : folder.string()));
}

void refuse_other_kinds(const ConfigKeys& keys, const Json& json) {
  const auto refuse_unless_one_of = [&](const char* key, std::initializer_list<Json> known) {
    if (keys.absent(key)) return;
    for (const Json& value : known) {
      if (json.at(key) == value) return;
    }
    fail("{}: {}: {} is not supported by this build", keys.where(), key, json.at(key).dump());
  };
  refuse_adapter_of_mlx(keys, json);
  FSDP_CHECK(keys.has("peft_type"), "{}: peft_type: missing; expected \"LORA\"", keys.where());
  refuse_unless_one_of("peft_type", {"LORA"});
  refuse_unless_one_of("task_type", {nullptr, "CAUSAL_LM"});  // the others have another head
  refuse_unless_one_of("bias", {"none"});
  refuse_changed_base(keys, json);
}

// A list of names, or one regular expression.
void read_names(const ConfigKeys& keys, const Json& json, const char* key,
                std::vector<std::string>& names, std::string& pattern) {
  if (!keys.has(key)) return;
  const Json& value = json.at(key);
  FSDP_CHECK(value.is_string() || value.is_array(), "{}: {}: expected a list or a string, got {}",
             keys.where(), key, value.dump());
  if (value.is_string()) {
    pattern = value.get<std::string>();
  } else {
    names = keys.strings(key);
  }
}

// One value or a list of them.
std::vector<std::string> one_or_more_names(const ConfigKeys& keys, const Json& json,
                                           const char* key) {
  if (!keys.has(key) || json.at(key).is_array()) return keys.strings(key);
  const std::string name = keys.get<std::string>(key);
  return name.empty() ? std::vector<std::string>() : std::vector<std::string>{name};
}

void read_blocks(const ConfigKeys& keys, const Json& json, LoraConfig& lora) {
  lora.blocks = keys.tokens("layers_to_transform", "numbers of layers");
  lora.block_names = one_or_more_names(keys, json, "layers_pattern");
  FSDP_CHECK(lora.blocks.empty() || !json.value("target_modules", Json()).is_string(),
             "{}: layers_to_transform: expected target_modules to be a list of names beside it",
             keys.where());
  FSDP_CHECK(lora.block_names.empty() || !lora.blocks.empty(),
             "{}: layers_pattern: expected layers_to_transform beside it", keys.where());
}

// In the order of the file: the first one that matches counts.
template <typename Value>
std::vector<std::pair<std::string, Value>> read_patterns(const ConfigKeys& keys, const Json& json,
                                                         const char* key) {
  std::vector<std::pair<std::string, Value>> out;
  if (!keys.has(key)) return out;
  const ConfigKeys values = keys.object(key);
  for (const auto& [name, value] : json.at(key).items()) {
    out.emplace_back(name, values.get<Value>(name.c_str()));
  }
  return out;
}

}  // namespace

LoraConfig read_adapter_config(const fs::path& folder) {
  const fs::path file = folder / kAdapterConfigFile;
  return parse_adapter_config(read_file(file), file.string());
}

LoraConfig parse_adapter_config(const std::string& text, const std::string& where) {
  const Json json = parse_json(text, where);
  const ConfigKeys keys(json, where);
  refuse_other_kinds(keys, json);
  LoraConfig lora = {.r = keys.get<int64_t>("r"),
                     .alpha = keys.get<double>("lora_alpha"),
                     .dropout = keys.get_or<double>("lora_dropout", 0),
                     .rank_stabilised = keys.get_or<bool>("use_rslora", false),
                     .base = keys.get_or<std::string>("base_model_name_or_path", "")};
  read_names(keys, json, "target_modules", lora.targets, lora.target_pattern);
  // null means PEFT's own choice; nothing at all is an error there too.
  FSDP_CHECK(!keys.has("target_modules") || !lora.targets.empty() || !lora.target_pattern.empty(),
             "{}: target_modules: expected names of layers, got none", keys.where());
  if (lora.target_pattern == "all-linear") lora.targets = {std::move(lora.target_pattern)};
  if (!lora.targets.empty()) lora.target_pattern.clear();
  read_names(keys, json, "exclude_modules", lora.excluded, lora.excluded_pattern);
  read_blocks(keys, json, lora);
  const Json ordered = Json::parse(text);
  lora.ranks = read_patterns<int64_t>(keys, ordered, "rank_pattern");
  lora.alphas = read_patterns<double>(keys, ordered, "alpha_pattern");
  refuse_unknown(keys, json);
  validate(lora, where + ": ");
  return lora;
}

namespace {

// As PEFT writes it: a whole number without a point.
Json number(double value) {
  const bool is_whole = value < 0x1p53 && std::floor(value) == value;
  return is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

template <typename List>
Json list_or_null(const List& list) {
  return list.empty() ? Json(nullptr) : Json(list);
}

Json names_json(const std::vector<std::string>& names, const std::string& pattern) {
  return pattern.empty() ? list_or_null(names) : Json(pattern);
}

}  // namespace

std::string adapter_config_json(const ModelConfig& model, const LoraConfig& lora) {
  Json targets = names_json(lora.targets, lora.target_pattern);
  if (lora.targets == std::vector<std::string>{"all-linear"}) targets = "all-linear";
  Json ranks = Json::object(), alphas = Json::object();
  for (const auto& [name, r] : lora.ranks) ranks[name] = r;
  for (const auto& [name, alpha] : lora.alphas) alphas[name] = number(alpha);
  const Json json = {{"alpha_pattern", alphas},
                     {"auto_mapping", nullptr},
                     {"base_model_name_or_path", lora.base},
                     {"bias", "none"},
                     {"exclude_modules", names_json(lora.excluded, lora.excluded_pattern)},
                     {"fan_in_fan_out", model.weight_layout == ops::WeightLayout::kInOut},
                     {"inference_mode", true},
                     {"init_lora_weights", true},
                     {"layers_pattern", list_or_null(lora.block_names)},
                     {"layers_to_transform", list_or_null(lora.blocks)},
                     {"lora_alpha", number(lora.alpha)},
                     {"lora_dropout", lora.dropout},
                     {"modules_to_save", nullptr},
                     {"peft_type", "LORA"},
                     {"r", lora.r},
                     {"rank_pattern", ranks},
                     {"revision", nullptr},
                     {"target_modules", targets},
                     {"task_type", "CAUSAL_LM"},
                     {"use_dora", false},
                     {"use_rslora", lora.rank_stabilised}};
  return json.dump({.indent = 2}) + "\n";
}

std::string adapter_base(const fs::path& folder) {
  const std::string base = read_adapter_config(folder).base;
  for (const fs::path& place : {folder / base, fs::path(base)}) {
    if (base.empty()) break;
    const fs::path found = snapshot_in(place);
    if (is_named(found / "config.json")) return found.string();
  }
  fail_missing(fmt::format(
      "{}: base_model_name_or_path: \"{}\": no such folder with a config.json: --base FOLDER says "
      "where the model is that the adapter belongs to (of fsdp train: --model FOLDER){}",
      (folder / kAdapterConfigFile).string(), base, how_to_fetch(base)));
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
  std::vector<std::string> missing, misshapen, unexpected;
  for (const auto& [name, shape] : expected) {
    if (!file.contains(name)) {
      missing.push_back(fmt::format("{} {}", name, shape.str()));
    } else if (const auto& got = file.entry(name).shape; got != shape.extents()) {
      misshapen.push_back(
          fmt::format("{}: expected {}, got ({})", name, shape.str(), fmt::join(got, ", ")));
    }
  }
  for (const auto& [name, entry] : file.entries()) {
    if (!expected.contains(name)) unexpected.push_back(name);
  }
  const std::string problems =
      listed(missing, "missing") + listed(misshapen, "shape") + listed(unexpected, "unexpected");
  FSDP_CHECK(problems.empty(), "{}: tensors do not fit the layers of its {} in this {} model:{}",
             file.path().string(), kAdapterConfigFile, family, problems);
}

void check_weights_file(const fs::path& folder) {
  if (is_named(folder / kAdapterWeightsFile)) return;
  const fs::path pickle = folder / "adapter_model.bin";
  const bool there = fs::exists(pickle);
  std::optional<MappedFile> mapped;
  if (there) mapped.emplace(pickle);
  const std::string_view bytes = mapped ? mapped->text() : "";
  const std::string other = is_pickle(bytes) ? "" : other_kind(bytes, pickle, Wanted::kWeights);
  FSDP_CHECK(!there || other.empty(), "{}: {}", pickle.string(), other);
  FSDP_CHECK(!there,
             "{}: a pickle, which is not read; in Python, safetensors.torch.save_file(torch.load("
             "{}, map_location=\"cpu\", weights_only=True), {}) makes the file that is read",
             pickle.string(), Json(pickle.string()).dump({.replace = true}),
             Json((folder / kAdapterWeightsFile).string()).dump({.replace = true}));
  fail("{}: no {}", folder.string(), kAdapterWeightsFile);
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
    const int64_t r = rank_of(out.lora, hugging_face_name(model, *layer)).r;
    expected[names.a] = Shape{r, layer->in()};
    expected[names.b] = Shape{layer->out(), r};
  }
  check_weights_file(folder);
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
  struct Term {
    LayerNames names;
    double scale;
  };
  std::map<std::string, Term> adapted;  // by the weight's parameter
  for (const Linear* layer : adapter.layers) {
    const double scale = rank_of(adapter.lora, hugging_face_name(model, *layer)).scale;
    adapted.emplace(layer->weight().name(), Term{names_of(model, *layer), scale});
  }
  const bool in_out = model.config().weight_layout == ops::WeightLayout::kInOut;
  return [base, adapted, in_out, file = adapter.file](const Parameter& parameter, int64_t first,
                                                      Tensor& values) {
    const auto found = adapted.find(parameter.name());
    if (found == adapted.end()) return base(parameter, first, values);
    Backend& backend = values.backend();
    Tensor exact = Tensor::empty(backend, values.shape(), DType::kF64, MemoryCategory::kWorkspace);
    base(parameter, first, exact);
    std::vector<double> host = exact.to_doubles();
    const auto& [names, scale] = found->second;
    const Matrix a = read_matrix(*file, names.a), b = read_matrix(*file, names.b);
    in_out ? add_product(transposed(a), transposed(b), scale, first, host)
           : add_product(b, a, scale, first, host);
    exact.write(host.data());
    backend.run(backend.compute_stream(), CastArgs{exact, values});
  };
}

}  // namespace fsdp::models
