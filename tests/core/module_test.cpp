// The module tree: names, parameters in order, shared ones once, and the order of hooks.
#include "core/module.h"

#include <doctest/doctest.h>

#include "core/ops/linear.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using Log = std::vector<std::string>;

class Leaves final : public Module {
 public:
  explicit Leaves(std::string name)
      : Module(std::move(name), "Leaves"),
        weight(add_parameter("weight", Shape{2, 2}, {0, 0.5}, true)) {}
  Tensor operator()(const Tensor& x, Log& log) {
    return run(x, [&](const Tensor& input) {
      log.push_back("compute " + name());
      return ops::linear(input, {.weight = weight});
    });
  }
  void share(Parameter& parameter) { share_parameter(parameter); }
  Parameter& weight;
};

class Tree final : public Module {
 public:
  Tree() : Module("", "Tree") {
    first = &add_child<Leaves>("layers.0");
    second = &add_child<Leaves>("layers.1");
    own = &add_parameter("scale", Shape{3}, {1, 0}, false);
    second->share(first->weight);
  }
  Tensor operator()(const Tensor& x, Log& log) {
    return run(x, [&](const Tensor& input) { return (*second)((*first)(input, log), log); });
  }
  Leaves* first;
  Leaves* second;
  Parameter* own;
};

void attach(Tree& tree, Tape& tape) {
  for (Parameter* p : tree.parameters()) {
    p->set_value(test::random_tensor(tape.backend(), p->shape(), DType::kF64, 3));
  }
  tree.set_tape(&tape);
}

ModuleHooks logging(const std::string& name, Log& log) {
  const auto note = [&log, name](const char* what) {
    return [&log, name, what] { log.push_back(what + name); };
  };
  return {.pre_forward = note("pre_forward "),
          .post_forward = note("post_forward "),
          .pre_backward = note("pre_backward "),
          .post_backward = note("post_backward ")};
}

TEST_CASE("names are dotted, parameters in order of registration, shared ones once") {
  Tree tree;
  std::vector<std::string> names;
  for (const Parameter* p : tree.parameters()) names.push_back(p->name());
  CHECK(names == std::vector<std::string>{"scale", "layers.0.weight", "layers.1.weight"});
  std::vector<std::string> modules;
  for (const Module* m : tree.modules()) modules.push_back(m->name() + ":" + m->class_name());
  CHECK(modules == std::vector<std::string>{":Tree", "layers.0:Leaves", "layers.1:Leaves"});
  CHECK(tree.second->own_parameters().size() == 2);  // its own and the shared one
  CHECK(tree.own->initializer().mean == 1);
  CHECK_FALSE(tree.own->decay());
  CHECK(tree.first->weight.decay());
}

TEST_CASE("hooks run around forward, and mirrored around backward") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Tree tree;
  attach(tree, tape);
  Log log;
  tree.set_hooks(logging("root", log));
  tree.first->set_hooks(logging("0", log));
  tree.second->set_hooks(logging("1", log));
  const test::Leaf x(tape, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 1));
  const Tensor y = tree(x.value(), log);
  CHECK(log == Log{"pre_forward root", "pre_forward 0", "compute layers.0", "post_forward 0",
                   "pre_forward 1", "compute layers.1", "post_forward 1", "post_forward root"});
  log.clear();
  tape.backward(y, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 2));
  CHECK(log == Log{"pre_backward root", "pre_backward 1", "post_backward 1", "pre_backward 0",
                   "post_backward 0", "post_backward root"});
}

TEST_CASE("a module in another dtype casts activations in and out, and gradients back") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Tree tree;
  attach(tree, tape);
  tree.first->weight.set_value(
      test::random_tensor(backend, tree.first->weight.shape(), DType::kF32, 3));
  tree.first->set_hooks({.input_dtype = DType::kF32, .output_dtype = DType::kF64});
  Log log;
  const test::Leaf x(tape, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 1));
  const Tensor y = tree(x.value(), log);
  CHECK(y.dtype() == DType::kF64);
  tape.backward(y, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 2));
  CHECK(x.gradient().dtype() == DType::kF64);
  CHECK(tree.first->weight.gradient().dtype() == DType::kF32);
  CHECK(tree.second->weight.gradient().dtype() == DType::kF64);
}

TEST_CASE("post_backward comes after the module's weight gradients are complete") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Tree tree;
  attach(tree, tape);
  std::vector<int> pending;
  tree.second->set_hooks(
      {.pre_backward = [&] { pending.push_back(tree.second->weight.pending_uses()); },
       .post_backward = [&] { pending.push_back(tree.second->weight.pending_uses()); }});
  Log log;
  const test::Leaf x(tape, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 1));
  tape.backward(tree(x.value(), log), test::random_tensor(backend, Shape{1, 2}, DType::kF64, 2));
  CHECK(pending == std::vector<int>{1, 0});
}

TEST_CASE("hooks change no value and no gradient; without recording only forward hooks run") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Tree plain, hooked;
  attach(plain, tape);
  attach(hooked, tape);
  Log log, unused;
  hooked.set_hooks(logging("root", log));
  hooked.second->set_hooks(logging("1", log));
  std::vector<std::vector<double>> results;
  for (Tree* tree : {&plain, &hooked}) {
    const test::Leaf x(tape, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 1));
    const Tensor y = (*tree)(x.value(), unused);
    tape.backward(y, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 2));
    results.push_back(y.to_doubles());
    results.push_back(x.gradient().to_doubles());
    results.push_back(tree->first->weight.gradient().to_doubles());
  }
  for (size_t i = 0; i < 3; ++i) CHECK(results[i] == results[i + 3]);
  log.clear();
  const Tape::Pause pause(tape);
  hooked(test::random_tensor(backend, Shape{1, 2}, DType::kF64, 1), unused);
  CHECK(log == Log{"pre_forward root", "pre_forward 1", "post_forward 1", "post_forward root"});
}

TEST_CASE("a module whose input needs no gradient has no post_backward") {
  cpu::CpuBackend backend;
  Tape tape(backend);
  Tree tree;
  attach(tree, tape);
  Log log, unused;
  tree.first->set_hooks(logging("0", log));
  const Tensor y = tree(test::random_tensor(backend, Shape{1, 2}, DType::kF64, 1), unused);
  tape.backward(y, test::random_tensor(backend, Shape{1, 2}, DType::kF64, 2));
  CHECK(log == Log{"pre_forward 0", "post_forward 0", "pre_backward 0"});
}

}  // namespace
}  // namespace fsdp
