// Construction of a rank's parts and the order of one step.
#include "tools/train/session.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fnmatch.h>

#include "core/scope.h"
#include "models/key_bias.h"
#include "models/names.h"
#include "models/token_padding.h"
#include "tools/train/sharded_values.h"

namespace fsdp::tools {

StepValues StepHandle::read() const {
  done_->wait();
  return {.loss = landing_->loss,
          .grad_norm = landing_->norm,
          .loss_scale = landing_->loss_scale,
          .skipped = landing_->skipped != 0,
          .scale_at_minimum = landing_->scale_at_minimum != 0,
          .ended = landing_->written};
}

void freeze_parameters(const models::ModelConfig& config, const std::vector<std::string>& patterns,
                       const std::vector<Parameter*>& parameters) {
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (Parameter* parameter : parameters) {
      const std::string name = models::hugging_face_name(config, parameter->name());
      if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      parameter->set_trainable(false);
      found = true;
    }
    FSDP_CHECK(found, "train.freeze: no parameter matches \"{}\"; they are called like \"{}\"",
               pattern, models::hugging_face_name(config, parameters.back()->name()));
  }
  FSDP_CHECK(std::any_of(parameters.begin(), parameters.end(),
                         [](const Parameter* p) { return p->trainable(); }),
             "train.freeze: every parameter is frozen");
}

comm::WrapPolicy wrap_of(const SessionOptions& options) {
  return options.wrap ? options.wrap : comm::wrap_classes({options.model.block_class});
}

// Token and position table are read by one operation: as units of their own both are gathered.
void check_buffers(Module& model, const comm::WrapPolicy& wrap, const comm::FsdpOptions& options,
                   int shards) {
  const comm::UnitPolicy policy = comm::unit_policy(options, {.shards = shards}, false);
  if (options.units_in_flight > 1 || policy.keeps_parameters) return;
  const std::set<const Module*> wrapped = wrap(model);
  const auto tables = std::count_if(wrapped.begin(), wrapped.end(), [](const Module* module) {
    return module->class_name() == "Embedding";
  });
  FSDP_CHECK(tables < 2,
             "fsdp.units_in_flight: expected at least 2, got 1: the token and the position table "
             "are units of their own here and are used together");
}

// What release_arena gives back in every step is memory of the backend, in the order of its
// streams. Registered memory has none: to free it the host would wait for the GPU, and to register
// it again for all ranks.
BackendOptions without_registration(BackendOptions options, const comm::FsdpOptions& fsdp) {
  if (options.nccl && fsdp.release_arena) options.nccl->register_buffers = false;
  return options;
}

std::vector<DType> computed_dtypes(const comm::FsdpOptions& options) {
  std::vector<DType> out = {options.param_dtype};
  for (const comm::UnitOverride& unit : options.units) {
    if (unit.param_dtype) out.push_back(*unit.param_dtype);
  }
  return out;
}

Session::Session(comm::Communicator& world, const SessionOptions& options)
    : world_(world),
      options_(options),
      backend_(make_backend(options.backend, options.fsdp.param_dtype)),
      nccl_(make_gpu_world(world, without_registration(options.backend, options.fsdp), *backend_)),
      losses_((nccl_ ? *nccl_ : world).duplicate("losses")),
      tape_(std::make_unique<Tape>(*backend_)),
      model_(std::make_unique<models::CausalLM>(options.model, *backend_, options.fsdp.param_dtype,
                                                options.max_length)) {
  check_products(options.backend, computed_dtypes(options.fsdp));
  model_->set_recompute(options.recompute, options.recompute_every);
  if (options.lora) models::add_lora(*model_, *options.lora);
  freeze_parameters(options.model, options.frozen, model_->parameters());
  // Before sharding: a flat shard is one-dimensional and would hide which parameters are matrices.
  for (Parameter* parameter : model_->parameters()) {
    const bool matrix = parameter->shape().rank() >= 2;
    parameter->set_decay(options.decay == config::Decay::kAll ||
                         (options.decay == config::Decay::kMatrices && matrix));
  }
  model_->set_tape(tape_.get());
  const comm::WrapPolicy wrap = wrap_of(options);
  const bool scaled = options.loss_scale.initial > 0;
  options_.fsdp.detect_overflow = scaled;
  sharded_ = std::make_unique<comm::FullySharded>(*model_, wrap, options_.fsdp, *backend_,
                                                  nccl_ ? *nccl_ : world);
  check_buffers(*model_, wrap, options_.fsdp, sharded_->mesh().shards());
  if (!options.training) return;
  const std::vector<OptimizerShard> shards = sharded_->optimizer_shards();
  clipper_ = std::make_unique<optim::Clipper>(shards, &sharded_->mesh().scalars(),
                                              options.clip_norm, options.clip_power);
  if (scaled) scaler_ = std::make_unique<optim::LossScaler>(*backend_, options.loss_scale);
  optimizer_ = optim::make_optimizer(shards, options.optimizer);
}

