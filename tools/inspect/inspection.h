// What a model is, from its folder, its config.json or the name of a preset: parameters, modules,
// units, files, tokenizer. Values are not read. Not here: what sharding does with a configuration
// (tools/predict/unit_table.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/lora.h"
#include "tools/predict/unit_table.h"

namespace fsdp::tools {

// Parameters that have one name and shape in every block are one row: "model.layers.*.mlp.up_proj".
struct ParameterRow {
  std::string name;  // Hugging Face's
  Shape shape;
  int64_t times = 1;
};

// A module with more than one tensor, of one name in every block: "model.layers.*.mlp".
struct ModuleRow {
  std::string name;
  int64_t tensors = 0, parameters = 0;  // of all blocks together, and of the modules in it
};

struct ParameterCounts {
  int64_t total = 0;  // a tied head once
  int64_t trainable = 0;
  int64_t embedding = 0;  // token and position tables
  int64_t head = 0;       // 0: tied
  int64_t other() const { return total - embedding - head; }
};

// A LoRA adapter, and how it fits its base.
struct AdapterSummary {
  models::LoraConfig lora;
  std::string base;        // folder of its model
  size_t layers = 0;       // that it has terms for
  int64_t parameters = 0;  // of the terms
  std::string problem;     // "": its tensors fit the layers
};

struct WeightsSummary {
  struct OfDtype {
    int64_t tensors = 0, elements = 0;
  };
  std::map<std::string, uintmax_t> files;  // name -> bytes
  std::map<std::string, OfDtype> dtypes;   // as in the files: "BF16"
  std::vector<std::string> warnings;
  std::string problem;  // "": the tensors fit the model
};

struct TokenizerSummary {
  std::map<std::string, std::string> components;  // "model" -> "BPE"; only what the file has
  int64_t vocabulary = 0;                         // the largest id and 1
  int64_t added = 0;
  std::map<std::string, int64_t> specials;  // content -> id
  int32_t end_of_text = -1;
  std::string note;     // as Tokenizer::note()
  std::string problem;  // "": this program can use it
};

struct Inspection {
  std::string source;
  models::ModelConfig config;
  std::string dtype;  // of config.json; "": it does not say
  ParameterCounts counts;
  std::vector<ParameterRow> parameters;
  std::vector<ModuleRow> modules() const;  // sums of `parameters`
  std::vector<UnitRow> units;  // a unit per transformer block, for `world` ranks of FULL_SHARD
  int world = 1;
  std::optional<AdapterSummary> adapter;      // of an adapter's folder; all else is its base's
  std::optional<WeightsSummary> weights;      // of a folder
  std::optional<TokenizerSummary> tokenizer;  // of a folder that has one
  bool sound() const;                         // no problem
};

struct InspectionOptions {
  std::string source;     // a folder, also of an adapter, a config.json, or the name of a preset
  std::string base = {};  // folder of the adapter's model; empty: as the adapter says
  int world = 8;
  std::vector<std::string> frozen = {};  // as in PlacedOptions
};

// Error when the model cannot be made out; what is wrong with weights or tokenizer is in the
// result.
Inspection inspect(const InspectionOptions& options);
std::string format_inspection(const Inspection& inspection);
std::string inspection_json(const Inspection& inspection);

}  // namespace fsdp::tools
