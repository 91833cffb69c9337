// Contract: tools/verify/described_session.h.
#include "tools/verify/described_session.h"

#include "models/adapter_folder.h"
#include "models/names.h"
#include "models/weights.h"
#include "tools/engine/batch.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

models::FillFunction DescribedSession::values(Adapter adapter) {
  const models::FillFunction base =
      models::from_folder(expected_.model_folder.string(), expected_.config, session_->parameters(),
                          {rank_.world.rank(), rank_.world.size()});
  if (!expected_.lora) return base;
  return adapter == Adapter::kMerged
             ? models::merged_with_adapter(base, expected_.folder, session_->model())
             : models::with_adapter(base, expected_.folder, session_->model());
}

void DescribedSession::start(const ExpectedTraining& trajectory, DType dtype, Adapter adapter) {
  PlacedOptions session;
  session.model = expected_.config;
  if (adapter == Adapter::kApart) session.lora = expected_.lora;
  session.max_length = expected_.longest_sequence();
  session.fsdp = trajectory.run.fsdp;
  if (dtype != session.fsdp.param_dtype)
    session.fsdp.param_dtype = session.fsdp.reduce_dtype = dtype;
  if (options_.strategy) {
    session.fsdp.strategy = *options_.strategy;
    session.fsdp.shard_size = options_.shard_size;
  }
  session.loss_mean = trajectory.run.loss_mean;
  session.loss_scale = trajectory.run.loss_scale;
  session.frozen = trajectory.run.frozen;
  session.backend = rank_.backend;
  const bool judge = dtype == DType::kF64 && expected_.dtype != dtype;
  if (judge) session.backend.only_cuda = false;  // f64 is the CPU's
  session.optimizer = trajectory.optimizer;
  session.clip_norm = trajectory.clip_norm;
  session.clip_power = trajectory.clip_power;
  session_.reset();  // the old one's memory first
  session_ = std::make_unique<Session>(rank_.world, make_places(rank_.world, session), session);
  models::FillFunction fill;
  agree(rank_.world, [&] { fill = values(adapter); });
  session_->initialise(fill);
}

Batch DescribedSession::my_part(const Batch& batch) const {
  return rows_of(batch, deal_rows(batch.rows, rank_.world.rank(), rank_.world.size()));
}

Batch DescribedSession::begin_step(const Batch& batch, const StepEvents& events) {
  session_->model().leave_out(events.left_out);
  Batch mine = my_part(batch);
  if (events.infinite_rank == rank_.world.rank()) {
    mine.gradient_factor = std::numeric_limits<double>::infinity();
  }
  return mine;
}

bool DescribedSession::is_compared(const Parameter& parameter) const {
  return !expected_.lora || models::is_lora(parameter);
}

std::string DescribedSession::file_name(const Parameter& parameter) const {
  return models::is_lora(parameter) ? models::adapter_name(expected_.config, parameter)
                                    : models::hugging_face_name(expected_.config, parameter.name());
}

void DescribedSession::check_tensors(const ExpectedTensors& tensors, bool may_lack) {
  agree(rank_.world, [&] {
    std::vector<std::string> unknown = tensors.names();
    for (const Parameter* parameter : session_->parameters()) {
      if (!is_compared(*parameter)) continue;
      const bool known = std::erase(unknown, file_name(*parameter)) > 0;
      if (!known && may_lack) continue;
      tensors.check_shape(file_name(*parameter), parameter->shape().extents());
    }
    FSDP_CHECK(unknown.empty(), "{}: {} belongs to no parameter of the model",
               tensors.path().string(), unknown.front());
  });
}

}  // namespace fsdp::tools
