// The table, and the bytes of a call.
#include "tools/plan/other_programs.h"

#include <algorithm>
#include <array>

#include "core/autograd.h"

namespace fsdp::tools {
namespace {

// llm-foundry: eager PyTorch, FSDP1, GELU and LayerNorm as kernels of their own.
constexpr ProgramKernels foundry(std::string_view name, Again again) {
  return {.name = name,
          .model_type = "gpt2",
          .forward = {.hidden = 20, .ffn = 4},
          .backward = {.hidden = 42, .ffn = 8},
          .logits = 6,
          .gradients = 18,
          .gradients_16 = 8,
          .update_own = 72,
          .again = again};
}

// torchtitan: eager, and with torch.compile, which fuses what lies between products. nanotron: its
// own fused norms. vTrain: Megatron-LM without FlashAttention. LLMQ: C++ with fused kernels and
// 16-bit states.
constexpr std::array kPrograms = {
    // Which PyTorch these had is not published: the rows themselves say that the whole block is
    // computed again.
    foundry("mosaicml_a100_40", Again::kAll),
    foundry("mosaicml", Again::kToLastSaved),
    ProgramKernels{.name = "torchtitan_compile",
                   .model_type = "llama",
                   .forward = {.hidden = 16, .kv = 4, .ffn = 6},
                   .backward = {.hidden = 24, .kv = 4, .ffn = 10},
                   .logits = 12,
                   .gradients = 10,
                   .gradients_16 = 10,
                   .update_own = 30,
                   .again = Again::kToLastSaved,
                   .selective_keeps_half = true},
    ProgramKernels{.name = "torchtitan",
                   .model_type = "llama",
                   .forward = {.hidden = 93, .kv = 20, .ffn = 10},
                   .backward = {.hidden = 173, .kv = 24, .ffn = 18},
                   .logits = 40,
                   .gradients = 10,
                   .gradients_16 = 10,
                   .update_own = 30,
                   .again = Again::kToLastSaved,
                   .selective_keeps_half = true},
    ProgramKernels{.name = "nanotron",
                   .model_type = "llama",
                   .forward = {.hidden = 44, .ffn = 10},
                   .backward = {.hidden = 68, .ffn = 26},
                   .logits = 52,
                   .gradients = 10,
                   .gradients_16 = 10,
                   .update = 12,
                   .update_own = 34,
                   .reduces_last = true},
    ProgramKernels{.name = "vtrain",
                   .model_type = "gpt2",
                   .forward = {.hidden = 30, .ffn = 4, .scores = 9},
                   .backward = {.hidden = 60, .ffn = 8, .scores = 11},
                   .logits = 52,
                   .gradients = 6,
                   .gradients_16 = 6,
                   .update = 36,
                   .host_us = 71,
                   .block_kernels_forward = 15,
                   .block_kernels_backward = 28,
                   .other_kernels = 100,
                   .products_of_attention = true,
                   .reduces_last = true},
    ProgramKernels{.name = "llmq",
                   .model_type = "qwen2",
                   .forward = {.hidden = 12, .kv = 4, .ffn = 6},
                   .backward = {.hidden = 20, .kv = 4, .ffn = 10},
                   .logits = 6,
                   .update = 4,
                   .update_own = 20},
};

}  // namespace

const ProgramKernels* program_of(std::string_view set) {
  const auto* const found =
      std::find_if(kPrograms.begin(), kPrograms.end(),
                   [&](const ProgramKernels& each) { return set.starts_with(each.name); });
  return found == kPrograms.end() ? nullptr : found;
}

ProgramRates::ProgramRates(Rates rates, const ProgramKernels& program, models::ModelConfig model,
                           Job job)
    : CallRates(std::move(rates)), program_(program), model_(std::move(model)), job_(job) {}

// In one pass.
double ProgramRates::block_bytes(const BlockBytes& block) const {
  const auto hidden = static_cast<double>(model_.hidden);
  const auto kv = static_cast<double>(model_.kv_heads * model_.head_dim);
  const double token = block.hidden * hidden + block.kv * (hidden + kv) +
                       block.ffn * static_cast<double>(model_.ffn) +
                       block.scores * static_cast<double>(model_.heads * job_.length);
  return token * static_cast<double>(job_.tokens);
}

// Of backward with the kernels of a block's gradients, an equal share each.
double ProgramRates::attention_bytes(bool forward) const {
  if (forward) return block_bytes(program_.forward);
  const double each = job_.reduces_16 ? program_.gradients_16 : program_.gradients;
  return block_bytes(program_.backward) +
         each * static_cast<double>(model_.parameter_count()) / static_cast<double>(model_.layers);
}

bool ProgramRates::is_left_out(const MatmulExtents& extents) {
  if (!tape_ || !tape_->recomputing()) return false;
  if (job_.again == Again::kHalf) return products_again_++ % 2 == 0;
  return job_.again == Again::kToLastSaved && extents.k == model_.ffn && extents.n == model_.hidden;
}

// Without a fused kernel: scores of T x d, d x T, and T x T, T x d, of every head. The cost of the
// fused one has half of the pairs, and in backward the scores once more: five products.
double ProgramRates::attention_seconds(const meta::KernelCall& call) {
  if (!program_.products_of_attention) return CallRates::kernel_seconds(call);
  const double products = call.kernel == "attention_forward" ? 1 : 0.8;
  const ProductHalves& half = rates().product_half;
  const auto keys = static_cast<double>(call.attention->keys);
  const double slower = (1 + half.m / keys) * (1 + half.n / keys) *
                        (1 + half.k / static_cast<double>(call.attention->head_dim));
  return 2 * products * static_cast<double>(call.cost.flops) / rates().flops_per_s.at(call.dtype) *
         slower;
}

double ProgramRates::kernel_seconds(const meta::KernelCall& call) {
  if (call.product) return is_left_out(*call.product) ? 0 : CallRates::kernel_seconds(call);
  const auto moved_s = [&](double bytes) { return bytes / rates().memory_bytes_per_s; };
  if (call.attention) {
    const bool forward = call.kernel == "attention_forward";
    host_s_ = 1e-6 * program_.host_us *
              (forward ? program_.block_kernels_forward : program_.block_kernels_backward);
    const bool kept = tape_ && tape_->recomputing() && job_.again == Again::kHalf;
    return (kept ? 0 : attention_seconds(call)) + moved_s(attention_bytes(forward));
  }
  if (call.kernel == "cross_entropy") {  // of a part of the rows
    const auto elements = static_cast<double>(call.elements);
    host_s_ = 1e-6 * program_.host_us * program_.other_kernels * elements /
              static_cast<double>(job_.tokens * model_.vocabulary);
    return moved_s(program_.logits * elements);
  }
  if (call.kernel == "adamw") {
    return moved_s((program_.update * job_.shards + program_.update_own) *
                   static_cast<double>(call.elements));
  }
  return 0;
}

double ProgramRates::issue_seconds() {
  return CallRates::issue_seconds() + std::exchange(host_s_, 0);
}

}  // namespace fsdp::tools
