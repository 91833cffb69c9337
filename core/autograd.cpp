// Recording, the backward pass, and gradients of parameters.
#include "core/autograd.h"

#include "core/layer_args.h"
#include "core/shard_args.h"

namespace fsdp {

void Tape::record(std::string name, const std::vector<const Tensor*>& inputs,
                  const std::vector<Tensor*>& outputs, BackwardFunction backward) {
  auto node = std::make_shared<Node>();
  node->tape = this;
  node->name = std::move(name);
  node->sequence = next_sequence_++;
  for (const Tensor* input : inputs) {
    node->inputs.push_back(input && input->defined() ? input->autograd() : nullptr);
  }
  node->output_gradients.resize(outputs.size());
  node->backward = std::move(backward);
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i]->set_autograd(
        std::make_shared<AutogradMeta>(AutogradMeta{node, static_cast<int>(i)}));
  }
}

namespace {

// Adds a contribution to a gradient slot, in place when nobody else holds the slot's memory.
void add_gradient(Backend& backend, Tensor& slot, Tensor contribution) {
  if (!contribution.defined()) return;
  if (!slot.defined()) {
    slot = std::move(contribution);
    return;
  }
  if (slot.storage().use_count() == 1) {
    backend.run(backend.compute_stream(), AddArgs{slot, contribution, slot});
    return;
  }
  Tensor sum = Tensor::empty(backend, slot.shape(), slot.dtype());
  backend.run(backend.compute_stream(), AddArgs{slot, contribution, sum});
  slot = sum;
}

}  // namespace

void Tape::backward(const Tensor& output, const Tensor& gradient) {
  FSDP_CHECK(output.requires_grad(), "[backward] output: needs a recorded graph");
  // Reverse order of recording is a topological order: a node's inputs were recorded before it.
  std::map<int64_t, std::shared_ptr<Node>, std::greater<>> due;
  const std::shared_ptr<Node>& last = output.autograd()->producer;
  add_gradient(*backend_, last->output_gradients[static_cast<size_t>(output.autograd()->output)],
               gradient);
  due.emplace(last->sequence, last);
  while (!due.empty()) {
    const std::shared_ptr<Node> node = due.begin()->second;
    due.erase(due.begin());
    FSDP_CHECK(node->backward != nullptr, "[backward] {}: its graph was used already", node->name);
    std::vector<Tensor> input_gradients;
    {
      // Destroyed before the inputs' gradients are passed on: frees saved activations early.
      BackwardFunction run = std::move(node->backward);
      node->backward = nullptr;
      // The slots stay: a second backward finds them empty and reports itself above.
      std::vector<Tensor> output_gradients(node->output_gradients.size());
      output_gradients.swap(node->output_gradients);
      input_gradients = run(output_gradients);
    }
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const std::shared_ptr<AutogradMeta>& input = node->inputs[i];
      if (!input) continue;
      Node& producer = *input->producer;
      if (i < input_gradients.size()) {
        add_gradient(*backend_, producer.output_gradients[static_cast<size_t>(input->output)],
                     std::move(input_gradients[i]));
      }
      due.emplace(producer.sequence, input->producer);
    }
  }
}

Tape* tape_of(std::initializer_list<const Tensor*> inputs) {
  for (const Tensor* input : inputs) {
    if (input && input->defined() && input->requires_grad()) {
      Tape* tape = input->autograd()->producer->tape;
      if (tape->recording()) return tape;
    }
  }
  return nullptr;
}

Tensor on_gradient(const Tensor& x, std::string name, std::function<void()> hook) {
  Tape* tape = tape_of({&x});
  if (!tape) return x;
  Tensor y = x.detached();
  tape->record(std::move(name), {&x}, {&y},
               [hook = std::move(hook)](std::vector<Tensor>& gradients) {
                 hook();
                 return std::move(gradients);
               });
  y.autograd()->recipe = x.autograd()->recipe;
  return y;
}

GradientTarget Parameter::begin_gradient(bool several, const AllocateGradient& allocate) {
  const bool first = !gradient_.defined();
  const DType wide = accumulation_dtype(value().dtype());
  const auto wide_memory = [&] {
    Backend& backend = value().backend();
    return allocate ? allocate(backend, shape_, wide)
                    : Tensor::empty(backend, shape_, wide, MemoryCategory::kGradient);
  };
  if (first) gradient_ = gradient_memory_ ? gradient_memory_() : wide_memory();
  if (gradient_.dtype() == wide) return {gradient_, !first};
  if (wide_.defined()) return {wide_, true};
  // Kernels store in the dtype of their operands; any other goes through the accumulation dtype.
  const bool direct = gradient_.dtype() == value().dtype();
  if (direct && first && !several && pending_uses_ <= 1) return {gradient_, false};
  Backend& backend = gradient_.backend();
  wide_ = wide_memory();
  if (!first) backend.run(backend.compute_stream(), CastArgs{gradient_, wide_});
  return {wide_, !first};
}

void Parameter::end_gradient() {
  FSDP_CHECK(pending_uses_ > 0, "[parameter] {}: more gradients than uses", name_);
  --pending_uses_;
  if (pending_uses_ == 0) settle_gradient();
}

void Parameter::settle_gradient() {
  if (!wide_.defined()) return;
  Backend& backend = wide_.backend();
  backend.run(backend.compute_stream(), CastArgs{wide_, gradient_});
  wide_ = Tensor();
}

void Parameter::leave_gradient() {
  gradient_ = Tensor();
  wide_ = Tensor();
}

void Parameter::clear_gradient() {
  leave_gradient();
  pending_uses_ = 0;
}

}  // namespace fsdp
