// Translation of options; what may surprise about them; the backends that were chosen become the
// places of a session.
#include "tools/train/config_to_session.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

#include "core/text/byte_size.h"
#include "core/text/counted.h"
#include "models/adapter_folder.h"
#include "tools/config/guests.h"
#include "tools/config/key_values.h"
#include "tools/config/options.h"
#include "tools/config/step_shape.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
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
  const std::string key = config::key_of(config, fsdp.wrap_classes);
  return [config, key, policy = comm::wrap_classes(classes)](Module& root) {
    try {
      return policy(root);
    } catch (const Error& error) {
      const std::string what = error.what();
      fail("{}", config::with_place(config, key + what.substr(what.find(": "))));
    }
  };
}

// Whether embedding and head are units of their own, see sharding.md.
bool splits_root(const config::TrainConfig& config, const models::ModelConfig& model) {
  using config::RootUnit, config::Wrap;
  const config::FsdpSection& fsdp = config.fsdp;
  if (!fsdp.root) {
    return !model.tied_head && (fsdp.wrap == Wrap::kTransformerBlock || fsdp.wrap == Wrap::kClass);
  }
  FSDP_CHECK(*fsdp.root == RootUnit::kWhole || !model.tied_head,
             "fsdp.root: split: the head of this model is tied to its embedding, and what they "
             "share must lie in one unit; expected whole (or model.tie_embeddings: false)");
  return *fsdp.root == RootUnit::kSplit;
}

// A number too large for an int stays too large, so that later checks refuse it: a cast might not.
int to_int(int64_t value) {
  return static_cast<int>(std::min<int64_t>(value, std::numeric_limits<int>::max()));
}

comm::FsdpOptions fsdp_options(const config::TrainConfig& config, int ranks) {
  const config::TrainSection& train = config.train;
  const config::FsdpSection& c = config.fsdp;
  comm::FsdpOptions out = c.options;
  out.shard_size = to_int(c.shard_size);
  out.reshard_group_size = to_int(c.reshard_group_size);
  out.param_dtype = train.dtype;
  out.reduce_dtype = train.reduce_dtype.value_or(accumulation_dtype(train.dtype));
  out.forward_prefetch = c.forward_prefetch ? to_int(c.prefetch_depth) : 0;
  out.units_in_flight = to_int(c.units_in_flight);
  out.micro_steps = to_int(config::step_shape(config, ranks).micro_steps);
  out.master_dtype = train.master_dtype;
  const bool wide_masters = out.master_dtype.value_or(DType::kF32) == DType::kF32;
  if (train.stochastic_rounding && wide_masters) {
    out.rounding_seed = static_cast<uint64_t>(train.seed);
  }
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
             "train.loss_scale.rule: f16 needs loss scaling; expected torch or {}, got none",
             config::guest_names<config::GuestLossScale>());
  if (off) return {};
  // In passes the scale may not depend on the number of ranks that they are dealt to.
  const config::StepShape shape = config::step_shape(config, ranks);
  const bool in_passes = shape.rows_per_pass > 0;
  optim::LossScalerOptions out =
      !c.rule.guest ? optim::LossScalerOptions::torch()
                    : c.rule.guest->options(in_passes ? 1 : ranks,
                                            in_passes ? shape.passes() : shape.micro_steps);
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

// What only some of the dtypes that units compute in can have.
void check_computed(const config::TrainSection& train, const std::vector<DType>& computed) {
  FSDP_CHECK(
      !train.stochastic_rounding || train.master_dtype == DType::kBF16 ||
          std::count(computed.begin(), computed.end(), DType::kBF16) > 0,
      "train.stochastic_rounding: rounds master weights to bf16, but the computation is in {}",
      fsdp::name_of(train.dtype));
  FSDP_CHECK(train.master_dtype != DType::kF16 ||
                 std::count(computed.begin(), computed.end(), DType::kF16) ==
                     static_cast<int64_t>(computed.size()),
             "train.master_dtype: f16: expected all units to compute in f16");
  const bool wide = std::ranges::none_of(computed, [](DType each) { return size_of(each) == 2; });
  FSDP_CHECK(train.attention_deterministic || !wide,
             "train.attention_deterministic: false is for attention in bf16 or f16, but the "
             "computation is in {}",
             fsdp::name_of(train.dtype));
  for (const DType states : computed) {
    FSDP_CHECK(!train.logits_dtype || ops::can_have_logits(states, *train.logits_dtype),
               "train.logits_dtype: expected {}{}, because {} in {}, got {}",
               fsdp::name_of(accumulation_dtype(states)), states == DType::kBF16 ? " or bf16" : "",
               computed.size() > 1 ? "a unit computes" : "the computation is",
               fsdp::name_of(states), fsdp::name_of(*train.logits_dtype));
  }
}

}  // namespace

