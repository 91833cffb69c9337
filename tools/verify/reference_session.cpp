// Contract: tools/verify/reference_session.h.
#include "tools/verify/reference_session.h"

#include "models/adapter_folder.h"
#include "models/names.h"
#include "models/weights.h"
#include "tools/data/row_range.h"

namespace fsdp::tools {

models::FillFunction ReferenceSession::values(Adapter adapter) {
  const models::FillFunction base =
      models::from_folder(reference_.model_folder.string(), reference_.config,
                          session_->parameters(), {rank_.world.rank(), rank_.world.size()});
  if (!reference_.lora) return base;
  return adapter == Adapter::kMerged
             ? models::merged_with_adapter(base, reference_.folder, session_->model())
             : models::with_adapter(base, reference_.folder, session_->model());
}

void ReferenceSession::start(const ReferenceTrajectory& trajectory, DType dtype, Adapter adapter) {
  SessionOptions session;
  session.model = reference_.config;
  if (adapter == Adapter::kApart) session.lora = reference_.lora;
  session.max_length = reference_.longest_sequence();
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
  const bool judge = dtype == DType::kF64 && reference_.dtype != dtype;
  if (judge) session.backend.only_cuda = false;  // f64 is the CPU's
  session.adamw = trajectory.adamw;
  session.clip_norm = trajectory.clip_norm;
  session.clip_power = trajectory.clip_power;
  session_.reset();  // the old one's memory first
  session_ = std::make_unique<Session>(rank_.world, session);
  models::FillFunction fill;
  agree(rank_.world, [&] { fill = values(adapter); });
  session_->initialise(fill);
}

Batch ReferenceSession::my_part(const GlobalBatch& batch) const {
  return part_of(batch, data::deal_rows(batch.rows, rank_.world.rank(), rank_.world.size()));
}

Batch ReferenceSession::begin_step(const GlobalBatch& batch, const StepEvents& events) {
  session_->model().leave_out(events.left_out);
  Batch mine = my_part(batch);
  if (events.infinite_rank == rank_.world.rank()) {
    mine.gradient_factor = std::numeric_limits<double>::infinity();
  }
  return mine;
}

bool ReferenceSession::is_compared(const Parameter& parameter) const {
  return !reference_.lora || models::is_lora(parameter);
}

std::string ReferenceSession::file_name(const Parameter& parameter) const {
  return models::is_lora(parameter)
             ? models::adapter_name(reference_.config, parameter)
             : models::hugging_face_name(reference_.config, parameter.name());
}

void ReferenceSession::check_tensors(const ReferenceTensors& tensors, bool may_lack) {
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
