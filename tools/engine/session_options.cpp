// What follows from the options of a session.
#include "tools/engine/session_options.h"

#include <algorithm>
#include <set>

#include <fnmatch.h>

#include "models/names.h"

namespace fsdp {

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
  comm::WrapPolicy wrap =
      options.wrap ? options.wrap : comm::wrap_classes({options.model.block_class});
  if (!options.split_root) return wrap;
  return comm::split_root(std::move(wrap), [](Module& root) {
    const auto& model = dynamic_cast<models::CausalLM&>(root);
    return std::vector<comm::ModuleGroup>{
        {.name = "embedding", .modules = model.before_blocks()},
        {.name = "head", .modules = model.after_blocks(), .awaits_backward = true}};
  });
}

// Token and position table are read by one operation: as units of their own both are gathered.
void check_buffers(Module& model, const comm::WrapPolicy& wrap, const comm::FsdpOptions& options,
                   int shards) {
  const comm::UnitPolicy policy = comm::unit_policy(options, {.shards = shards}, false);
  if (options.units_in_flight > 1 || policy.keeps_parameters()) return;
  const std::set<const Module*> wrapped = wrap(model).modules;
  const auto tables = std::count_if(wrapped.begin(), wrapped.end(), [](const Module* module) {
    return module->class_name() == "Embedding";
  });
  FSDP_CHECK(tables < 2,
             "fsdp.units_in_flight: expected at least 2, got 1: the token and the position table "
             "are units of their own here and are used together");
}

std::vector<DType> computed_dtypes(const comm::FsdpOptions& options) {
  std::vector<DType> out = {options.param_dtype};
  for (const comm::UnitOverride& unit : options.units) {
    if (unit.param_dtype) out.push_back(*unit.param_dtype);
  }
  return out;
}

void set_decay(const std::vector<Parameter*>& parameters, Decay decay) {
  for (Parameter* parameter : parameters) {
    const bool matrix = parameter->shape().rank() >= 2;
    parameter->set_decay(decay == Decay::kAll || (decay == Decay::kMatrices && matrix));
  }
}

}  // namespace fsdp