PlacedOptions session_options(const config::TrainConfig& config, const models::ModelConfig& model,
                              int ranks, const BackendOptions& backend) {
  const config::TrainSection& train = config.train;
  PlacedOptions options = {{.model = model,
                            .lora = lora_config(config),
                            .max_length = config.data.sequence_length,
                            .wrap = wrap_policy(config),
                            .fsdp = fsdp_options(config, ranks),
                            .optimizer = config.optimizer(),
                            .decay = train.optimizer.decay,
                            .clip_norm = train.clip_norm,
                            .clip_power = train.clip_type.power,
                            .loss_scale = loss_scale_options(config, ranks),
                            .loss_mean = train.loss_mean,
                            .recompute = train.recompute.mode,
                            .recompute_every = train.recompute.every,
                            .head = {.logits_dtype = train.logits_dtype,
                                     .chunk_bytes = parse_byte_size(train.logits_chunk_bytes,
                                                                    "train.logits_chunk_bytes")},
                            .frozen = train.freeze,
                            .seed = static_cast<uint64_t>(train.seed)},
                           backend};
  try {
    options.split_root = splits_root(config, model);
    comm::check_options(options.fsdp, ranks);
    FSDP_CHECK(options.fsdp.offload != comm::Offload::kNvme || !config.fsdp.offload_folder.empty(),
               "fsdp.offload: nvme: expected fsdp.offload_folder, a folder of the disk");
    check_computed(train, computed_dtypes(options.fsdp));
    FSDP_CHECK(
        !train.buffer_dtype || has_position_values(model),
        "train.buffer_dtype: {} has no effect on {}: it has neither rotary positions nor ALiBi",
        fsdp::name_of(*train.buffer_dtype), model.family);
  } catch (const Error& error) {
    fail("{}", config::with_place(config, error.what()));
  }
  options.model.buffer_dtype = train.buffer_dtype;
  options.backend.offload_folder = config.fsdp.offload_folder;
  options.backend.cpu.synchronous = config.runtime.synchronous;
  options.backend.cpu.fixed_tiles = options.fsdp.fixed_order;
  if (auto& cuda = options.backend.cuda) {
    cuda->synchronous = config.runtime.synchronous;
    cuda->attention_deterministic = train.attention_deterministic;
  }
  return options;
}

namespace {

void add_remarks_on_data(const config::StepShape& train, int64_t sequences, int ranks,
                         std::vector<std::string>& out) {
  if (train.batch > sequences) {
    out.push_back(
        fmt::format("train.batch is {}, the data has {}: every step is an epoch "
                    "and takes them all",
                    train.batch, counted(sequences, "sequence")));
  }
  const int64_t rows = (std::min(train.batch, sequences) + ranks - 1) / ranks;
  if (train.rows_per_pass == 0 && train.micro_steps > rows) {
    out.push_back(
        fmt::format("train.micro_steps is {}, a rank has at most {} in a step: "
                    "the other micro-steps are empty",
                    train.micro_steps, counted(rows, "sequence")));
  }
}

// The rate where the schedule ends before the run, or behind it.
std::string rates_beside(const optim::Schedule& s, int64_t total, int64_t steps) {
  const double first = s.rate(total), last = s.rate(steps - 1);
  if (total > steps) {
    return fmt::format("the last update has rate {:.2e}, the schedule ends at {:.2e}", last, first);
  }
  const bool one = total + 1 == steps;
  const std::string beyond = one ? fmt::format("update {} has", steps)
                                 : fmt::format("updates {} to {} have", total + 1, steps);
  if (first == 0 && last == 0) {
    return fmt::format("{} rate 0 and {} nothing", beyond, one ? "trains" : "train");
  }
  return first == last ? fmt::format("{} rate {:.2e}", beyond, first)
                       : fmt::format("{} rates from {:.2e} to {:.2e}", beyond, first, last);
}

// A schedule that the run does not show as it is written.
void add_remarks_on_schedule(const config::TrainConfig& config, std::vector<std::string>& out) {
  using Kind = optim::ScheduleKind;
  const optim::Schedule s = config.schedule();
  const int64_t steps = config.train.steps, before = s.zero_warmup + s.warmup;
  if (before >= steps && s.warmup > 0) {
    out.push_back(
        fmt::format("train.schedule.warmup is {}, the run has {}: the rate never reaches "
                    "train.lr",
                    s.warmup, counted(steps, "step")));
  }
  if (s.min_lr > s.peak) {
    out.push_back(fmt::format("train.schedule.min_lr is {:g}, above train.lr {:g}: the rate rises",
                              s.min_lr, s.peak));
  }
  const int64_t total = config.train.schedule.total;  // 0: not given
  if (s.kind == Kind::kWarmupStableDecay && s.warmup + s.decay_updates > s.total) {
    out.push_back(
        fmt::format("train.schedule.decay_steps is {}, but {} follow the warm-up: the decay ends "
                    "after the schedule",
                    s.decay_updates, std::max<int64_t>(s.total - s.warmup, 0)));
  }
  if (total > 0 && total != steps) {
    out.push_back(fmt::format("train.schedule.total is {}, the run has {}: {}", total,
                              counted(steps, "step"), rates_beside(s, total, steps)));
  }
}

}  // namespace

