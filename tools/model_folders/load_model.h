// A model to be used as it is, not trained: a Hugging Face folder, or the folder of a PEFT adapter
// together with that of its base. What an adapter adds is merged into the weights as they are read.
// Next: models/adapter_folder.h, conversion.h (writing one).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "models/causal_lm.h"
#include "models/weights.h"
#include "tools/launch/launch.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

// generation_config.json of a folder. One that is empty or no JSON is not used, as transformers
// does not use it: config.json then says what it would say.
struct GenerationConfig {
  std::filesystem::path file;
  Json keys = {};            // null: there is none that can be used
  std::string problem = "";  // why it cannot
  bool is_there() const { return !keys.is_null(); }
};
GenerationConfig read_generation_config(const std::filesystem::path& folder);

struct ModelSource {
  std::filesystem::path folder;   // config.json, model.safetensors
  std::filesystem::path adapter;  // adapter_config.json, adapter_model.safetensors; empty: none

  models::ModelConfig config() const;
  // `model`: without low-rank terms. `base`: values of `folder`, which the adapter is merged into.
  models::FillFunction values(models::CausalLM& model, models::ComparedPart compared = {}) const;
  models::FillFunction values(models::CausalLM& model, const models::FillFunction& base) const;
  // For make_tokenizer: the adapter's, else the model's, else bytes.
  std::string default_tokenizer() const;
  // Tokens that end a text: eos_token_id of the model's generation_config.json or, where that does
  // not name any, of its config.json. Error names file and key.
  std::vector<int64_t> end_tokens() const;
  // "generation_config.json: repetition_penalty, top_p": keys by which transformers would choose
  // other tokens than generate's options do, of config.json where that file is missing; "": none.
  std::string unused_choices() const;
  // What these files say that generate does not do: unused choices, unknown keys, end tokens that
  // the model does not have.
  std::vector<std::string> notes_on_generation() const;
};

// `folder`: of a model or of an adapter, or the directory of a run that saved one; `base`: of the
// adapter's model, empty where it says itself. Error when a base is given for what is no adapter,
// and for what is no folder: a preset has no weights.
ModelSource find_model(const std::filesystem::path& folder, const std::filesystem::path& base = "");
// Error for what is no folder, which says what is meant instead.
void check_model_folder(const std::filesystem::path& folder);

// The most tokens that the model can see: nothing bounds a model without a table or angles of
// positions but the lengths that it was trained on.
int64_t most_tokens(const models::ModelConfig& model);
// How many tokens the model sees at a time, in a text of `prompt` tokens that grows by `tokens`.
// The cache and ALiBi's biases have this extent. A model without a bound sees as many as it was
// trained on, and all of the prompt.
int64_t seen_tokens(const models::ModelConfig& model, int64_t prompt, int64_t tokens);

// The model that a command uses, and how.
struct ModelOptions {
  std::string folder;
  std::string base;
  std::string tokenizer;  // "": the model folder's, or bytes if the vocabulary fits
  std::string dtype = "f32";
  std::string strategy;  // "": no_shard on one rank, full_shard on several
};
// A session for using the model.
PlacedOptions options_for_use(const models::ModelConfig& model, int64_t max_length,
                              const ModelOptions& how, const RankContext& rank);
// Gives the session's model its values; on rank 0 `note` gets what is odd about the files.
// Collective; throws AgreedError.
void load_model(Session& session, const ModelSource& source,
                const std::function<void(const std::string& text)>& note);

// Of most bytes of the model's floating-point tensors: a few wider ones, such as norms, do not make
// the whole model wide. Tensors that are no parameters do not count; empty: there are no others.
std::optional<DType> dtype_of_weights(const std::filesystem::path& folder);
// What is odd about the folder's files but does not stop their reading:
// SafetensorsFolder::warnings, unknown keys of config.json.
std::vector<std::string> warnings_about(const std::filesystem::path& folder);

}  // namespace fsdp::tools
