// Sizes of the model and translation of options.
#include "tools/train/config_to_session.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <sstream>

#include "core/format_count.h"
#include "models/adapter_folder.h"
#include "models/family.h"
#include "tools/config/key_values.h"
#include "tools/launch/launch.h"

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
             "model: expected one of path, preset, or model_type with sizes");
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
models::ModelConfig from_folder(const config::ModelSection& c) {
  const std::filesystem::path folder(c.path);
  FSDP_CHECK(std::filesystem::is_directory(folder), "model.path: {}: no such folder", c.path);
  FSDP_CHECK(!models::is_adapter_folder(folder) || std::filesystem::exists(folder / "config.json"),
             "model.path: {}: a LoRA adapter, no model; give it as lora.path", c.path);
  const models::ModelConfig model = models::read_config((folder / "config.json").string());
  const auto same = [&](const char* key, const auto& given, const auto& found) {
    FSDP_CHECK(!given || *given == found, "model.{}: {} has {}, got {}", key, c.path, found,
               *given);
  };
  const auto same_size = [&](const char* key, int64_t given, int64_t found) {
    same(key, given > 0 ? std::optional(given) : std::nullopt, found);
  };
  same_size("vocab_size", c.vocab_size, model.vocabulary);
  same_size("hidden_size", c.hidden_size, model.hidden);
  same_size("layers", c.layers, model.layers);
  same_size("heads", c.heads, model.heads);
  same_size("kv_heads", c.kv_heads, model.kv_heads);
  same_size("head_dim", c.head_dim, model.head_dim);
  same_size("ffn", c.ffn, model.ffn);
  same_size("max_positions", c.max_positions, model.max_positions);
  same("model_type", c.model_type.empty() ? std::nullopt : std::optional(c.model_type),
       model.family);
  same("tie_embeddings", c.tie_embeddings, model.tied_head);
  same("shift_labels", c.shift_labels, model.shifted_labels);
  same("rope_theta", c.rope_theta, model.rope.theta);
  same("norm_epsilon", c.norm_epsilon, model.norm_epsilon);
  same("init_deviation", c.init_deviation, model.initializer_range);
  FSDP_CHECK(c.activation.empty() || parse_activation(c.activation) == model.activation,
             "model.activation: {} has another one than {}", c.path, c.activation);
  return model;
}

void check_parts(const config::ModelSection& c, const models::ModelConfig& model) {
  FSDP_CHECK(!c.rope_theta || model.positions == models::PositionKind::kRope,
             "model.rope_theta: the family {} has no rotary positions", model.family);
}

// What the folder that a run saves could not say would be read back as something else.
void check_can_be_saved(const models::ModelConfig& model) {
  using Model = models::ModelConfig;
  struct Field {
    const char* key;
    std::function<std::string(const Model&)> value;
  };
  const auto text = [](auto Model::*member) {
    return [member](const Model& m) { return fmt::format("{}", m.*member); };
  };
  const std::vector<Field> fields = {
      {"model.kv_heads", text(&Model::kv_heads)},
      {"model.head_dim", text(&Model::head_dim)},
      {"model.ffn", text(&Model::ffn)},
      {"model.max_positions", text(&Model::max_positions)},
      {"model.activation",
       [](const Model& m) { return std::string(models::activation_name(m.activation)); }},
      {"model.tie_embeddings", text(&Model::tied_head)},
      {"model.shift_labels", text(&Model::shifted_labels)},
      {"model.rope_theta", [](const Model& m) { return fmt::format("{}", m.rope.theta); }},
      {"model.norm_epsilon", text(&Model::norm_epsilon)},
      {"model.dropout", text(&Model::attention_dropout)},
      {"model.dropout", text(&Model::embedding_dropout)},
      {"model.dropout", text(&Model::residual_dropout)},
      {"model.dropout", text(&Model::mlp_dropout)}};
  const Model again = models::parse_config(models::config_json(model, ""), "config.json");
  for (const auto& [key, value] : fields) {
    FSDP_CHECK(value(model) == value(again),
               "{}: the config.json of the family {} cannot say {}; it would be read back as {}",
               key, model.family, value(model), value(again));
  }
}

}  // namespace

models::ModelConfig model_config(const config::TrainConfig& config, int64_t vocabulary) {
  const config::ModelSection& c = config.model;
  models::ModelConfig model = c.path.empty() ? from_sizes(config) : from_folder(c);
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
  FSDP_CHECK(config.data.sequence_length <= model.max_positions,
             "data.sequence_length: the model has {} positions, got {}", model.max_positions,
             config.data.sequence_length);
  models::validate(model);
  check_parts(c, model);
  check_can_be_saved(model);
  return model;
}

