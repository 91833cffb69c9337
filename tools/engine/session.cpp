// A rank's parts, and what it computes with them.
#include "tools/engine/session.h"

#include <algorithm>
#include <cmath>

#include "tools/engine/sharded_values.h"

namespace fsdp {
namespace {

// What release_arena gives back in every step is memory of the backend, in the order of its
// streams. Registered memory has none: to free it the host would wait for the GPU, and to register
// it again for all ranks.
tools::BackendOptions without_registration(tools::BackendOptions options,
                                           const comm::FsdpOptions& fsdp) {
  if (options.nccl && fsdp.release_arena) options.nccl->register_buffers = false;
  return options;
}

// A session that does not train has no optimizer; its parameters can lie on the host.
bool offloads(const SessionOptions& options) {
  return comm::offloads_all(options.fsdp.offload) ||
         (options.fsdp.offload == comm::Offload::kOptimizer && options.training);
}

bool offloads_inputs(const SessionOptions& options) {
  return options.training && options.recompute == RecomputeMode::kOffload;
}

}  // namespace

Session::Session(comm::Communicator& world, const SessionOptions& options)
    : world_(world),
      options_(options),
      backend_(tools::make_backend(options.backend, options.fsdp.param_dtype)),
      host_(offloads(options) || offloads_inputs(options)
                ? tools::make_host_backend(options.backend, *backend_)
                : nullptr),
      file_(options.fsdp.offload == comm::Offload::kNvme
                ? tools::make_file_backend(options.backend, *backend_, options.offload_folder,
                                           fmt::format("rank {}", world.rank()))
                : nullptr),
      host_inputs_(offloads_inputs(options) ? std::make_unique<HostInputs>(*backend_, *host_)
                                            : nullptr),
      nccl_(tools::make_gpu_world(world, without_registration(options.backend, options.fsdp),
                                  *backend_)),
      tape_(std::make_unique<Tape>(*backend_)),
      model_(std::make_unique<models::CausalLM>(options.model, *backend_, options.fsdp.param_dtype,
                                                options.max_length)) {
  tools::check_products(options.backend, computed_dtypes(options.fsdp));
  model_->set_recompute(options.recompute, options.recompute_every);
  if (options.lora) models::add_lora(*model_, *options.lora);
  freeze_parameters(options.model, options.frozen, model_->parameters());
  set_decay(model_->parameters(), options.decay);
  const comm::WrapPolicy wrap = wrap_of(options);
  options_.fsdp.detect_overflow = options.loss_scale.initial > 0;
  options_.fsdp.training = options.training;
  if (!offloads(options)) options_.fsdp.offload = comm::Offload::kNone;
  options_.fsdp.host = offloads(options) ? host_.get() : nullptr;
  options_.fsdp.file = file_.get();
  tape_->set_host_inputs(host_inputs_.get());
  model_->set_tape(tape_.get());
  comm::Communicator& devices = nccl_ ? *nccl_ : world;
  sharded_ = std::make_unique<comm::FullySharded>(*model_, wrap, options_.fsdp, *backend_, devices);
  check_buffers(*model_, wrap, options_.fsdp, sharded_->mesh().shards());
  step_ = std::make_unique<TrainStep>(*sharded_, *tape_, devices,
                                      TrainStepOptions{.training = options.training,
                                                       .optimizer = options.optimizer,
                                                       .clip_norm = options.clip_norm,
                                                       .clip_power = options.clip_power,
                                                       .loss_scale = options.loss_scale});
}

Session::~Session() = default;

void Session::set_trace(Trace* trace) {
  for (Backend* backend : {backend_.get(), host_.get(), file_.get()}) {
    if (!backend) continue;
    backend->synchronize(backend->compute_stream());
    backend->set_trace(trace);
  }
}

Backend& Session::host_memory() {
  if (backend_->host_reaches_memory()) return *backend_;
  if (!host_) host_ = tools::make_host_backend(options_.backend, *backend_);
  return *host_;
}

size_t Session::peak_memory() const {
  const bool one_memory = host_ && backend_->host_reaches_memory();
  return backend_->ledger().usage().total_peak +
         (one_memory ? host_->ledger().usage().total_peak : 0);
}

void Session::initialise(const models::FillFunction& fill) { fsdp::initialise(*sharded_, fill); }

void Session::initialise_from_first_rank(const models::FillFunction& fill) {
  fsdp::initialise_from_first_rank(*sharded_, fill);
}

DeviceBatch Session::upload(const Batch& batch) {
  return fsdp::upload(batch, options_.model, options_.max_length, *backend_,
                      options_.fsdp.param_dtype);
}

double Session::token_weight(const Batch& batch) const {
  if (options_.loss_mean == LossMean::kTokens) {
    return 1.0 / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
  }
  const int64_t own = count_targets(batch);
  const double parts = static_cast<double>(options_.fsdp.micro_steps) * world_.size();
  return own == 0 ? 0 : 1.0 / (static_cast<double>(own) * parts);
}

// ---------------------------------------------------------------------------- Steps

StepHandle Session::forward_backward(const Batch& batch, uint32_t step, bool training,
                                     const std::function<bool()>& stop) {
  const int parts = options_.fsdp.micro_steps;
  for (int i = 0; i < parts; ++i) {
    if (i > 0 && stop && stop()) {
      restart_step();
      return {};
    }
    const Batch part = rows_of(batch, rows_of_part(batch, i, parts));
    const DeviceBatch device = upload(part);
    const double weight = token_weight(part);
    // The reduction averages over the ranks (unless fixed_order: it adds), the loss is a sum over
    // them.
    const int averaged = options_.fsdp.fixed_order ? 1 : world_.size();
    const double scale = weight * averaged * batch.gradient_factor;
    // In passes a sample drops the same elements whichever micro-step it is computed in.
    const uint32_t micro_step = batch.rows_per_pass > 0 ? 0 : static_cast<uint32_t>(i);
    const DropoutKey key = {.seed = options_.seed, .step = step, .micro_step = micro_step};
    const auto loss = [&] {
      return model_->loss(device.tokens, device.targets, device.context(key, training), scale,
                          step_->loss_scale());
    };
    step_->micro_step({{.loss = loss, .weight = weight}}, ranks_with_pass(batch, i, world_.size()));
  }
  return step_->handle();
}

StepHandle Session::train_step(const Batch& batch, double learning_rate, uint32_t step) {
  forward_backward(batch, step, true);
  return update(learning_rate);
}

double Session::evaluate(const Batch& batch) {
  const int ranks = world_.size();
  const int parts = static_cast<int>((std::max<int64_t>(batch.passes, 1) + ranks - 1) / ranks);
  const int64_t places = batch.passes > 0 ? int64_t{parts} * ranks : 1;
  Tensor losses = Tensor::zeros(*backend_, Shape{places}, DType::kF64);
  for (int i = 0; i < parts; ++i) {
    const DeviceBatch device = upload(rows_of(batch, rows_of_part(batch, i, parts)));
    Tensor loss;
    step_->evaluate(
        [&] { loss = model_->loss(device.tokens, device.targets, device.context({}, false), 0); });
    Tensor place = losses.slice(places > 1 ? int64_t{i} * ranks + world_.rank() : 0, Shape{});
    backend_->run(backend_->compute_stream(), CastArgs{loss, place});
  }
  const double total = step_->sum_of_losses(losses).item();
  return total / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
}

std::vector<double> Session::logits(const Batch& batch) {
  const DeviceBatch device = upload(batch);
  Tensor values;
  step_->evaluate([&] { values = model_->logits(device.tokens, device.context({}, false)); });
  std::vector<double> out = values.to_doubles();
  if (batch.rows == 0) out.clear();
  return out;
}

std::vector<double> Session::next_token_logits(const Tensor& tokens,
                                               const ForwardContext& context) {
  Tensor values;
  step_->evaluate([&] { values = model_->last_logits(tokens, context); });
  return values.to_doubles();
}

std::string Session::first_nonfinite_unit(const Batch& batch) {
  std::string found;
  const DeviceBatch device = upload(batch);
  const auto look = [&](const std::string& unit, const Tensor& values) {
    if (!found.empty()) return;
    const std::vector<double> host = values.to_doubles();
    if (std::any_of(host.begin(), host.end(), [](double x) { return !std::isfinite(x); })) {
      found = unit;
    }
  };
  step_->evaluate([&] { model_->probe(device.tokens, device.context({}, false), look); });
  return found;
}

}  // namespace fsdp
