// Construction of a rank's parts and the order of one step.
#include "tools/runtime/session.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/io/file.h"
#include "core/io/safetensors.h"
#include "models/names.h"

namespace fsdp::tools {

StepValues StepHandle::read() const {
  done_->wait();
  return {landing_->loss_sum / label_tokens_, landing_->norm};
}

Session::Session(comm::Communicator& world, const SessionOptions& options)
    : world_(world),
      options_(options),
      backend_(std::make_unique<cpu::CpuBackend>(options.cpu)),
      losses_(world.duplicate("losses")),
      tape_(std::make_unique<Tape>(*backend_)),
      model_(std::make_unique<models::CausalLM>(options.model, *backend_, options.fsdp.param_dtype,
                                                options.max_length)) {
  // Before sharding: a flat shard is one-dimensional and would hide which parameters are matrices.
  for (Parameter* parameter : model_->parameters()) {
    const bool matrix = parameter->shape().rank() >= 2;
    parameter->set_decay(options.decay == SessionOptions::Decay::kAll ||
                         (options.decay == SessionOptions::Decay::kMatrices && matrix));
  }
  const std::string& block_class = options_.model.block_class;
  const comm::WrapPredicate wrap = [&](const Module& module) {
    return options_.wrap_blocks && module.class_name() == block_class;
  };
  sharded_ = std::make_unique<comm::FullySharded>(*model_, wrap, options.fsdp, *tape_, world);
  if (!options.training) return;
  const std::vector<OptimizerShard> shards = sharded_->optimizer_shards();
  clipper_ = std::make_unique<optim::Clipper>(
      shards, &sharded_->mesh().scalars(), options.clip_norm, options.clip_power);
  optimizer_ = std::make_unique<optim::AdamW>(shards, options.adamw);
}

Session::~Session() = default;

void Session::initialise(const models::FillFunction& fill) { sharded_->initialise(fill); }

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
  const std::vector<int32_t> shifted = models::shifted_labels(labels, rows, batch.length);
  return {Tensor::from_host(*backend_, Shape{rows, batch.length}, tokens),
          Tensor::from_host(*backend_, Shape{rows * batch.length}, shifted),
          Tensor::from_host(*backend_, Shape{rows}, samples)};
}

ForwardContext Session::context(const DeviceBatch& batch, uint32_t step, bool training) const {
  return {.training = training,
          .dropout = {.seed = options_.seed, .step = step},
          .samples = &batch.samples};
}

void Session::sum_over_ranks(Tensor& scalar) {
  losses_->all_reduce(backend_->compute_stream(), scalar, comm::ReduceOp::kSum);
}

// The stream keeps the landing alive until it has written there, also when the handle is gone.
void Session::read_into(StepHandle& handle, double& landing, const Tensor& scalar) {
  Stream& stream = backend_->compute_stream();
  backend_->read_later(stream, &landing, scalar.data(), sizeof(double));
  backend_->host_task(stream, "keep_landing", 0, [landing = handle.landing_] {});
  handle.done_ = backend_->record(stream);
}

// ---------------------------------------------------------------------------- Steps

StepHandle Session::forward_backward(const Batch& batch, uint32_t step, bool training) {
  const DeviceBatch device = upload(batch);
  StepHandle handle;
  handle.label_tokens_ = static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
  // The reduction averages over the ranks; the mean is over all tokens of the global batch.
  const double scale = world_.size() / handle.label_tokens_;
  Tensor loss = model_->loss(device.tokens, device.labels, context(device, step, training), scale);
  tape_->backward(loss);
  sharded_->finish_backward();
  Tensor total = Tensor::empty(*backend_, Shape{}, DType::kF64);
  backend_->cast(backend_->compute_stream(), loss, total);
  sum_over_ranks(total);
  read_into(handle, handle.landing_->loss_sum, total);
  return handle;
}

StepHandle Session::train_step(const Batch& batch, double learning_rate, uint32_t step) {
  FSDP_CHECK(optimizer_ != nullptr, "[session] train_step: made without training");
  StepHandle handle = forward_backward(batch, step, true);
  clipper_->measure();
  optimizer_->step(learning_rate, clipper_->coefficient(), clipper_->skip());
  sharded_->finish_step();
  read_into(handle, handle.landing_->norm, clipper_->norm());
  return handle;
}

void Session::end_step() { sharded_->finish_step(); }

double Session::evaluate(const Batch& batch) {
  const Tape::Pause pause(*tape_);
  const DeviceBatch device = upload(batch);
  Tensor loss = model_->loss(device.tokens, device.labels, context(device, 0, false), 0);
  sharded_->reset();
  Tensor total = Tensor::empty(*backend_, Shape{}, DType::kF64);
  backend_->cast(backend_->compute_stream(), loss, total);
  sum_over_ranks(total);
  return total.item() / static_cast<double>(std::max<int64_t>(batch.global_label_tokens, 1));
}

std::vector<double> Session::logits(const Batch& batch) {
  const Tape::Pause pause(*tape_);
  const DeviceBatch device = upload(batch);
  const Tensor values = model_->logits(device.tokens, context(device, 0, false));
  sharded_->reset();
  std::vector<double> out = values.to_doubles();
  if (batch.rows == 0) out.clear();
  return out;
}

std::vector<double> Session::next_token_logits(const std::vector<int32_t>& tokens) {
  const Tape::Pause pause(*tape_);
  Batch batch = {.rows = 1, .length = static_cast<int64_t>(tokens.size()), .tokens = tokens};
  const DeviceBatch device = upload(batch);
  const Tensor values = model_->last_logits(device.tokens, context(device, 0, false));
  sharded_->reset();
  return values.to_doubles();
}

// ---------------------------------------------------------------------------- Saving

namespace {

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::kF64: return "float64";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
    default: return "float32";
  }
}

}  // namespace

void Session::save_folder(const std::string& folder, DType dtype) {
  // The writer wants tensors in its own order and visit_parameters gives units in theirs: every
  // tensor is kept on the host of rank 0 until its turn.
  std::map<std::string, std::vector<std::byte>> values;
  std::vector<SafetensorsSpec> specs;
  sharded_->visit_parameters([&](const Parameter& parameter, const Tensor& full) {
    if (world_.rank() != 0) return;
    const std::string name = models::hugging_face_name(options_.model, parameter.name());
    Tensor converted = Tensor::empty(*backend_, full.shape(), dtype, MemoryCategory::kWorkspace);
    backend_->cast(backend_->compute_stream(), full, converted);
    std::vector<std::byte>& host = values[name];
    host.resize(converted.bytes());
    converted.read(host.data());
    specs.push_back({name, dtype, parameter.shape().extents()});
  });
  if (world_.rank() == 0) {
    const std::filesystem::path path(folder);
    std::filesystem::create_directories(path);
    SafetensorsWriter writer(path / "model.safetensors", specs);
    for (const SafetensorsSpec& spec : writer.order()) {
      const std::vector<std::byte>& host = values.at(spec.name);
      writer.write(spec.name, host.data(), host.size());
    }
    writer.finish();
    write_file_atomically(path / "config.json",
                          models::config_json(options_.model, torch_name(dtype)));
  }
  world_.barrier();
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
  model_->probe(device.tokens, context(device, 0, false), look);
  sharded_->reset();
  return found;
}

}  // namespace fsdp::tools
