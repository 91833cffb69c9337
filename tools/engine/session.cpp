// Batches through the model, in the order of a step, and their copies on a device.
#include "tools/engine/session.h"

#include <algorithm>
#include <cmath>

#include "core/shard_args.h"
#include "models/key_bias.h"

namespace fsdp {
namespace {

std::unique_ptr<Module> make_model(const SessionOptions& options, const Places& places) {
  FSDP_CHECK(places.device, "[engine] places.device: expected a backend, got none");
  auto model = std::make_unique<models::CausalLM>(options.model, *places.device,
                                                  options.fsdp.param_dtype, options.max_length);
  model->set_recompute(options.recompute, options.recompute_every);
  model->set_head(options.head);
  if (options.lora) models::add_lora(*model, *options.lora);
  freeze_parameters(options.model, options.frozen, model->parameters());
  set_decay(model->parameters(), options.decay);
  return model;
}

EngineOptions engine_options(const SessionOptions& options) {
  return {.wrap = wrap_of(options),
          .fsdp = options.fsdp,
          .step = {.training = options.training,
                   .optimizer = options.optimizer,
                   .clip_norm = options.clip_norm,
                   .clip_power = options.clip_power,
                   .loss_scale = options.loss_scale},
          .inputs_on_host = options.training && options.recompute == RecomputeMode::kOffload};
}

}  // namespace

Session::Session(comm::Communicator& world, Places&& places, const SessionOptions& options)
    : Engine(world, std::move(places), make_model(options, places), engine_options(options)),
      options_(options) {
  check_buffers(module(), wrap_of(options), sharded().options(), sharded().mesh().shards());
}

DeviceBatch Session::upload(const Batch& batch) {
  return fsdp::upload(batch, options_.model, options_.max_length, backend(),
                      options_.fsdp.param_dtype);
}

double Session::token_weight(const Batch& batch) {
  if (options_.loss_mean == LossMean::kTokens) {
    return 1.0 / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
  }
  const int64_t own = count_targets(batch);
  const double parts = static_cast<double>(options_.fsdp.micro_steps) * world().size();
  return own == 0 ? 0 : 1.0 / (static_cast<double>(own) * parts);
}

// ---------------------------------------------------------------------------- Steps

void Session::check(const Batch& batch) const {
  FSDP_CHECK(!options_.fsdp.fixed_order || batch.rows_per_pass > 0,
             "[session] batch.rows_per_pass: expected at least 1 with fixed_order: which rows are "
             "computed together must not depend on the number of ranks");
  const int64_t own = count_targets(batch);
  FSDP_CHECK(
      options_.loss_mean != LossMean::kTokens || batch.global_label_tokens >= own,
      "[session] batch.global_label_tokens: expected the sum over all ranks, at least the {} "
      "of this rank, got {}",
      own, batch.global_label_tokens);
}

StepHandle Session::forward_backward(const Batch& batch, uint32_t step, bool training,
                                     const std::function<bool()>& stop) {
  const int parts = options_.fsdp.micro_steps;
  check(batch);
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
    const int averaged = options_.fsdp.fixed_order ? 1 : world().size();
    const double scale = weight * averaged * batch.gradient_factor;
    // In passes a sample drops the same elements whichever micro-step it is computed in.
    const uint32_t micro_step = batch.rows_per_pass > 0 ? 0 : static_cast<uint32_t>(i);
    const DropoutKey key = {.seed = options_.seed, .step = step, .micro_step = micro_step};
    const auto loss = [&] {
      return model().loss(device.tokens, device.targets, device.context(key, training), scale,
                          steps().loss_scale());
    };
    steps().micro_step({{.loss = loss, .weight = weight}},
                       ranks_with_pass(batch, i, world().size()));
  }
  return steps().handle();
}

StepHandle Session::train_step(const Batch& batch, double learning_rate, uint32_t step,
                               double skip_above) {
  if (steps().updates_in_backward()) steps().begin_update(learning_rate);
  forward_backward(batch, step, true);
  return update(learning_rate, skip_above);
}

