// The order of a step, and the checks that keep it. Reads that do not wait, and the one that does.
#include "tools/engine/train_step.h"

#include <cmath>

#include "comm/agreement.h"
#include "core/host_inputs.h"
#include "core/layer_args.h"
#include "core/scope.h"
#include "core/shard_args.h"

namespace fsdp {
namespace {

// Ranks that update in different ways would hold different models.
std::vector<std::string> texts_of(const TrainStepOptions& options) {
  const optim::OptimizerOptions& o = options.optimizer;
  const optim::LossScalerOptions& scale = options.loss_scale;
  const LossScaleRule& rule = scale.rule;
  return {fmt::format("optimizer {}", optim::name_of(o.kind)),
          fmt::format("weight_decay {}", o.weight_decay),
          fmt::format("betas {} {}", o.beta1, o.beta2),
          fmt::format("rho {}", o.rho),
          fmt::format("epsilon {}", o.epsilon),
          fmt::format("momentum {} {} {}", o.momentum, o.dampening, o.nesterov),
          fmt::format("state_dtype {}", o.state_dtype ? name_of(*o.state_dtype) : "none"),
          fmt::format("rounding {} {}", o.rounds_masters_by_chance, o.rounding_seed),
          fmt::format("clip_norm {} {}", options.clip_norm, options.clip_power),
          fmt::format("loss_scale {}", scale.initial),
          fmt::format("loss_scale rule {} {} {} {} {} {}", rule.growth, rule.backoff, rule.interval,
                      rule.tolerance, rule.floor, rule.minimum)};
}

void check_rate(double learning_rate) {
  FSDP_CHECK(std::isfinite(learning_rate) && learning_rate >= 0,
             "[train_step] learning rate: expected a number from 0, got {}", learning_rate);
}

}  // namespace

TrainStep::TrainStep(comm::FullySharded& sharded, Tape& tape, comm::Communicator& world,
                     const TrainStepOptions& options)
    : sharded_(sharded),
      tape_(tape),
      across_(world.duplicate("losses")),
      micro_steps_(sharded.options().micro_steps) {
  if (!options.training) {
    sharded_.allocate_pages();
    return;
  }
  comm::check_same_on_all(*across_, "options of a step", texts_of(options));
  updates_in_backward_ = sharded.options().update_in_backward;
  FSDP_CHECK(!updates_in_backward_ || !options.matrices.rule,
             "[train_step] matrices: expected none with update_in_backward");
  const std::vector<OptimizerShard> shards = sharded.optimizer_shards();
  clipper_ = std::make_unique<optim::Clipper>(shards, &sharded.mesh().scalars(), options.clip_norm,
                                              options.clip_power, &sharded.backend(),
                                              updates_in_backward_);
  if (options.loss_scale.initial > 0) {
    FSDP_CHECK(sharded.options().detect_overflow,
               "[train_step] loss_scale: expected a sharded model with detect_overflow");
    scaler_ = std::make_unique<optim::LossScaler>(sharded.backend(), options.loss_scale);
  }
  optim::WholeMatrices matrices = options.matrices;
  matrices.group = &sharded.mesh().scalars();
  matrices.collectives = &sharded.backend();
  optimizer_ = optim::make_optimizer(shards, options.optimizer, std::move(matrices));
  sharded_.allocate_pages();
  if (updates_in_backward_) sharded_.set_update([this](size_t shard) { update_shard(shard); });
}

// ---------------------------------------------------------------------------- Order

std::string TrainStep::state() const {
  if (interrupted_) return "after a call that ended with an error";
  if (done_ == 0) return "between steps";
  return fmt::format("after {} of {} micro-steps", done_, micro_steps_);
}

void TrainStep::check(std::string_view call, bool right, std::string_view expected) const {
  FSDP_CHECK(right && !interrupted_, "[train_step] {}: expected {} before it, got it {}", call,
             interrupted_ ? "restart or recover" : expected, state());
}

// Marks the call as running: one that ends with an error leaves the mark.
void TrainStep::enter(std::string_view call, bool right, std::string_view expected) {
  check(call, right, expected);
  interrupted_ = true;
}

void TrainStep::micro_step(const std::vector<Forward>& forwards,
                           std::optional<int> ranks_with_pass) {
  const bool last = done_ + 1 == micro_steps_;
  FSDP_CHECK(!last || !updates_in_backward_ || rate_,
             "[train_step] micro_step: update_in_backward: expected begin_update before {}",
             micro_steps_ == 1 ? "it" : "the last one");
  enter("micro_step", done_ < micro_steps_, "update or restart");
  if (done_ == 0) {
    handle_ = StepHandle();
    const int losses = sharded_.options().fixed_order ? micro_steps_ * across_->size() : 1;
    total_ = Tensor::zeros(sharded_.backend(), Shape{losses}, DType::kF64);
  }
  if (last && updates_in_backward_) {
    const optim::Clipper::ForOptimizer& always = clipper_->for_optimizer();
    optimizer_->begin_step(*rate_, always.coefficient, always.skip, sharded_.updates() + 1);
  }
  sharded_.begin_micro_step(last, ranks_with_pass);
  std::vector<Tensor> losses;
  {
    const PhaseScope phase(phases_, "forward");
    for (const Forward& forward : forwards) losses.push_back(forward.loss());
  }
  {
    const PhaseScope phase(phases_, "backward");
    for (size_t i = losses.size(); i-- > 0;) tape_.backward(losses[i]);
    sharded_.finish_backward();
  }
  for (size_t i = 0; i < losses.size(); ++i) add_to_total(losses[i], forwards[i].weight);
  if (last) {
    handle_.read_later(&StepHandle::Landing::loss, sum_of_losses(total_));
    total_ = Tensor();
  }
  ++done_;
  interrupted_ = false;
}

void TrainStep::add_to_total(const Tensor& loss, double weight) {
  Backend& backend = sharded_.backend();
  Stream& stream = backend.compute_stream();
  Tensor weighted = Tensor::empty(backend, Shape{}, DType::kF64);
  backend.run(stream, CastArgs{loss, weighted});
  backend.run(stream, DivideArgs{weighted, 1 / weight});  // a weight of 0: no labels, a sum of 0
  const int64_t place = total_.numel() > 1 ? done_ * across_->size() + across_->rank() : 0;
  Tensor sum = total_.slice(place, Shape{});
  backend.run(stream, AddArgs{sum, weighted, sum});
}

// Nothing but zeros is added to an element before all are added up.
Tensor TrainStep::sum_of_losses(Tensor& losses) {
  sum_over_ranks(losses);
  if (losses.numel() == 1) return losses.slice(0, Shape{});
  Backend& backend = sharded_.backend();
  Tensor sum = Tensor::zeros(backend, Shape{}, DType::kF64);
  for (int64_t i = 0; i < losses.numel(); ++i) {
    backend.run(backend.compute_stream(), AddArgs{sum, losses.slice(i, Shape{}), sum});
  }
  return sum;
}

void TrainStep::begin_update(double learning_rate) {
  FSDP_CHECK(updates_in_backward_, "[train_step] begin_update: made without update_in_backward");
  check_rate(learning_rate);
  check("begin_update", done_ < micro_steps_, "update or restart");
  rate_ = learning_rate;
}

// In the middle of a backward. The host goes on; whose stream waits for what: FullySharded.
void TrainStep::update_shard(size_t shard) {
  const PhaseScope phase(phases_, "optimizer");
  const Scope scope(sharded_.backend(), "optimizer");
  clipper_->measure_shard(shard);
  optimizer_->step_shard(shard);
}

StepHandle TrainStep::update(double learning_rate, double skip_above) {
  FSDP_CHECK(optimizer_, "[train_step] update: made without training");
  check_rate(learning_rate);
  FSDP_CHECK(!rate_ || (learning_rate == *rate_ && std::isinf(skip_above)),
             "[train_step] update: the units were updated in backward, with a learning rate of {} "
             "and whatever the norm; got {}, and norms up to {}",
             *rate_, learning_rate, skip_above);
  enter("update", done_ == micro_steps_, "all micro-steps");
  const PhaseScope phase(phases_, "optimizer");
  const Scope scope(sharded_.backend(), "optimizer");
  using Landing = StepHandle::Landing;
  clipper_->measure(loss_scale(), scaler_ ? &sharded_.overflow() : nullptr, skip_above);
  if (scaler_) {
    handle_.read_later(&Landing::loss_scale, scaler_->scale());
    scaler_->update(clipper_->skip());
    handle_.read_later(&Landing::scale_at_minimum, scaler_->aborted());
  }
  const optim::Clipper::ForOptimizer& decided = clipper_->for_optimizer();
  if (!updates_in_backward_) {
    optimizer_->step(learning_rate, decided.coefficient, decided.skip, sharded_.updates() + 1);
  }
  sharded_.finish_step();
  handle_.read_later(&Landing::skipped, clipper_->skip());
  handle_.read_later(&Landing::norm, clipper_->norm());
  end_step();
  return handle_;
}

void TrainStep::end_step() {
  done_ = 0;
  interrupted_ = false;
  rate_.reset();
}

StepHandle TrainStep::handle() const {
  check("handle", done_ == micro_steps_, "all micro-steps");
  return handle_;
}

void TrainStep::evaluate(const std::function<void()>& forward) {
  enter("evaluate", done_ == 0, "update or restart");
  {
    const Tape::Pause pause(tape_);
    forward();
  }
  sharded_.reset();
  interrupted_ = false;
}

void TrainStep::restart() {
  FSDP_CHECK(!updates_in_backward_ || done_ < micro_steps_,
             "[train_step] restart: update_in_backward: the units are updated already");
  sharded_.reset();
  end_step();
}

void TrainStep::recover() {
  sharded_.recover();
  if (HostInputs* inputs = tape_.host_inputs()) inputs->recover();
  end_step();
}

// ---------------------------------------------------------------------------- Parts

void TrainStep::sum_over_ranks(Tensor& scalar) {
  across_->all_reduce(sharded_.backend().compute_stream(), scalar, comm::ReduceOp::kSum);
}

optim::Optimizer& TrainStep::optimizer() {
  FSDP_CHECK(optimizer_, "[train_step] optimizer: made without training");
  return *optimizer_;
}

// The stream keeps the landing alive until it has written there, also when all handles are gone.
void StepHandle::read_later(void* place, const Tensor& scalar, size_t bytes) {
  FSDP_CHECK(scalar.bytes() == bytes, "[step_handle] scalar: expected {} bytes, got {}", bytes,
             scalar.bytes());
  Backend& backend = scalar.backend();
  done_.push_back(backend.read_later(
      backend.compute_stream(), place, scalar.data(), bytes,
      [landing = landing_] { landing->written = std::chrono::steady_clock::now(); }));
}

StepValues StepHandle::read() const {
  FSDP_CHECK(!done_.empty(), "[step_handle] read: expected the results of a step, got none");
  for (const EventPtr& event : done_) event->wait();
  return {.loss = landing_->loss,
          .grad_norm = landing_->norm,
          .loss_scale = landing_->loss_scale,
          .skipped = static_cast<StepSkip>(landing_->skipped),
          .scale_at_minimum = landing_->scale_at_minimum != 0,
          .ended = landing_->written.load()};
}

}  // namespace fsdp