namespace {

comm::WrapPolicy wrap_policy(const config::TrainConfig& config) {
  const config::FsdpSection& fsdp = config.fsdp;
  using config::Wrap;
  constexpr int64_t kPyTorchMinNumParams = 100'000'000;
  if (fsdp.wrap == Wrap::kNone) return comm::wrap_nothing();
  if (fsdp.wrap == Wrap::kSize) {
    return comm::wrap_by_size(fsdp.min_num_params.value_or(kPyTorchMinNumParams));
  }
  // accelerate writes several classes into one text, with commas.
  std::vector<std::string> classes;
  for (const std::string& item : fsdp.wrap_classes) {
    std::stringstream parts(item);
    for (std::string name; std::getline(parts >> std::ws, name, ',');) classes.push_back(name);
  }
  if (classes.empty()) return {};
  // What the policy finds wrong is in the key.
  return [config, policy = comm::wrap_classes(classes)](Module& root) {
    try {
      return policy(root);
    } catch (const Error& error) {
      const std::string what = error.what();
      fail("{}", config::with_place(config, "fsdp.wrap_classes" + what.substr(what.find(": "))));
    }
  };
}

// Beyond an int is beyond what is checked later, and not what is left after a cast.
int to_int(int64_t value) {
  return static_cast<int>(std::min<int64_t>(value, std::numeric_limits<int>::max()));
}

std::vector<comm::UnitOverride> unit_overrides(const config::FsdpSection& fsdp) {
  std::vector<comm::UnitOverride> out;
  for (const config::UnitSection& c : fsdp.units) {
    out.push_back({.match = c.match,
                   .strategy = c.strategy,
                   .reshard_after_forward = c.reshard_after_forward,
                   .param_dtype = c.param_dtype,
                   .reduce_dtype = c.reduce_dtype,
                   .place = c.place});
    if (c.reshard_group_size) {
      out.back().reshard_group_size = to_int(*c.reshard_group_size);
    }
  }
  return out;
}

comm::FsdpOptions fsdp_options(const config::TrainConfig& config) {
  const config::TrainSection& train = config.train;
  const config::FsdpSection& c = config.fsdp;
  comm::FsdpOptions out = c.options;
  out.shard_size = to_int(c.shard_size);
  out.reshard_group_size = to_int(c.reshard_group_size);
  out.param_dtype = train.dtype;
  out.reduce_dtype = train.reduce_dtype.value_or(accumulation_dtype(train.dtype));
  out.forward_prefetch = c.forward_prefetch ? to_int(c.prefetch_depth) : 0;
  out.units_in_flight = to_int(c.units_in_flight);
  out.micro_steps = to_int(train.micro_steps);
  if (train.stochastic_rounding) out.rounding_seed = static_cast<uint64_t>(train.seed);
  out.units = unit_overrides(c);
  return out;
}

optim::LossScalerOptions loss_scale_options(const config::TrainConfig& config, int ranks) {
  using config::LossScaling;
  const config::TrainSection& train = config.train;
  const bool f16 = config.uses_f16();
  const config::LossScaleSection& c = train.loss_scale;
  const bool automatic = c.rule == LossScaling::kAuto;
  const bool off = c.rule == LossScaling::kNone || (automatic && !f16);
  FSDP_CHECK(!off || !f16,
             "train.loss_scale.rule: f16 needs loss scaling; expected torch or fairseq, got none");
  if (off) return {};
  optim::LossScalerOptions out = c.rule == LossScaling::kFairseq
                                     ? optim::LossScalerOptions::fairseq(ranks, train.micro_steps)
                                     : optim::LossScalerOptions::torch();
  out.initial = c.initial.value_or(out.initial);
  out.rule = {.growth = c.growth.value_or(out.rule.growth),
              .backoff = c.backoff.value_or(out.rule.backoff),
              .interval = c.interval.value_or(out.rule.interval),
              .tolerance = c.tolerance.value_or(out.rule.tolerance),
              .floor = c.floor.value_or(out.rule.floor),
              .minimum = c.minimum.value_or(out.rule.minimum)};
  FSDP_CHECK(out.rule.minimum < out.initial,
             "train.loss_scale.minimum: expected less than the initial scale {}, got {}",
             out.initial, out.rule.minimum);
  FSDP_CHECK(out.rule.floor <= out.initial,
             "train.loss_scale.floor: expected at most the initial scale {}, got {}", out.initial,
             out.rule.floor);
  return out;
}

}  // namespace

std::optional<models::LoraConfig> lora_config(const config::TrainConfig& config) {
  const config::LoraSection& c = config.lora;
  if (c.r == 0 && c.path.empty()) return std::nullopt;
  models::LoraConfig lora = {.r = c.r,
                             .alpha = c.alpha,
                             .targets = c.targets,
                             .target_pattern = "",
                             .rank_stabilised = c.rslora,
                             .base = ""};
  if (!c.path.empty()) lora = models::read_adapter_config(c.path);
  lora.dropout = c.dropout.value_or(lora.dropout);
  // Absolute: the adapter will lie in another folder than the one this runs in.
  lora.base =
      config.model.path.empty() ? "" : std::filesystem::absolute(config.model.path).string();
  return lora;
}

namespace {

bool has_position_values(const models::ModelConfig& model) {
  return model.positions == models::PositionKind::kRope ||
         model.positions == models::PositionKind::kAlibi;
}

}  // namespace

