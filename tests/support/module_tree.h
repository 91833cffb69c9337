// A module tree by hand: parameters "w" and "v", children, and parameters of others.
#pragma once

#include "core/module.h"

namespace fsdp::test {

class Tree final : public Module {
 public:
  Tree(std::string name, std::string class_name) : Module(std::move(name), std::move(class_name)) {}
  Parameter& parameter(const std::string& name) {
    return add_parameter(name, Shape{3, 5}, {}, true);
  }
  void share(Parameter& parameter) { share_parameter(parameter); }
  Tree& child(const std::string& name, const std::string& class_name) {
    return add_child<Tree>(name, class_name);
  }
};

}  // namespace fsdp::test