Session::~Session() = default;

void Session::initialise(const models::FillFunction& fill) { tools::initialise(*sharded_, fill); }

void Session::initialise_from_first_rank(const models::FillFunction& fill) {
  tools::initialise_from_first_rank(*sharded_, fill);
}

// [Note: a rank without rows]
// It computes one row of zeros whose labels are all ignored: its loss and gradients are exactly
// zero and it takes part in every collective, so no schedule needs a special case.
Session::DeviceBatch Session::upload(const Batch& batch) {
  FSDP_CHECK(batch.length > 0 && batch.length <= options_.max_length,
             "[batch] length: expected within [1, {}], got {}", options_.max_length, batch.length);
  const int64_t rows = std::max<int64_t>(batch.rows, 1);
  std::vector<int32_t> tokens = batch.tokens, labels = batch.labels;
  std::vector<int64_t> samples = batch.samples;
  const size_t elements = static_cast<size_t>(rows * batch.length);
  if (batch.rows == 0) {
    tokens.assign(elements, 0);
    samples.assign(1, 0);
  }
  if (labels.empty() || batch.rows == 0) labels.assign(elements, kIgnoreIndex);
  if (samples.empty()) samples.assign(static_cast<size_t>(rows), 0);
  for (const int32_t token : tokens) {
    FSDP_CHECK(token >= 0 && token < options_.model.vocabulary,
               "[batch] token: expected within the vocabulary of {}, got {}",
               options_.model.vocabulary, token);
  }
  std::vector<int32_t> targets = models::target_labels(options_.model, labels, rows, batch.length);
  Tensor key_bias, positions;
  const std::vector<int32_t> mask = models::padding_mask(
      options_.model, tokens, batch.rows > 0 ? batch.mask : std::vector<int32_t>());
  models::ignore_leading_padding(options_.model, mask, batch.length, targets);
  if (!mask.empty()) {
    const DType wide = accumulation_dtype(options_.fsdp.param_dtype);
    key_bias = models::make_key_bias(options_.model, *backend_, wide, mask, rows);
    if (options_.model.position_offset > 0) {  // [Note: fairseq's padding]
      positions = Tensor::from_host(*backend_, Shape{rows, batch.length},
                                    models::counted_positions(options_.model, mask, batch.length));
    }
  }
  return {Tensor::from_host(*backend_, Shape{rows, batch.length}, tokens),
          Tensor::from_host(*backend_, Shape{rows * batch.length}, targets),
          Tensor::from_host(*backend_, Shape{rows}, samples), key_bias, positions};
}

ForwardContext Session::context(const DeviceBatch& batch, DropoutKey key, bool training) const {
  key.seed = options_.seed;
  return {.training = training,
          .dropout = key,
          .samples = &batch.samples,
          .key_bias = batch.key_bias.defined() ? &batch.key_bias : nullptr,
          .positions = batch.positions.defined() ? &batch.positions : nullptr};
}

double Session::token_weight(const Batch& batch) const {
  if (options_.loss_mean == config::LossMean::kTokens) {
    return 1.0 / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
  }
  std::vector<int32_t> targets =
      models::target_labels(options_.model, batch.labels, batch.rows, batch.length);
  models::ignore_leading_padding(options_.model,
                                 models::padding_mask(options_.model, batch.tokens, batch.mask),
                                 batch.length, targets);
  const int64_t own = std::count_if(targets.begin(), targets.end(),
                                    [](int32_t target) { return target != kIgnoreIndex; });
  const double parts = static_cast<double>(options_.fsdp.micro_steps) * world_.size();
  return own == 0 ? 0 : 1.0 / (static_cast<double>(own) * parts);
}

void Session::sum_over_ranks(Tensor& scalar) {
  losses_->all_reduce(backend_->compute_stream(), scalar, comm::ReduceOp::kSum);
}

// The stream keeps the landing alive until it has written there, also when the handle is gone.
template <typename T>
void Session::read_into(StepHandle& handle, T StepHandle::Landing::*place, const Tensor& scalar) {
  Stream& stream = backend_->compute_stream();
  handle.done_ = backend_->read_later(
      stream, &(*handle.landing_.*place), scalar.data(), sizeof(T),
      [landing = handle.landing_] { landing->written = std::chrono::steady_clock::now(); });
}