double Session::evaluate(const Batch& batch) {
  check(batch);
  const int ranks = world().size();
  const int parts = static_cast<int>((std::max<int64_t>(batch.passes, 1) + ranks - 1) / ranks);
  const int64_t places = batch.passes > 0 ? int64_t{parts} * ranks : 1;
  Tensor losses = Tensor::zeros(backend(), Shape{places}, DType::kF64);
  for (int i = 0; i < parts; ++i) {
    const DeviceBatch device = upload(rows_of(batch, rows_of_part(batch, i, parts)));
    Tensor loss;
    steps().evaluate(
        [&] { loss = model().loss(device.tokens, device.targets, device.context({}, false), 0); });
    Tensor place = losses.slice(places > 1 ? int64_t{i} * ranks + world().rank() : 0, Shape{});
    backend().run(backend().compute_stream(), CastArgs{loss, place});
  }
  const double total = steps().sum_of_losses(losses).item();
  return total / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
}

std::vector<double> Session::logits(const Batch& batch) {
  const DeviceBatch device = upload(batch);
  Tensor values;
  steps().evaluate([&] { values = model().logits(device.tokens, device.context({}, false)); });
  std::vector<double> out = values.to_doubles();
  if (batch.rows == 0) out.clear();
  return out;
}

std::vector<double> Session::next_token_logits(const Tensor& tokens,
                                               const ForwardContext& context) {
  Tensor values;
  steps().evaluate([&] { values = model().last_logits(tokens, context); });
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
  steps().evaluate([&] { model().probe(device.tokens, device.context({}, false), look); });
  return found;
}

// [Note: a rank without rows]
// It computes one row of zeros whose targets are all ignored: its loss and gradients are exactly
// zero and it takes part in every collective, so no schedule needs a special case.
DeviceBatch upload(const Batch& batch, const models::ModelConfig& model, int64_t max_length,
                   Backend& backend, DType compute) {
  FSDP_CHECK(batch.length > 0 && batch.length <= max_length,
             "[batch] length: expected within [1, {}], got {}", max_length, batch.length);
  for (const int32_t token : batch.tokens) {
    FSDP_CHECK(token >= 0 && token < model.vocabulary,
               "[batch] token: expected within the vocabulary of {}, got {}", model.vocabulary,
               token);
  }
  const int64_t rows = std::max<int64_t>(batch.rows, 1);
  const Shape shape = {rows, batch.length};
  Tensor key_bias, positions, first_key;
  if (!batch.mask.empty()) {
    key_bias = models::make_key_bias(model, backend, accumulation_dtype(compute), batch.mask, rows);
  }
  // ALiBi knows distances alone.
  const bool looks_up = model.positions == models::PositionKind::kLearned ||
                        model.positions == models::PositionKind::kRope;
  if (looks_up && !batch.positions.empty()) {
    positions = Tensor::from_host(backend, shape, batch.positions);
  }
  if (!batch.first_key.empty()) first_key = Tensor::from_host(backend, shape, batch.first_key);
  // `otherwise`: every value of a batch that has none.
  const auto filled = [&](const auto& values, auto otherwise, const Shape& of) {
    return Tensor::from_host(
        backend, of,
        values.empty() ? std::vector(static_cast<size_t>(of.numel()), otherwise) : values);
  };
  return {filled(batch.tokens, int32_t{0}, shape),
          filled(batch.targets, kIgnoreIndex, Shape{rows * batch.length}),
          filled(batch.samples, int64_t{0}, Shape{rows}),
          key_bias,
          positions,
          first_key,
          models::document_pairs(batch.first_key, batch.length)};
}

ForwardContext DeviceBatch::context(DropoutKey key, bool training) const {
  return {.training = training,
          .dropout = key,
          .samples = &samples,
          .key_bias = key_bias.defined() ? &key_bias : nullptr,
          .positions = positions.defined() ? &positions : nullptr,
          .first_key = first_key.defined() ? &first_key : nullptr,
          .pairs = pairs};
}

}  // namespace fsdp