std::vector<std::string> remarks(const config::TrainConfig& config,
                                 const models::ModelConfig& model, int ranks,
                                 std::optional<int64_t> sequences) {
  const config::TrainSection& train = config.train;
  const config::FsdpSection& c = config.fsdp;
  std::vector<std::string> out;
  if (!config.length_note.empty()) out.push_back(config.length_note);
  out.insert(out.end(), config.notes.begin(), config.notes.end());
  if (sequences) {
    add_remarks_on_data(config::step_shape(config, ranks), *sequences, ranks, out);
  }
  add_remarks_on_schedule(config, out);
  if (train.buffer_dtype && size_of(*train.buffer_dtype) < size_of(DType::kF32)) {
    const bool rotary = model.positions == models::PositionKind::kRope;
    out.push_back(fmt::format("train.buffer_dtype is {}: {} values lose digits",
                              fsdp::name_of(*train.buffer_dtype), rotary ? "rotary" : "ALiBi"));
  }
  if (train.master_dtype == DType::kBF16 && !train.stochastic_rounding) {
    out.push_back(
        "train.master_dtype is bf16, rounded to nearest: updates below 1/512 of a weight are lost; "
        "train.stochastic_rounding: true keeps them on average");
  }
  if (!train.attention_deterministic) {
    out.push_back(
        "train.attention_deterministic is false: where cuDNN computes attention its dq is added up "
        "in "
        "any order: the same run again, a resume and a replay differ in the last bits");
  }
  const bool asked = config.places.contains(config::key_of(config, c.options.strategy));
  if (ranks == 1 && asked && c.options.strategy != comm::Strategy::kNoShard) {
    out.push_back(
        fmt::format("fsdp.strategy: {} on one rank: no memory saving possible: parameters, "
                    "gradients and optimizer state take 1.00 of what they take with no_shard",
                    comm::choice_name(c.options.strategy)));
  }
  const int shards = comm::shard_group_size(fsdp_options(config, ranks), ranks);
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

Places make_places(comm::Communicator& world, const PlacedOptions& options) {
  BackendOptions backend = options.backend;
  // What release_arena gives back in every step is memory of the backend, in the order of its
  // streams. Registered memory has none: to free it the host would wait for the GPU, and to
  // register it again for all ranks.
  if (backend.nccl && options.fsdp.release_arena) backend.nccl->register_buffers = false;
  Places places;
  places.device = make_backend(backend, options.fsdp.param_dtype);
  places.host = [backend](Backend& device) { return make_host_backend(backend, device); };
  places.file = [backend, owner = fmt::format("rank {}", world.rank())](Backend& device) {
    return make_file_backend(backend, device, owner);
  };
  places.devices = make_gpu_world(world, backend, *places.device);
  check_products(backend, computed_dtypes(options.fsdp));
  return places;
}

Session place_session(comm::Communicator& world, const PlacedOptions& options) {
  return Session(world, make_places(world, options), options);
}

}  // namespace fsdp::tools
