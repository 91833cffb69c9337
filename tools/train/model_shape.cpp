// Sizes from a preset, a folder or the keys themselves, and what must agree between these.
#include "tools/train/model_shape.h"

#include <filesystem>
#include <optional>

#include "core/io/patience.h"
#include "core/text/counted.h"
#include "core/text/numbers.h"
#include "models/adapter_folder.h"
#include "models/family.h"
#include "models/hub_names.h"
#include "tools/config/options.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::tools {
namespace {

void take(int64_t& into, int64_t size) {
  if (size > 0) into = size;
}

Activation parse_activation(const std::string& name) {
  try {
    return models::activation_named(name);
  } catch (const Error& error) {
    fail("model.activation: {}", error.what());
  }
}

// A gated MLP has three matrices where the plain MLP has two: 8/3 instead of 4 keeps the
// parameters, rounded up to a multiple of 32.
int64_t default_ffn(const models::ModelConfig& model) {
  if (model.mlp != models::MlpKind::kGated) return 4 * model.hidden;
  return (model.hidden * 8 / 3 + 31) / 32 * 32;
}

void take_sizes(const config::TrainConfig& config, models::ModelConfig& model) {
  const config::ModelSection& c = config.model;
  take(model.hidden, c.hidden_size);
  take(model.layers, c.layers);
  take(model.heads, c.heads);
  if (c.heads > 0) model.kv_heads = c.heads;
  take(model.kv_heads, c.kv_heads);
  if ((c.hidden_size > 0 || c.heads > 0) && model.heads > 0) {
    FSDP_CHECK(c.head_dim > 0 || model.hidden % model.heads == 0,
               "model.heads: expected a divisor of hidden_size {}, got {}", model.hidden,
               model.heads);
    model.head_dim = model.hidden / model.heads;
  }
  take(model.head_dim, c.head_dim);
  if (c.hidden_size > 0) model.ffn = default_ffn(model);
  take(model.ffn, c.ffn);
  if (model.max_positions == 0) model.max_positions = config.data.sequence_length;
  take(model.max_positions, c.max_positions);
}

models::ModelConfig from_sizes(const config::TrainConfig& config) {
  const config::ModelSection& c = config.model;
  FSDP_CHECK(!c.preset.empty() || !c.model_type.empty(),
             "model: expected one of path, preset, or model_type with sizes: --model FOLDER, or "
             "--model PRESET, such as gpt2-124m");
  models::ModelConfig model =
      c.preset.empty() ? models::family_defaults(c.model_type) : models::preset(c.preset);
  FSDP_CHECK(c.model_type.empty() || c.model_type == model.family,
             "model.model_type: preset {} is of family {}, got \"{}\"", c.preset, model.family,
             c.model_type);
  take_sizes(config, model);
  if (!c.activation.empty()) model.activation = parse_activation(c.activation);
  model.tied_head = c.tie_embeddings.value_or(model.tied_head);
  model.shifted_labels = c.shift_labels.value_or(model.shifted_labels);
  model.rope.theta = c.rope_theta.value_or(model.rope.theta);
  model.norm_epsilon = c.norm_epsilon.value_or(model.norm_epsilon);
  model.initializer_range = c.init_deviation.value_or(model.initializer_range);
  return model;
}

// What the section says beside `path` must be what the folder says.
models::ModelConfig from_folder(const config::TrainConfig& config) {
  const config::ModelSection& c = config.model;
  const std::filesystem::path folder(c.path);
  if (!std::filesystem::is_directory(folder)) {
    fail_missing(
        fmt::format("model.path: {}: no such folder{}", c.path, models::instead_of(c.path)));
  }
  FSDP_CHECK(!models::is_adapter_folder(folder) || std::filesystem::exists(folder / "config.json"),
             "model.path: {}: a LoRA adapter, no model; give it as lora.path", c.path);
  const models::ModelConfig model = models::read_config((folder / "config.json").string());
  const auto check = [&](const auto& member, bool same, const auto& found, const auto& given) {
    FSDP_CHECK(same, "{}: {} has {}, got {}", config::key_of(config, member), c.path, found, given);
  };
  const auto same = [&](const auto& given, const auto& found) {
    check(given, !given || *given == found, found, given.value_or(found));
  };
  const auto same_size = [&](const int64_t& given, int64_t found) {
    check(given, given == 0 || given == found, found, given);
  };
  same_size(c.vocab_size, model.vocabulary);
  same_size(c.hidden_size, model.hidden);
  same_size(c.layers, model.layers);
  same_size(c.heads, model.heads);
  same_size(c.kv_heads, model.kv_heads);
  same_size(c.head_dim, model.head_dim);
  same_size(c.ffn, model.ffn);
  same_size(c.max_positions, model.max_positions);
  check(c.model_type, c.model_type.empty() || c.model_type == model.family, model.family,
        c.model_type);
  same(c.tie_embeddings, model.tied_head);
  same(c.shift_labels, model.shifted_labels);
  same(c.rope_theta, model.rope.theta);
  same(c.norm_epsilon, model.norm_epsilon);
  same(c.init_deviation, model.initializer_range);
  FSDP_CHECK(c.activation.empty() || parse_activation(c.activation) == model.activation,
             "model.activation: {} has another one than {}", c.path, c.activation);
  return model;
}

void check_parts(const config::ModelSection& c, const models::ModelConfig& model) {
  FSDP_CHECK(!c.rope_theta || model.positions == models::PositionKind::kRope,
             "model.rope_theta: the family {} has no rotary positions", model.family);
}

// What the folder that a run saves could not say would be read back as something else.
void check_can_be_saved(const config::TrainConfig& config, const models::ModelConfig& model) {
  using Model = models::ModelConfig;
  const Model again = models::parse_config(models::config_json(model, ""), "config.json");
  const auto same_text = [&](const auto& member, const auto& now, const auto& later) {
    FSDP_CHECK(fmt::format("{}", now) == fmt::format("{}", later),
               "{}: the config.json of the family {} cannot say {}; it would be read back as {}",
               config::key_of(config, member), model.family, now, later);
  };
  const auto same = [&](const auto& member, auto Model::*value) {
    same_text(member, model.*value, again.*value);
  };
  const config::ModelSection& c = config.model;
  same(c.kv_heads, &Model::kv_heads);
  same(c.head_dim, &Model::head_dim);
  same(c.ffn, &Model::ffn);
  same(c.max_positions, &Model::max_positions);
  same_text(c.activation, models::activation_name(model.activation),
            models::activation_name(again.activation));
  same(c.tie_embeddings, &Model::tied_head);
  same(c.shift_labels, &Model::shifted_labels);
  same_text(c.rope_theta, model.rope.theta, again.rope.theta);
  same(c.norm_epsilon, &Model::norm_epsilon);
  same(c.dropout, &Model::attention_dropout);
  same(c.dropout, &Model::embedding_dropout);
  same(c.dropout, &Model::residual_dropout);
  same(c.dropout, &Model::mlp_dropout);
}

}  // namespace

