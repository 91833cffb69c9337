// What a configuration means beyond its fields: the schedule, and the ranges of values.
// Contract: tools/config/config.h.
#include "tools/config/config.h"

#include "core/error.h"

namespace fsdp::config {
namespace {

template <typename T>
void at_least(const char* key, T value, T least) {
  FSDP_CHECK(value >= least, "{}: expected at least {}, got {}", key, least, value);
}

// [0, 1)
void share(const char* key, double value) {
  FSDP_CHECK(value >= 0 && value < 1, "{}: expected a number from 0 to below 1, got {}", key,
             value);
}

void check_model(const ModelSection& c) {
  for (const auto& [key, value] : {std::pair{"model.vocab_size", c.vocab_size},
                                   {"model.hidden_size", c.hidden_size},
                                   {"model.layers", c.layers},
                                   {"model.heads", c.heads},
                                   {"model.kv_heads", c.kv_heads},
                                   {"model.head_dim", c.head_dim},
                                   {"model.ffn", c.ffn},
                                   {"model.max_positions", c.max_positions}}) {
    at_least<int64_t>(key, value, 0);
  }
  if (c.dropout) share("model.dropout", *c.dropout);
  FSDP_CHECK(c.path.empty() || c.preset.empty(),
             "model.preset: expected nothing beside model.path, got \"{}\"", c.preset);
}

void check_schedule(const ScheduleSection& c) {
  at_least<int64_t>("train.schedule.warmup", c.warmup, 0);
  at_least<int64_t>("train.schedule.total", c.total, 0);
  at_least("train.schedule.min_lr", c.min_lr, 0.0);
  at_least("train.schedule.power", c.power, 0.0);
  at_least("train.schedule.cycles", c.cycles, 0.0);
  at_least<int64_t>("train.schedule.timescale", c.timescale, 0);
  at_least<int64_t>("train.schedule.decay_steps", c.decay_steps, 0);
  at_least<int64_t>("train.schedule.zero_warmup", c.zero_warmup, 0);
  using Kind = optim::ScheduleKind;
  const bool without_end_value = c.kind == Kind::kConstant || c.kind == Kind::kLinear ||
                                 c.kind == Kind::kCosine || c.kind == Kind::kInverseSqrt ||
                                 c.kind == Kind::kCosineWithRestarts;
  FSDP_CHECK(c.min_lr == 0 || !without_end_value,
             "train.schedule.min_lr: {} does not use it; cosine_with_min_lr and polynomial do",
             optim::name_of(c.kind));
}

void check_train(const TrainSection& c) {
  at_least<int64_t>("train.steps", c.steps, 1);
  at_least<int64_t>("train.batch", c.batch, 1);
  at_least<int64_t>("train.micro_steps", c.micro_steps, 1);
  at_least<int64_t>("train.recompute.every", c.recompute.every, 1);
  at_least<int64_t>("train.seed", c.seed, 0);
  at_least("train.lr", c.lr, 0.0);
  share("train.optimizer.beta1", c.optimizer.beta1);
  share("train.optimizer.beta2", c.optimizer.beta2);
  at_least("train.optimizer.epsilon", c.optimizer.epsilon, 0.0);
  at_least("train.optimizer.weight_decay", c.optimizer.weight_decay, 0.0);
  at_least("train.clip_norm", c.clip_norm, 0.0);
  at_least<int64_t>("train.log_every", c.log_every, 1);
  at_least<int64_t>("train.eval_every", c.eval_every, 0);
  at_least<int64_t>("train.eval_batches", c.eval_batches, 0);
}

void check_loss_scale(const LossScaleSection& c) {
  const auto positive = [](const char* key, const std::optional<double>& value) {
    FSDP_CHECK(!value || *value > 0, "{}: expected a positive number, got {}", key, *value);
  };
  positive("train.loss_scale.initial", c.initial);
  at_least("train.loss_scale.growth", c.growth.value_or(1), 1.0);
  positive("train.loss_scale.backoff", c.backoff);
  FSDP_CHECK(!c.backoff || *c.backoff <= 1, "train.loss_scale.backoff: expected at most 1, got {}",
             *c.backoff);
  at_least<int64_t>("train.loss_scale.interval", c.interval.value_or(1), 1);
  at_least("train.loss_scale.tolerance", c.tolerance.value_or(0), 0.0);
  at_least("train.loss_scale.floor", c.floor.value_or(0), 0.0);
  at_least("train.loss_scale.minimum", c.minimum.value_or(0), 0.0);
}

void check_fsdp(const FsdpSection& c) {
  using comm::Strategy;
  const bool hybrid =
      c.strategy == Strategy::kHybridShard || c.strategy == Strategy::kHybridShardZero2;
  at_least<int64_t>("fsdp.shard_size", c.shard_size, hybrid ? 1 : 0);
  FSDP_CHECK(hybrid || c.shard_size == 0,
             "fsdp.shard_size: only the hybrid strategies use it, got {}", c.shard_size);
  at_least<int64_t>("fsdp.reshard_group_size", c.reshard_group_size, 0);
  at_least<int64_t>("fsdp.prefetch_depth", c.prefetch_depth, 1);
  at_least<int64_t>("fsdp.units_in_flight", c.units_in_flight, 1);
  FSDP_CHECK(!c.divide_factor || *c.divide_factor > 0,
             "fsdp.divide_factor: expected a positive number, got {}", *c.divide_factor);
}

// An option of another wrap policy would be ignored in silence.
void check_wrap(const FsdpSection& c) {
  const bool by_class = c.wrap == Wrap::kClass;
  FSDP_CHECK(!by_class || !c.wrap_classes.empty(),
             "fsdp.wrap_classes: wrap: class needs the names of classes");
  FSDP_CHECK(by_class || c.wrap == Wrap::kTransformerBlock || c.wrap_classes.empty(),
             "fsdp.wrap_classes: belongs to wrap: class or transformer_block");
  FSDP_CHECK(c.wrap == Wrap::kSize || !c.min_num_params,
             "fsdp.min_num_params: belongs to wrap: size");
  at_least<int64_t>("fsdp.min_num_params", c.min_num_params.value_or(1), 1);
}

}  // namespace

void check_config(const TrainConfig& config) {
  check_model(config.model);
  at_least<int64_t>("data.sequence_length", config.data.sequence_length, 2);
  check_train(config.train);
  check_schedule(config.train.schedule);
  check_loss_scale(config.train.loss_scale);
  check_fsdp(config.fsdp);
  check_wrap(config.fsdp);
  at_least<int64_t>("runtime.threads", config.runtime.threads, 0);
  at_least<int64_t>("runtime.timeout_s", config.runtime.timeout_s, 1);
  at_least<int64_t>("runtime.shared_memory_limit_mib",
                    config.runtime.shared_memory_limit_mib.value_or(0), 0);
  at_least<int64_t>("sample.tokens", config.sample.tokens, 0);
  at_least("sample.temperature", config.sample.temperature, 0.0);
  at_least<int64_t>("sample.top_k", config.sample.top_k, 0);
}

optim::Schedule TrainConfig::schedule() const {
  const ScheduleSection& c = train.schedule;
  return {.kind = c.kind,
          .peak = train.lr,
          .warmup = c.warmup,
          .total = c.total > 0 ? c.total : train.steps,
          .min_lr = c.min_lr,
          .power = c.power,
          .cycles = c.cycles,
          .timescale = c.timescale,
          .decay_updates = c.decay_steps,
          .warmup_ramp = c.warmup_shape,
          .decay_ramp = c.decay_shape,
          .zero_warmup = c.zero_warmup};
}

}  // namespace fsdp::config
