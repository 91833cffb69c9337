// The module tree down to its leaves: Hugging Face's class names, and hooks of every module around
// its own work, forward and backward. What the layers compute: block_test.cpp, causal_lm_test.cpp.
#include "models/layers.h"

#include <map>

#include <doctest/doctest.h>

#include "core/ops/elementwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "tests/support/sharded_run.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_models.h"

namespace fsdp::models {
namespace {

using Log = std::vector<std::string>;

std::string tree(Module& model) {
  std::string text;
  for (const Module* module : model.modules()) {
    text += module->name() + ":" + module->class_name() + " ";
  }
  return text;
}

TEST_CASE("layers: the module tree has Hugging Face's classes") {
  cpu::CpuBackend backend;
  CausalLM gpt2(test::tiny_gpt2(1), backend, DType::kF32, 8);
  CHECK(tree(gpt2) ==
        ":GPT2LMHeadModel base:GPT2Model embedding.tokens:Embedding embedding.positions:Embedding "
        "blocks.0:GPT2Block blocks.0.attention_norm:LayerNorm blocks.0.attention:GPT2Attention "
        "blocks.0.attention.qkv:Conv1D blocks.0.attention.out:Conv1D blocks.0.mlp_norm:LayerNorm "
        "blocks.0.mlp:GPT2MLP blocks.0.mlp.up:Conv1D blocks.0.mlp.down:Conv1D "
        "final_norm:LayerNorm head:Linear ");
  CausalLM llama(test::tiny_llama(1), backend, DType::kF32, 8);
  CHECK(tree(llama) ==
        ":LlamaForCausalLM base:LlamaModel embedding.tokens:Embedding blocks.0:LlamaDecoderLayer "
        "blocks.0.attention:LlamaAttention blocks.0.attention.q:Linear blocks.0.attention.k:Linear "
        "blocks.0.attention.v:Linear blocks.0.attention.out:Linear blocks.0.mlp:LlamaMLP "
        "blocks.0.mlp.gate:Linear blocks.0.mlp.up:Linear blocks.0.mlp.down:Linear "
        "blocks.0.attention_norm:LlamaRMSNorm blocks.0.mlp_norm:LlamaRMSNorm "
        "final_norm:LlamaRMSNorm head:Linear ");
}

// Runs forward and backward with hooks on every module; the events in order, per module.
std::map<std::string, Log> hooked_pass(const ModelConfig& config) {
  cpu::CpuBackend backend;
  Tape tape(backend);
  CausalLM model(config, backend, DType::kF32, 4);
  for (Parameter* p : model.parameters()) {
    p->set_value(test::random_tensor(backend, p->shape(), DType::kF32, hash_name(p->name())));
  }
  model.set_tape(&tape);
  std::map<std::string, Log> events;
  for (Module* module : model.modules()) {
    Log& log = events[module->name()];
    const std::vector<Parameter*>& own = module->own_parameters();
    // By post_backward a leaf's own gradients are there; before, they were not.
    const auto gradients = [own] {
      return !own.empty() && own[0]->gradient().defined() && own[0]->pending_uses() == 0;
    };
    module->set_hooks(
        {.pre_forward = [&log] { log.push_back("forward"); },
         .post_forward = [&log] { log.push_back("done"); },
         .pre_backward =
             [&log, gradients] { log.push_back(gradients() ? "backward, late" : "backward"); },
         .post_backward =
             [&log, gradients, leaf = module->children().empty()] {
               log.push_back(leaf && !gradients() ? "too early" : "reduce");
             }});
  }
  const Tensor tokens = Tensor::from_host(backend, Shape{1, 4}, std::vector<int32_t>{1, 2, 3, 4});
  const Tensor labels = Tensor::from_host(backend, Shape{4}, std::vector<int32_t>{2, 3, 4, -100});
  tape.backward(model.loss(tokens, labels, {}, 1));
  return events;
}

TEST_CASE("layers: roles of parameters") {
  cpu::CpuBackend backend;
  const auto roles = [&](const ModelConfig& config) {
    CausalLM model(config, backend, DType::kF32, 8);
    std::map<ParameterRole, std::string> names;
    for (const Parameter* p : model.parameters()) names[p->role()] += p->name() + " ";
    return names;
  };
  auto gpt2 = roles(test::tiny_gpt2(1));
  CHECK(gpt2[ParameterRole::kEmbedding] == "embedding.tokens.weight embedding.positions.weight ");
  CHECK(gpt2[ParameterRole::kHead].empty());  // tied
  CHECK(gpt2[ParameterRole::kHiddenMatrix] ==
        "blocks.0.attention.qkv.weight blocks.0.attention.out.weight blocks.0.mlp.up.weight "
        "blocks.0.mlp.down.weight ");
  auto llama = roles(test::tiny_llama(1));
  CHECK(llama[ParameterRole::kEmbedding] == "embedding.tokens.weight ");
  CHECK(llama[ParameterRole::kHead] == "head.weight ");
  CHECK(llama[ParameterRole::kVector] ==
        "blocks.0.attention_norm.weight blocks.0.mlp_norm.weight final_norm.weight ");
}

TEST_CASE("layers: hooks of every module fire once, around its own work") {
  ModelConfig untied = test::tiny_gpt2();
  untied.tied_head = false;
  for (const ModelConfig& config : {untied, test::tiny_llama()}) {
    for (const auto& [name, log] : hooked_pass(config)) {
      CAPTURE(name);
      // The gradient of tokens is nobody's: the outermost modules end without a sign.
      const bool outer = name.empty() || name == "base" || name.starts_with("embedding.");
      Log expected = {"forward", "done", "backward"};
      if (!outer) expected.push_back("reduce");
      CHECK(log == expected);
    }
  }
}

// A block with norms on q and k, which needs q, k and v as tensors of their own.
class NormedHeads final : public Module {
 public:
  NormedHeads(std::string name, const ModelConfig& config) : Module(std::move(name), "Normed") {
    for (const char* part : {"q", "k", "v"}) {
      inputs_.push_back(
          &add_child<Linear>(part, Linear::Spec{.in = config.hidden, .out = config.hidden}));
    }
    Linear::keep_together(inputs_);
    q_norm_ = &add_child<Norm>("q_norm", config);
    k_norm_ = &add_child<Norm>("k_norm", config);
  }
  Tensor operator()(const Tensor& x, const ForwardContext& context) {
    return run(x, [&](const Tensor& input) {
      const std::vector<Tensor> parts = Linear::outputs(inputs_, input, context);
      REQUIRE(parts.size() == 3);
      // The parameters do lie side by side, which a caller that asks for it makes use of.
      CHECK(Linear::joined_outputs(inputs_, input, context).size() == 1);
      return ops::add(ops::glu((*q_norm_)(parts[0]).y, (*k_norm_)(parts[1]).y), parts[2]);
    });
  }