namespace {

models::ModelConfig shape_of(const config::TrainConfig& config, int64_t vocabulary) {
  const config::ModelSection& c = config.model;
  models::ModelConfig model = c.path.empty() ? from_sizes(config) : from_folder(config);
  if (c.path.empty()) model.vocabulary = c.vocab_size > 0 ? c.vocab_size : vocabulary;
  if (c.dropout) {
    model.attention_dropout = *c.dropout;
    // Llama and its relatives have none elsewhere, BLOOM none behind the embedding; where norms
    // come last there is one inside the MLP instead.
    const bool elsewhere = model.norm == models::NormKind::kLayerNorm;
    if (elsewhere) model.residual_dropout = *c.dropout;
    if (model.post_norm) {
      model.mlp_dropout = *c.dropout;
    } else if (elsewhere && !model.embedding_norm) {
      model.embedding_dropout = *c.dropout;
    }
  }
  // Also where positions begin again in each document: more sequences hold as much as longer ones.
  const int64_t length = config.data.sequence_length, most = model.max_positions;
  FSDP_CHECK(length <= most, "data.sequence_length: the model has {} positions, got {}{}", most,
             length,
             config.data.packs_documents()
                 ? fmt::format("; with data.pack: documents, a step of the same documents is "
                               "data.sequence_length: {} and {} times train.batch",
                               most, (length + most - 1) / most)
                 : "");
  models::validate(model);
  check_parts(c, model);
  check_can_be_saved(config, model);
  return model;
}

}  // namespace