// ---------------------------------------------------------------------------- Steps

StepHandle Session::forward_backward(const Batch& batch, uint32_t step, bool training) {
  Stream& stream = backend_->compute_stream();
  const int parts = options_.fsdp.micro_steps;
  Tensor total = Tensor::zeros(*backend_, Shape{}, DType::kF64);
  for (int i = 0; i < parts; ++i) {
    sharded_->begin_micro_step(i + 1 == parts);
    const Batch part = data::rows_of(batch, data::deal_rows(batch.rows, i, parts));
    const DeviceBatch device = upload(part);
    const double weight = token_weight(part);
    // The reduction averages over the ranks, the loss is a sum over them.
    const double scale = weight * world_.size() * batch.gradient_factor;
    const DropoutKey key = {.step = step, .micro_step = static_cast<uint32_t>(i)};
    Tensor sum;
    {
      const PhaseScope phase(phases_, "forward");
      sum = model_->loss(device.tokens, device.labels, context(device, key, training), scale,
                         scaler_ ? &scaler_->scale() : nullptr);
    }
    {
      const PhaseScope phase(phases_, "backward");
      tape_->backward(sum);
      sharded_->finish_backward();
    }
    Tensor loss = Tensor::empty(*backend_, Shape{}, DType::kF64);
    backend_->cast(stream, sum, loss);
    backend_->divide(stream, loss, 1 / weight);  // a weight of 0: no labels, a sum of 0
    backend_->add(stream, total, loss, total);
  }
  sum_over_ranks(total);
  StepHandle handle;
  read_into(handle, &StepHandle::Landing::loss, total);
  return handle;
}

void Session::update(StepHandle& handle, double learning_rate) {
  FSDP_CHECK(optimizer_ != nullptr, "[session] update: made without training");
  const PhaseScope phase(phases_, "optimizer");
  const Scope scope(*backend_, "optimizer");
  using Landing = StepHandle::Landing;
  clipper_->measure(scaler_ ? &scaler_->scale() : nullptr,
                    scaler_ ? &sharded_->overflow() : nullptr);
  if (scaler_) {
    read_into(handle, &Landing::loss_scale, scaler_->scale());
    scaler_->update(clipper_->skip());
    read_into(handle, &Landing::scale_at_minimum, scaler_->aborted());
  }
  optimizer_->step(learning_rate, clipper_->coefficient(), clipper_->skip());
  sharded_->finish_step();
  read_into(handle, &Landing::skipped, clipper_->skip());
  read_into(handle, &Landing::norm, clipper_->norm());
}

StepHandle Session::train_step(const Batch& batch, double learning_rate, uint32_t step) {
  StepHandle handle = forward_backward(batch, step, true);
  update(handle, learning_rate);
  return handle;
}

void Session::end_step() { sharded_->finish_step(); }

double Session::evaluate(const Batch& batch) {
  const Tape::Pause pause(*tape_);
  const DeviceBatch device = upload(batch);
  Tensor loss = model_->loss(device.tokens, device.labels, context(device, {}, false), 0);
  sharded_->reset();
  Tensor total = Tensor::empty(*backend_, Shape{}, DType::kF64);
  backend_->cast(backend_->compute_stream(), loss, total);
  sum_over_ranks(total);
  return total.item() / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
}

std::vector<double> Session::logits(const Batch& batch) {
  const Tape::Pause pause(*tape_);
  const DeviceBatch device = upload(batch);
  const Tensor values = model_->logits(device.tokens, context(device, {}, false));
  sharded_->reset();
  std::vector<double> out = values.to_doubles();
  if (batch.rows == 0) out.clear();
  return out;
}

std::vector<double> Session::next_token_logits(const Tensor& tokens,
                                               const ForwardContext& context) {
  const Tape::Pause pause(*tape_);
  const Tensor values = model_->last_logits(tokens, context);
  sharded_->reset();
  return values.to_doubles();
}

std::string Session::first_nonfinite_unit(const Batch& batch) {
  const Tape::Pause pause(*tape_);
  std::string found;
  const DeviceBatch device = upload(batch);
  const auto look = [&](const std::string& unit, const Tensor& values) {
    if (!found.empty()) return;
    const std::vector<double> host = values.to_doubles();
    if (std::any_of(host.begin(), host.end(), [](double x) { return !std::isfinite(x); })) {
      found = unit;
    }
  };
  model_->probe(device.tokens, context(device, {}, false), look);
  sharded_->reset();
  return found;
}

}  // namespace fsdp::tools