SessionOptions session_options(const config::TrainConfig& config, const models::ModelConfig& model,
                               int ranks, const BackendOptions& backend) {
  const config::TrainSection& train = config.train;
  SessionOptions options = {.model = model,
                            .lora = lora_config(config),
                            .max_length = config.data.sequence_length,
                            .wrap = wrap_policy(config),
                            .fsdp = fsdp_options(config),
                            .backend = backend,
                            .optimizer = config.optimizer(),
                            .decay = train.optimizer.decay,
                            .clip_norm = train.clip_norm,
                            .clip_power = train.clip_type.power,
                            .loss_scale = loss_scale_options(config, ranks),
                            .loss_mean = train.loss_mean,
                            .recompute = train.recompute.mode,
                            .recompute_every = train.recompute.every,
                            .frozen = train.freeze,
                            .seed = static_cast<uint64_t>(train.seed)};
  try {
    comm::check_options(options.fsdp, ranks);
    const std::vector<DType> computed = computed_dtypes(options.fsdp);
    FSDP_CHECK(
        !train.stochastic_rounding ||
            std::count(computed.begin(), computed.end(), DType::kBF16) > 0,
        "train.stochastic_rounding: rounds master weights to bf16, but the computation is in {}",
        fsdp::name_of(train.dtype));
    FSDP_CHECK(
        !train.buffer_dtype || has_position_values(model),
        "train.buffer_dtype: {} has no effect on {}: it has neither rotary positions nor ALiBi",
        fsdp::name_of(*train.buffer_dtype), model.family);
  } catch (const Error& error) {
    fail("{}", config::with_place(config, error.what()));
  }
  options.model.buffer_dtype = train.buffer_dtype;
  options.backend.cpu.synchronous = config.runtime.synchronous;
  if (options.backend.cuda) options.backend.cuda->synchronous = config.runtime.synchronous;
  return options;
}

namespace {

void add_remarks_on_data(const config::TrainSection& train, int64_t sequences, int ranks,
                         std::vector<std::string>& out) {
  if (train.batch > sequences) {
    out.push_back(
        fmt::format("train.batch is {}, the data has {} sequences: every step is an epoch "
                    "and takes them all",
                    train.batch, sequences));
  }
  const int64_t rows = (std::min(train.batch, sequences) + ranks - 1) / ranks;
  if (train.micro_steps > rows) {
    out.push_back(
        fmt::format("train.micro_steps is {}, a rank has at most {} sequences in a step: "
                    "the other micro-steps are empty",
                    train.micro_steps, rows));
  }
}

}  // namespace

std::vector<std::string> remarks(const config::TrainConfig& config,
                                 const models::ModelConfig& model, int ranks,
                                 std::optional<int64_t> sequences) {
  const config::TrainSection& train = config.train;
  const config::FsdpSection& c = config.fsdp;
  std::vector<std::string> out;
  if (sequences) add_remarks_on_data(train, *sequences, ranks, out);
  if (train.buffer_dtype && size_of(*train.buffer_dtype) < size_of(DType::kF32)) {
    const bool rotary = model.positions == models::PositionKind::kRope;
    out.push_back(fmt::format("train.buffer_dtype is {}: {} values lose digits",
                              fsdp::name_of(*train.buffer_dtype), rotary ? "rotary" : "ALiBi"));
  }
  const int shards = comm::shard_group_size(fsdp_options(config), ranks);
  if (c.reshard_group_size == shards) {
    out.push_back(
        fmt::format("fsdp.reshard_group_size is {}, all ranks of a shard group: it has no effect",
                    c.reshard_group_size));
  }
  if (c.options.accumulation == comm::Accumulation::kReduceScatterEach && shards == ranks) {
    out.push_back("fsdp.accumulation: without replicas reduce_scatter_each is reduce_each");
  }
  return out;
}

void check_same_config(comm::Communicator& world, const config::TrainConfig& config) {
  const std::vector<std::string> own = config::keys_of_each_rank();
  std::vector<std::string> lines;
  for (const auto& [key, value] : config::key_values(config)) {
    const bool differs = std::find(own.begin(), own.end(), key) != own.end();
    lines.push_back(key + ": " + (differs ? "" : value));
  }
  check_same_settings(world, "configurations", lines);
}

std::string model_override(const std::string& name) {
  const bool preset = !models::preset_named(name).empty();
  const bool folder =
      std::filesystem::is_directory(name) || (!preset && name.find('/') != std::string::npos);
  if (folder || preset) return (folder ? "model.path=" : "model.preset=") + name;
  const std::string near = models::near_preset(name);
  fail("--model {}: neither a folder nor a preset; {}", name,
       near.empty() ? "fsdp inspect --help lists these" : "the nearest preset is " + near);
}

std::string preset_note(const std::string& name) {
  const std::string preset = name.empty() ? "" : models::preset_named(name);
  if (preset.empty() || preset == name) return "";
  return fmt::format("model.preset: {} is taken as the preset {}: its sizes, not its weights", name,
                     preset);
}

std::string describe(const models::ModelConfig& model) {
  const double parameters = static_cast<double>(model.parameter_count());
  return fmt::format("{}, {} layers, {:.2f} M parameters", model.family, model.layers,
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
