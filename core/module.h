// The module tree: named parameters, children, and hooks around forward and backward.
// A module knows nothing of sharding; comm/fsdp attaches to these hooks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/autograd.h"
#include "core/rng.h"

namespace fsdp {

class KvCache;  // core/kv_cache.h
namespace ops {
struct RopeTables;  // core/ops/attention.h
}

// What a forward pass needs besides its input; the same for all modules of a pass.
struct ForwardContext {
  bool training = false;              // dropout on
  DropoutKey dropout;                 // seed, step, micro_step; modules add layer and site
  const Tensor* samples = nullptr;    // (B), i64: global sample index per row; with dropout
  const Tensor* key_bias = nullptr;   // instead of the model's own, where rows are padded; see
                                      // AttentionArgs
  const Tensor* positions = nullptr;  // (B, T), i32: of every token; null: 0, 1, ... in every row
  // Rows of the rotary tables at `positions`: the model makes them once for all its layers.
  std::shared_ptr<const ops::RopeTables> rope_at_positions = nullptr;
  // (B, T), i32: the first token that a token may see, where documents share a row; null: 0. The
  // pairs of tokens that this leaves, for costs; 0: not known. See AttentionArgs.
  const Tensor* first_key = nullptr;
  int64_t pairs = 0;
  // Keys and values of the tokens before these, which are added to it; with positions, and not
  // while recording.
  KvCache* cache = nullptr;
};

struct ModuleHooks {
  std::function<void()> pre_forward;
  std::function<void()> post_forward;
  std::function<void()> pre_backward;   // the gradient of the module's output has arrived
  std::function<void()> post_backward;  // the gradient of its input is complete; not for a module
                                        // whose input needs none (the root)
  // Where a module computes in another dtype than the one around it: what it casts activations to
  // on their way in and out, and their gradients back; absent: not at all. As in PyTorch's
  // MixedPrecisionPolicy, cast_forward_inputs and output_dtype.
  std::optional<DType> input_dtype = std::nullopt, output_dtype = std::nullopt;
};

class Module {
 public:
  // `class_name`: what wrap policies match, e.g. "LlamaDecoderLayer".
  Module(std::string name, std::string class_name)
      : name_(std::move(name)),
        class_name_(std::move(class_name)),
        prefix_(name_.empty() ? "" : name_ + ".") {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& name() const { return name_; }  // dotted, "" for the root
  const std::string& class_name() const { return class_name_; }
  const std::vector<Module*>& children() const { return children_; }
  const std::vector<Parameter*>& own_parameters() const { return parameters_; }
  // Own and descendants', in order of registration; a shared parameter once, at its first owner.
  std::vector<Parameter*> parameters() const;
  // This module and all below it, parents first.
  std::vector<Module*> modules();
  void set_hooks(ModuleHooks hooks) { hooks_ = std::move(hooks); }
  // What this module, all below it and their parameters record on; null: nothing. The tree is
  // complete: what is added later is not told.
  void set_tape(Tape* tape);

 protected:
  // `prefix`: what names below this module begin with, where that is not its own name and a dot.
  Module(std::string name, std::string class_name, std::string prefix)
      : name_(std::move(name)), class_name_(std::move(class_name)), prefix_(std::move(prefix)) {}

  Tape* tape() const { return tape_; }
  // Runs `body` on the input between the hooks. Public entries of modules go through it.
  Tensor run(const Tensor& input, const std::function<Tensor(const Tensor&)>& body);
  // What else goes in and out, as run() casts its input and output. Token ids and losses, (), stay.
  Tensor cast_input(const Tensor& x) const { return cast_activation(x, hooks_.input_dtype); }
  Tensor cast_output(const Tensor& y) const { return cast_activation(y, hooks_.output_dtype); }

  Parameter& add_parameter(const std::string& name, Shape shape, Initializer initializer,
                           bool decay);
  void share_parameter(Parameter& parameter) { parameters_.push_back(&parameter); }
  template <typename M, typename... Args>
  M& add_child(const std::string& name, Args&&... args) {
    auto child = std::make_unique<M>(path(name), std::forward<Args>(args)...);
    M& reference = *child;
    children_.push_back(&reference);
    owned_children_.push_back(std::move(child));
    return reference;
  }

 private:
  std::string path(const std::string& name) const { return prefix_ + name; }
  static Tensor cast_activation(const Tensor& x, std::optional<DType> dtype);

  std::string name_;
  std::string class_name_;
  std::string prefix_;
  std::vector<std::unique_ptr<Module>> owned_children_;
  std::vector<Module*> children_;
  std::vector<std::unique_ptr<Parameter>> owned_parameters_;
  std::vector<Parameter*> parameters_;
  ModuleHooks hooks_;
  Tape* tape_ = nullptr;
};

}  // namespace fsdp
