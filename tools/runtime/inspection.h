// What a model is, from its folder, its config.json or the name of a preset: parameters, modules,
// units, files, tokenizer. Values are not read. Not here: what sharding does with a configuration
// (unit_table.h).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/config.h"
#include "tools/runtime/unit_table.h"

namespace fsdp::tools {

// Parameters that have one name and shape in every block are one row: "model.layers.*.mlp.up_proj".
struct ParameterRow {
  std::string name;  // Hugging Face's
  Shape shape;
  int64_t times = 1;
};

struct ParameterCounts {
  int64_t total = 0;  // a tied head once
  int64_t trainable = 0;
  int64_t embedding = 0;  // token and position tables
  int64_t head = 0;       // 0: tied
  int64_t other() const { return total - embedding - head; }
};

struct WeightsSummary {
  struct OfDtype {
    int64_t tensors = 0, elements = 0;
  };
  std::map<std::string, uintmax_t> files;  // name -> bytes
  std::map<std::string, OfDtype> dtypes;   // as in the files: "BF16"
  std::vector<std::string> warnings;
  std::string problem;  // "": they are those of the model
};

struct TokenizerSummary {
  std::map<std::string, std::string> components;  // "model" -> "BPE"; those the file has
  int64_t vocabulary = 0;                         // the largest id and 1
  int64_t added = 0;
  std::map<std::string, int64_t> specials;  // content -> id
  int32_t end_of_text = -1;
  std::string problem;  // "": this program can use it
};

struct Inspection {
  std::string source;
  models::ModelConfig config;
  std::string dtype;  // of config.json; "": it does not say
  ParameterCounts counts;
  std::vector<ParameterRow> parameters;
  std::vector<UnitRow> units;  // a unit per transformer block, for `world` ranks of FULL_SHARD
  int world = 1;
  std::optional<WeightsSummary> weights;      // of a folder
  std::optional<TokenizerSummary> tokenizer;  // of a folder that has one
  bool sound() const;                         // no problem
};

struct InspectionOptions {
  std::string source;  // a folder, a config.json, or the name of a preset
  int world = 8;
  std::vector<std::string> frozen = {};  // as in SessionOptions
};

// Error when the model cannot be made out; what is wrong with weights or tokenizer is in the
// result.
Inspection inspect(const InspectionOptions& options);
std::string format_inspection(const Inspection& inspection);
std::string inspection_json(const Inspection& inspection);

}  // namespace fsdp::tools
