// Folders that hold a model and what another implementation computed from it: what `fsdp verify`
// compares with. Two layouts, told apart by their files:
//   model  reference.safetensors: one batch with its logits and gradients; trajectory.safetensors:
//          the batches of a training run and its final parameters; generation.json, if there: texts
//          continued
//   run    batches.safetensors: the batches of a training run on several ranks;
//          final[_<variant>].safetensors: its final parameters
// both with config.json, model.safetensors and reference.json (losses, options, limits). The folder
// of a LoRA adapter has adapter_config.json and adapter_model.safetensors instead of the first two,
// which lie where the former says.
// Batches are input_ids and labels, and if there, of the same shape: attention_mask, 0 where a row
// is padded; where a row has documents that do not see each other, position_ids, which begin at 0
// with each, or first_key, the column where the document of a token begins.
// Read next: tools/verify/verification.h. Not here: computing anything.
#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "models/config.h"
#include "optim/optimizer.h"
#include "tools/config/config.h"
#include "tools/engine/session.h"
#include "tools/verify/difference_report.h"

namespace fsdp::tools {

// The folder is well formed, but needs something that this program does not do.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// Tensors of one file whose names have a prefix in common ("grad.").
class ExpectedTensors {
 public:
  ExpectedTensors(const std::filesystem::path& path, std::string prefix);

  const std::filesystem::path& path() const { return file_.path(); }
  std::vector<std::string> names() const;  // without the prefix
  bool contains(const std::string& name) const { return file_.contains(prefix_ + name); }
  std::string where(const std::string& name) const;  // file and tensor, for errors
  std::vector<int64_t> shape(const std::string& name) const;
  // Error that names file and tensor when it is absent or of another shape.
  void check_shape(const std::string& name, const std::vector<int64_t>& shape) const;
  std::vector<double> read(const std::string& name) const;  // of any shape
  std::vector<double> read(const std::string& name, const std::vector<int64_t>& shape) const;
  std::vector<int32_t> read_integers(const std::string& name) const;
  double largest() const;  // |value| of all tensors

 private:
  SafetensorsFile file_;
  std::string prefix_;
};

// How the ranks of a described run worked together.
struct RunSettings {
  comm::FsdpOptions fsdp;
  // How many ranks the result belongs to, where their own means, or who reduces with whom, are part
  // of the result. Empty: any number of ranks gives the same result.
  std::optional<int> ranks;
  LossMean loss_mean = LossMean::kTokens;
  optim::LossScalerOptions loss_scale;
  std::vector<std::string> frozen;  // Hugging Face names
};

// What happens in some steps only.
struct StepEvents {
  std::vector<int64_t> left_out;     // blocks; their parameters may be absent from the gradients
  std::optional<int> infinite_rank;  // whose loss is multiplied by infinity
};

// One forward and backward pass. Limits stand in the README of the fixtures; empty: print only.
struct ExpectedPass {
  Batch batch;
  StepEvents events;
  double loss = 0;
  Limit loss_limit;
  bool loss_limit_is_absolute = false;
  std::optional<ExpectedTensors> logits;  // the tensor "logits" (rows, length, V)
  Limit logits_limit;
  std::optional<ExpectedTensors> gradients;  // by Hugging Face name
  Limit gradients_limit;
  std::optional<ExpectedTensors> merged;  // of an adapter: weights of the base after merging
  Limit merged_limit;
  // Compared for all gradients together, ||a - b|| / ||b||: where 16 bits round every element
  // differently.
  std::optional<ExpectedTensors> all_gradients;  // by Hugging Face name
  Limit all_gradients_limit;
  std::map<std::string, double> gradient_norms;  // where gradients themselves are not known
  double gradient_divisor = 1;                   // of ours: the loss scale
};

struct ExpectedStep {
  Batch batch;
  double learning_rate = 0;
  double loss = 0;
  double grad_norm = 0;              // of a skipped step: anything
  std::optional<double> loss_scale;  // with loss scaling
  bool skipped = false;
  StepEvents events;
};

struct ExpectedTraining {
  std::string variant;  // "" or a name within reference.json
  RunSettings run;
  optim::OptimizerOptions optimizer;  // AdamW, decay on tensors of two or more dimensions
  double clip_norm = 1;
  double clip_power = 2;
  std::vector<ExpectedStep> steps;
  std::optional<ExpectedTensors> final_parameters;  // by Hugging Face name
  Limit loss_limit;                                 // relative
  Limit grad_norm_limit;                            // relative
  Limit parameter_limit;                            // absolute
  Limit parameter_rms_limit;
  // The limit for the parts whose true gradient is zero, where rounding noise decides: loose, and
  // not set by set_all_limits.
  Limit key_bias_limit;
};

// Texts continued greedily, end-of-text disabled, as many tokens each: all prompts as one batch,
// padded in front, and each prompt alone.
struct ExpectedGeneration {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<int32_t>> batched, alone;  // the new tokens of each prompt
  Limit limit;                                       // of the number of other tokens
};

struct ExpectedResults {
  std::filesystem::path folder;
  std::filesystem::path model_folder;      // with config.json and model.safetensors
  std::optional<models::LoraConfig> lora;  // `folder` is that of an adapter
  std::string layout;                      // "model", "run"
  DType dtype = DType::kF32;               // of compute
  models::ModelConfig config;
  RunSettings run;  // of the pass
  std::optional<ExpectedPass> pass;
  std::optional<ExpectedGeneration> generation;
  std::vector<ExpectedTraining> trajectories;
  std::vector<std::string> left_out;  // runs and passes to compare that cannot be, and why
  std::vector<std::string> notes;     // what else the reader of a report should know

  int64_t longest_sequence() const;
  // Moves the runs that need another number of ranks to `left_out`; Error when none is left.
  void leave_out_runs_of_other_ranks(int ranks);
  void set_all_limits(double limit);
};

struct ExpectedChoice {
  // What is computed in; the limits depend on it. Empty: f32 or, in the layout "run", the run's.
  std::optional<DType> dtype;
  bool trajectory = false;  // also the training run of the layout "model" ("run" is nothing else)
  // Also the variants that repeat a run by other means that are ours, such as another strategy.
  bool all_variants = false;
};
// Throws Unsupported with one line that names the option, Error for anything missing or wrong.
ExpectedResults read_expected_results(const std::filesystem::path& folder,
                                      const ExpectedChoice& choice);

// Elements [first, end) of a parameter that have no gradient because softmax ignores them: the key
// part of the bias, in channels that are not rotated. None for all others.
struct ElementRange {
  int64_t first = 0;
  int64_t end = 0;
};
std::vector<ElementRange> key_bias(const models::ModelConfig& config, const std::string& parameter);

}  // namespace fsdp::tools
