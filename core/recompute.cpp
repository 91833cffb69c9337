// A node whose backward records and walks a graph of its own; recipes.
#include "core/recompute.h"

#include "core/host_inputs.h"

namespace fsdp {
namespace {

// Runs `body` on a leaf with recording on and returns the gradient that reaches the leaf.
Tensor backward_through(Tape& tape, const Tensor& input,
                        const std::function<Tensor(const Tensor&)>& body, bool wants_gradient,
                        const Tensor& output_gradient) {
  Tensor leaf = input;
  Tensor input_gradient;
  if (wants_gradient) {
    tape.record("recompute_input", {}, {&leaf}, [&](std::vector<Tensor>& gradients) {
      input_gradient = gradients[0];
      return std::vector<Tensor>{};
    });
  }
  Tensor output;
  {
    const Tape::Recomputing again(tape);
    output = body(leaf);
  }
  // Nothing to do in a piece whose parameters are frozen and whose input needs no gradient.
  if (output.requires_grad()) tape.backward(output, output_gradient);
  return input_gradient;
}

// Gives the input back, once.
std::function<Tensor()> keep(Tape& tape, const Tensor& input, InputPlace place) {
  if (place == InputPlace::kDevice) return [input = input.detached()] { return input; };
  FSDP_CHECK(tape.host_inputs(), "[recompute] offload: expected a host for the inputs, got none");
  return [sent = tape.host_inputs()->send(input)] { return sent->take(); };
}

}  // namespace

Tensor recompute(Tape& tape, const Tensor& input, std::function<Tensor(const Tensor&)> body,
                 InputPlace place) {
  if (!tape.recording()) return body(input);
  std::function<Tensor()> take = keep(tape, input, place);
  Tensor output;
  {
    const Tape::Pause pause(tape);
    output = body(input.detached()).detached();
  }
  tape.record("recompute", {&input}, {&output},
              [&tape, take = std::move(take), wants_gradient = input.requires_grad(),
               body = std::move(body)](std::vector<Tensor>& gradients) {
                Tensor output_gradient = std::move(gradients[0]);
                return std::vector<Tensor>{
                    backward_through(tape, take(), body, wants_gradient, output_gradient)};
              });
  return output;
}

Tensor Recipe::take() {
  if (!value_.defined()) value_ = compute_();
  Tensor value = value_;
  if (--users_ == 0) value_ = Tensor();
  return value;
}

void leave_recipe(Tape& tape, Tensor& y, std::function<Tensor()> compute) {
  if (tape.selective()) y.autograd()->recipe = std::make_shared<Recipe>(std::move(compute));
}

SavedValue::SavedValue(const Tensor& x) {
  if (x.requires_grad()) recipe_ = x.autograd()->recipe;
  if (recipe_) {
    recipe_->add_user();
  } else {
    tensor_ = x.detached();
  }
}

Tensor SavedValue::take() const { return recipe_ ? recipe_->take() : tensor_; }

}  // namespace fsdp
