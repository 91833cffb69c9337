// Bytes of other programs' kernels, by hand, and what they compute again.
#include "tools/plan/other_programs.h"

#include <doctest/doctest.h>

#include "core/autograd.h"
#include "kernels/meta/meta_backend.h"

namespace fsdp::tools {
namespace {

models::ModelConfig model() {
  models::ModelConfig out = models::family_defaults("llama");
  out.vocabulary = 100;
  out.hidden = 8;
  out.layers = 2;
  out.heads = 4;
  out.kv_heads = 2;
  out.head_dim = 2;
  out.ffn = 24;
  out.tied_head = true;
  return out;
}

// One byte takes a second, everything else no time.
Rates one_byte_a_second() {
  Rates rates;
  rates.flops_per_s = {{DType::kF32, 1e30}, {DType::kBF16, 1e30}};
  rates.memory_bytes_per_s = 1;
  return rates;
}

meta::KernelCall attention(const char* name) {
  return {.kernel = name, .dtype = DType::kBF16, .attention = AttentionExtents{2, 16}};
}

TEST_CASE("other programs: by the beginning of a set's name") {
  CHECK(program_of("mosaicml_a100_40")->again == Again::kAll);
  CHECK(program_of("mosaicml_a100_80")->again == Again::kToLastSaved);
  CHECK(program_of("torchtitan_compile")->forward.hidden == 16);
  CHECK(program_of("torchtitan_2")->forward.hidden == 93);
  CHECK(program_of("ours") == nullptr);
}

TEST_CASE("other programs: a block's bytes are moved where its attention is") {
  const ProgramKernels program = {.model_type = "llama",
                                  .forward = {.hidden = 1, .kv = 10, .ffn = 100, .scores = 1000},
                                  .backward = {.hidden = 2},
                                  .logits = 3,
                                  .gradients = 5,
                                  .gradients_16 = 4,
                                  .update = 6,
                                  .update_own = 7};
  ProgramRates rates(one_byte_a_second(), program, model(),
                     {.tokens = 32, .length = 16, .shards = 4});
  // 8 channels, 4 of the key heads, 24 of the MLP, 4 heads x 16 tokens.
  CHECK(rates.kernel_seconds(attention("attention_forward")) ==
        doctest::Approx(32 * (8 + 10 * (8 + 4) + 100 * 24 + 1000 * 4 * 16)));
  const auto parameters = static_cast<double>(model().parameter_count());
  CHECK(rates.kernel_seconds(attention("attention_backward")) ==
        doctest::Approx(32 * 2 * 8 + 5 * parameters / 2));
  CHECK(rates.kernel_seconds({.kernel = "cross_entropy", .elements = 1600}) == 3 * 1600);
  CHECK(rates.kernel_seconds({.kernel = "adamw", .elements = 10}) == 10 * (6 * 4 + 7));
  CHECK(rates.kernel_seconds({.kernel = "rms_norm_forward", .cost = {.bytes = 1000}}) == 0);
  ProgramRates reduced(one_byte_a_second(), program, model(),
                       {.tokens = 32, .length = 16, .reduces_16 = true});
  CHECK(reduced.kernel_seconds(attention("attention_backward")) ==
        doctest::Approx(32 * 2 * 8 + 4 * parameters / 2));
}

TEST_CASE("other programs: what is left out when a block is computed again") {
  Rates rates = one_byte_a_second();
  rates.memory_bytes_per_s = 1e30;
  rates.flops_per_s = {{DType::kF32, 1}, {DType::kBF16, 1}};
  const auto product = [](int64_t n, int64_t k) {
    return meta::KernelCall{.kernel = "matmul",
                            .dtype = DType::kBF16,
                            .cost = {.flops = 7},
                            .product = MatmulExtents{.m = 32, .n = n, .k = k}};
  };
  meta::MetaBackend backend;
  Tape tape(backend);
  const ProgramKernels program;
  ProgramRates torch(rates, program, model(),
                     {.tokens = 32, .length = 16, .again = Again::kToLastSaved});
  torch.watch(tape);
  CHECK(torch.kernel_seconds(product(8, 24)) == 7);
  {
    const Tape::Recomputing again(tape);
    CHECK(torch.kernel_seconds(product(8, 24)) == 0);  // the last of the MLP
    CHECK(torch.kernel_seconds(product(24, 8)) == 7);
  }
  ProgramRates titan(rates, program, model(), {.tokens = 32, .length = 16, .again = Again::kHalf});
  titan.watch(tape);
  const Tape::Recomputing again(tape);
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += titan.kernel_seconds(product(24, 8));
  CHECK(sum == 14);
  meta::KernelCall kept = attention("attention_forward");
  kept.cost.flops = 100;
  CHECK(titan.kernel_seconds(kept) == 0);
}

TEST_CASE("other programs: the host's time of a block and of the rest, once each") {
  const ProgramKernels program = {
      .host_us = 10, .block_kernels_forward = 3, .block_kernels_backward = 5, .other_kernels = 7};
  ProgramRates rates(one_byte_a_second(), program, model(), {.tokens = 32, .length = 16});
  const auto host_us = [&](const meta::KernelCall& call) {
    rates.kernel_seconds(call);
    const double us = 1e6 * rates.issue_seconds();
    CHECK(rates.issue_seconds() == 0);
    return us;
  };
  CHECK(host_us(attention("attention_forward")) == doctest::Approx(30));
  CHECK(host_us(attention("attention_backward")) == doctest::Approx(50));
  // Half of the rows of the pass.
  CHECK(host_us({.kernel = "cross_entropy", .elements = 1600}) == doctest::Approx(35));
  CHECK(host_us({.kernel = "add"}) == 0);
}

TEST_CASE("other programs: attention as products of every head") {
  Rates rates = one_byte_a_second();
  rates.memory_bytes_per_s = 1e30;
  rates.flops_per_s = {{DType::kF32, 1}, {DType::kBF16, 1}};
  rates.product_half = {.m = 16, .n = 16, .k = 2};  // of 16 keys and heads of 2: twice each
  const ProgramKernels program = {.products_of_attention = true};
  ProgramRates megatron(rates, program, model(), {.tokens = 32, .length = 16});
  meta::KernelCall call = attention("attention_forward");
  call.cost.flops = 10;
  CHECK(megatron.kernel_seconds(call) == doctest::Approx(2 * 10 * 8));
  call.kernel = "attention_backward";
  CHECK(megatron.kernel_seconds(call) == doctest::Approx(2 * 0.8 * 10 * 8));
}

}  // namespace
}  // namespace fsdp::tools
