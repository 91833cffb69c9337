// Module tree walks and the hook sequence.
#include "core/module.h"

#include <algorithm>

#include "core/cast.h"

namespace fsdp {

std::vector<Parameter*> Module::parameters() const {
  std::vector<Parameter*> all;
  const auto add = [&](Parameter* parameter) {
    if (std::find(all.begin(), all.end(), parameter) == all.end()) all.push_back(parameter);
  };
  for (Parameter* parameter : parameters_) add(parameter);
  for (const Module* child : children_) {
    for (Parameter* parameter : child->parameters()) add(parameter);
  }
  return all;
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> all = {this};
  for (Module* child : children_) {
    for (Module* module : child->modules()) all.push_back(module);
  }
  return all;
}

void Module::set_tape(Tape* tape) {
  for (Module* module : modules()) {
    module->tape_ = tape;
    for (Parameter* parameter : module->parameters_) parameter->set_tape(tape);
  }
}

Tensor Module::run(const Tensor& input, const std::function<Tensor(const Tensor&)>& body) {
  if (hooks_.pre_forward) hooks_.pre_forward();
  const Tensor x = hooks_.post_backward && input.defined()
                       ? on_gradient(input, name_ + ".post_backward", hooks_.post_backward)
                       : input;
  Tensor y = cast_output(body(cast_input(x)));
  if (hooks_.post_forward) hooks_.post_forward();
  return hooks_.pre_backward ? on_gradient(y, name_ + ".pre_backward", hooks_.pre_backward) : y;
}

Tensor Module::cast_activation(const Tensor& x, std::optional<DType> dtype) {
  const bool activation = x.defined() && is_floating(x.dtype()) && x.shape().rank() > 0;
  return dtype && activation ? cast(x, *dtype) : x;
}

Parameter& Module::add_parameter(const std::string& name, Shape shape, Initializer initializer,
                                 bool decay) {
  owned_parameters_.push_back(std::make_unique<Parameter>(path(name), shape, initializer, decay));
  parameters_.push_back(owned_parameters_.back().get());
  return *parameters_.back();
}

}  // namespace fsdp