 private:
  std::vector<Linear*> inputs_;
  Norm *q_norm_, *k_norm_;
};

class NormedModel final : public Module {
 public:
  explicit NormedModel(const ModelConfig& config)
      : Module("", "NormedModel"),
        embedding_(add_child<Embedding>("embedding", config.vocabulary, config)),
        block_(add_child<NormedHeads>("block", config)),
        head_(add_child<Linear>("head", embedding_.table(), false)) {}
  Tensor loss(const test::Pass& p) {
    return run(Tensor(), [&](const Tensor&) {
      const Tensor x = block_(embedding_(p.tokens, nullptr, nullptr), p.context);
      return head_.cross_entropy(x, p.labels, p.gradient_scale, nullptr, {});
    });
  }

 private:
  Embedding& embedding_;
  NormedHeads& block_;
  Linear& head_;
};

TEST_CASE("layers: outputs are apart wherever the parameters lie: norms on q and k on 2 ranks") {
  const auto subject = [](Backend&, DType) {
    auto model = std::make_unique<NormedModel>(test::small_qwen2());
    NormedModel* const normed = model.get();
    return test::Subject{std::move(model), "Normed",
                         [normed](const test::Pass& p) { return normed->loss(p); }};
  };
  test::RunSpec spec{.subject = subject};
  spec.fsdp.fixed_order = true;
  const test::RunResult result = test::train(spec);
  CHECK((result == test::train_as_one_rank(spec)));
  CHECK(result.losses.back() < result.losses.front());
}

}  // namespace
}  // namespace fsdp::models
