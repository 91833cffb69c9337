// A call of a kernel as a value: it refers to one of the argument structs of core/kernel_args.h.
// It does not know their list, so that a new kernel rebuilds only the code that makes calls of its
// kind, and the code that takes any call apart.
#pragma once

#include <cstddef>

namespace fsdp {

// The index of an argument struct in the list. A struct that the list lacks does not link.
template <typename Args>
size_t kernel_kind();

// Refers to the arguments of a call, for as long as the call: a parameter, nothing to keep.
class Kernel {
 public:
  template <typename Args>
  requires requires { Args::name(); }
  Kernel(const Args& args) : args_(&args), kind_(kernel_kind<Args>()) {}

  size_t kind() const { return kind_; }
  // f(the arguments): has to compile for every kernel. Needs core/kernel_args.h.
  template <typename F>
  decltype(auto) visit(F&& f) const;

 private:
  const void* args_;
  size_t kind_;
};

}  // namespace fsdp
