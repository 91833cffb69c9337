// Activation recompute (activation checkpointing; Chen et al., 2016, arXiv 1604.06174), three
// kinds. Full: forward keeps only the input of a piece of the model; backward runs the piece again,
// now recording, and goes through it at once. Offload: as full, and the input waits in the host's
// memory (core/host_inputs.h). Selective (Korthikanti et al., 2022, arXiv 2205.05198): the results
// of matrix products and attention are kept; norms, activations and gates, which cost a pass over
// memory, leave a recipe to whoever needs their result in backward. Values are the same bits:
// kernels are deterministic and random numbers are keyed, not drawn.
#pragma once

#include <functional>

#include "core/autograd.h"

namespace fsdp {

enum class RecomputeMode : uint8_t { kNone, kSelective, kFull, kOffload };

enum class InputPlace : uint8_t { kDevice, kHost };

// body(input), of which the tape keeps nothing but the input, at `place`. `body` must be a function
// of its input and of parameters only, and may be called after this returns. On the host: the tape
// must have been given a place there, Tape::set_host_inputs.
Tensor recompute(Tape& tape, const Tensor& input, std::function<Tensor(const Tensor&)> body,
                 InputPlace place = InputPlace::kDevice);

// How to compute a value again from what its op saved anyway.
class Recipe {
 public:
  explicit Recipe(std::function<Tensor()> compute) : compute_(std::move(compute)) {}
  void add_user() { ++users_; }
  // Computed for the first of the users, given back after the last.
  Tensor take();

 private:
  std::function<Tensor()> compute_;
  Tensor value_;
  int users_ = 0;
};

// Called by an op after it recorded y: in selective mode users of y save the recipe instead of y.
void leave_recipe(Tape& tape, Tensor& y, std::function<Tensor()> compute);

// What an op keeps of an input for its backward: the tensor, or its recipe.
class SavedValue {
 public:
  SavedValue() = default;  // nothing
  explicit SavedValue(const Tensor& x);
  Tensor take() const;  // once

 private:
  Tensor tensor_;
  std::shared_ptr<Recipe> recipe_;
};

}  // namespace fsdp