models::ModelConfig model_config(const config::TrainConfig& config, int64_t vocabulary) {
  try {
    return shape_of(config, vocabulary);
  } catch (const Error& error) {  // models knows no keys
    std::string what = error.what();
    for (const auto& [said, key] :
         {std::pair<std::string_view, std::string_view>{"model family: ", "model.model_type: "},
          {"preset: ", "model.preset: "}}) {
      if (what.starts_with(said)) what.replace(0, said.size(), key);
    }
    fail_like(error, config::with_place(config, what));
  }
}

std::string model_override(const std::string& name, HubNames hub) {
  if (std::filesystem::is_directory(name) || name.find('/') != std::string::npos)
    return "model.path=" + name;
  const bool taken = hub == HubNames::kTaken && !models::preset_named(name).empty();
  if (taken || models::is_preset(name)) return "model.preset=" + name;
  const std::string near = models::nearest_preset(name);
  fail("--model {}: neither a folder nor a preset; {}", name,
       near.empty() ? "fsdp inspect --help lists these" : near);
}

std::string note_on_absent_model(const config::TrainConfig& config) {
  const std::string& path = config.model.path;
  std::error_code unreadable;
  if (path.empty() || std::filesystem::exists(path, unreadable)) return "";
  return fmt::format("model.path: {}: no such folder here{}", path, models::instead_of(path));
}

std::vector<std::string> take_published_sizes(config::TrainConfig& config) {
  config::ModelSection& c = config.model;
  std::error_code unreadable;
  const bool is_absent =
      c.path.find('/') != std::string::npos && !std::filesystem::exists(c.path, unreadable);
  const std::string given = is_absent ? c.path : c.preset;
  const std::string preset = given.empty() ? "" : models::preset_named(given);
  if (preset.empty()) return {};
  const bool of_hub = preset != given;
  std::string& tokenizer = config.data.tokenizer;
  const bool of_bytes = tokenizer.empty() && !config.data.is_tokens();
  if (is_absent) c.path.clear();
  c.preset = preset;
  const bool published = c.vocab_size == 0 && (of_hub || tokenizer.empty());
  if (published) c.vocab_size = models::preset(preset).vocabulary;
  if (of_hub && !std::filesystem::exists(tokenizer, unreadable)) tokenizer.clear();
  if (of_hub) {
    return {
        fmt::format("{}: {}: a name of Hugging Face's hub: the sizes are those of the preset "
                    "{}",
                    is_absent ? "model.path" : "model.preset", given, preset)};
  }
  if (!published || !of_bytes || config.data.training_files().empty()) return {};
  return {
      fmt::format("model.vocab_size: {}, as the preset {} was published; a run of this "
                  "configuration has {}, the tokens of bytes (data.tokenizer)",
                  c.vocab_size, preset, data::ByteTokenizer().vocab_size())};
}

std::string describe(const models::ModelConfig& model) {
  const double parameters = static_cast<double>(model.parameter_count());
  return fmt::format("{}, {}, {:.2f} M parameters", model.family, counted(model.layers, "layer"),
                     parameters / 1e6);
}

std::string describe_trained(const std::vector<Parameter*>& parameters) {
  int64_t all = 0, trained = 0;
  for (const Parameter* parameter : parameters) {
    all += parameter->numel();
    if (parameter->trainable()) trained += parameter->numel();
  }
  if (trained == all) return "";
  return fmt::format("{} of {} parameters are trained ({:.4f} %)", format_count(trained),
                     format_count(all),
                     100 * static_cast<double>(trained) / static_cast<double>(all));
}

}  // namespace fsdp::tools
