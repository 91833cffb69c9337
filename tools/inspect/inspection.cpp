// Looks at a model's files and shapes. Texts: inspection_report.cpp.
#include "tools/inspect/inspection.h"

#include <algorithm>
#include <filesystem>

#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "models/adapter_folder.h"
#include "models/hub_names.h"
#include "models/names.h"
#include "models/weights.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/data/tokenizer/vocabulary_files.h"
#include "tools/model_folders/checkpoint_model.h"
#include "tools/model_folders/load_model.h"
#include "tools/predict/meta_run.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

ParameterCounts count(const std::vector<Parameter*>& parameters) {
  ParameterCounts out;
  for (const Parameter* p : parameters) {
    out.total += p->numel();
    if (p->trainable()) out.trainable += p->numel();
    const bool table = p->name().starts_with("embedding.") && p->shape().rank() == 2;
    if (table) out.embedding += p->numel();
    if (p->name() == "head.weight") out.head = p->numel();
  }
  return out;
}

std::vector<ParameterRow> parameter_rows(const models::ModelConfig& config,
                                         const std::vector<Parameter*>& parameters) {
  std::vector<ParameterRow> rows;
  for (const Parameter* p : parameters) {
    std::string name = models::hugging_face_name(config, p->name());
    if (p->name().starts_with("blocks.")) {
      const std::string index = p->name().substr(6, p->name().find('.', 7) - 5);  // ".12."
      name.replace(name.find(index), index.size(), ".*.");
    }
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const ParameterRow& row) {
      return row.name == name && row.shape == p->shape();
    });
    if (same != rows.end()) {
      ++same->times;
    } else {
      rows.push_back({name, p->shape()});
    }
  }
  return rows;
}

WeightsSummary look_at_weights(const fs::path& folder, const models::ModelConfig& config,
                               const std::vector<Parameter*>& parameters) {
  WeightsSummary out;
  try {
    const SafetensorsFolder weights = SafetensorsFolder::open(folder);
    out.warnings = warnings_about(folder);
    for (const SafetensorsFile& file : weights.files()) {
      out.files[file.path().filename().string()] = fs::file_size(file.path());
    }
    for (const auto& [name, tensor] : weights.tensors()) {
      WeightsSummary::OfDtype& same = out.dtypes[tensor.dtype_name];
      ++same.tensors;
      same.elements += tensor.numel;
    }
    models::names_in_folder(weights, config, parameters);
  } catch (const Error& error) {
    out.problem = error.what();
  }
  return out;
}

TokenizerSummary look_at_tokenizer(const fs::path& file) {
  TokenizerSummary out;
  try {
    const auto tokenizer = data::make_tokenizer(file.string());
    out.vocabulary = tokenizer->vocab_size();
    out.end_of_text = tokenizer->end_of_text();
    out.note = tokenizer->note();
    const Json json = parse_json(data::tokenizer_text(file), file.string());  // which is right
    for (const char* part : {"normalizer", "pre_tokenizer", "model", "post_processor", "decoder"}) {
      const Json value = json.value(part, Json());
      if (value.is_object()) out.components[part] = value.value("type", "BPE");
    }
    for (const Json& token : json.value("added_tokens", Json::array())) {
      ++out.added;
      const auto content = token.at("content").get<std::string>();
      if (token.value("special", false)) out.specials[content] = token.at("id").get<int64_t>();
    }
  } catch (const Error& error) {
    out.problem = error.what();
  }
  return out;
}

std::string dtype_of_config(const fs::path& file) {
  const Json json = read_json_file(file);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (json.contains(key) && json[key].is_string()) return json[key].get<std::string>();
  }
  return "";
}

AdapterSummary look_at_adapter(const ModelSource& source, models::CausalLM& model) {
  AdapterSummary out = {.lora = models::read_adapter_config(source.adapter),
                        .base = source.folder.string()};
  try {
    for (const models::Linear* layer : models::lora_layers(model, out.lora)) {
      ++out.layers;
      const models::LoraRank rank =
          models::rank_of(out.lora, models::hugging_face_name(model, *layer));
      out.parameters += rank.r * (layer->in() + layer->out());
    }
    models::merged_with_adapter({}, source.adapter, model);  // checks all tensors
  } catch (const Error& error) {
    out.problem = error.what();
  }
  return out;
}

}  // namespace

std::vector<ModuleRow> Inspection::modules() const {
  struct Module {
    ModuleRow row;
    size_t rows = 0;  // of the table
  };
  std::vector<Module> all;
  for (const ParameterRow& tensor : parameters) {
    for (size_t dot = tensor.name.find('.'); dot != std::string::npos;
         dot = tensor.name.find('.', dot + 1)) {
      const std::string name = tensor.name.substr(0, dot);
      auto same = std::find_if(all.begin(), all.end(),
                               [&](const Module& module) { return module.row.name == name; });
      if (same == all.end()) same = all.insert(all.end(), {.row = {.name = name}});
      ++same->rows;
      same->row.tensors += tensor.times;
      same->row.parameters += tensor.times * tensor.shape.numel();
    }
  }
  std::vector<ModuleRow> out;
  for (const Module& module : all) {
    // "model.layers" holds what "model.layers.*" does.
    const bool again = std::any_of(all.begin(), all.end(), [&](const Module& inner) {
      return inner.rows == module.rows && inner.row.name.starts_with(module.row.name + ".");
    });
    if (module.rows > 1 && !again) out.push_back(module.row);
  }
  return out;
}

bool Inspection::sound() const {
  return (!adapter || adapter->problem.empty()) && (!weights || weights->problem.empty()) &&
         (!tokenizer || tokenizer->problem.empty());
}

Inspection inspect(const InspectionOptions& options) {
  // Where both lie in one folder, it is the model unless a base is given.
  const fs::path given = model_in(options.source);
  const bool no_adapter = fs::exists(given / "config.json") || !fs::is_directory(given);
  const ModelSource source =
      no_adapter && options.base.empty() ? ModelSource{given, ""} : find_model(given, options.base);
  const fs::path path = source.folder;
  const bool folder = fs::is_directory(path), file = !folder && fs::exists(path);
  const fs::path config_file = folder ? path / "config.json" : path;
  Inspection out;
  out.source = path.string();
  out.world = options.world;
  if (folder || file) {
    out.config = models::read_config(config_file.string());
    out.dtype = dtype_of_config(config_file);
  } else {
    FSDP_CHECK(!path.has_parent_path() && path.extension() != ".json",
               "{}: no such folder or file{}", options.source, models::instead_of(options.source));
    out.config = models::preset(options.source);
  }
  cpu::CpuBackend backend;  // of the rotary tables, for one position; parameters are shapes only
  models::CausalLM model(out.config, backend, DType::kF32, 1);
  if (!source.adapter.empty()) out.adapter = look_at_adapter(source, model);
  freeze_parameters(out.config, options.frozen, model.parameters());
  out.counts = count(model.parameters());
  out.parameters = parameter_rows(out.config, model.parameters());
  PlacedOptions session = {{.model = out.config, .max_length = 1, .training = false}};
  session.frozen = options.frozen;
  out.units = unit_rows(MetaRun(session, options.world).session().sharded());
  if (folder) out.weights = look_at_weights(path, out.config, model.parameters());
  const std::string tokenizer = source.default_tokenizer();
  if (folder && tokenizer != "bytes") out.tokenizer = look_at_tokenizer(tokenizer);
  return out;
}

}  // namespace fsdp::tools
