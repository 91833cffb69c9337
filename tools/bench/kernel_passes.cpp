// Lines of the table: kernels that pass over activations, in the sizes of the model.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/layer_args.h"
#include "core/ops/cross_entropy.h"
#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

// What the lines below are written in.
class Passes {
 public:
  Passes(const KernelExtents& extents, std::vector<KernelCase>& table)
      : model(extents.model),
        B(extents.batch),
        T(extents.length),
        N(B * T),
        C(model.hidden),
        F(model.ffn),
        V(model.vocabulary),
        positions(std::max(model.max_positions, T)),
        dtype(extents.compute),
        wide(accumulation_dtype(extents.compute)),
        gradient(extents.gradient),
        table_(table) {}

  void add_norms();
  void add_activations();
  void add_glu();
  void add_heads();
  void add_rows();
  void add_embedding();
  void add_cross_entropy();

 private:
  Tensor tensor(Shape shape, DType of) { return Tensor::empty(meta_, shape, of); }
  Tensor tensor(Shape shape) { return tensor(shape, dtype); }
  void add(Kernel kernel, const std::string& variant, const std::string& shape, KernelBar bar) {
    table_.push_back({variant, shape, bar, meta::kernel_call(kernel)});
  }
  static std::string text(int64_t rows, int64_t columns) {
    return fmt::format("{} x {}", rows, columns);
  }

  const models::ModelConfig& model;
  const int64_t B, T, N, C, F, V, positions;
  const DType dtype, wide, gradient;  // of activations, of statistics, of weight gradients
  meta::MetaBackend meta_;
  std::vector<KernelCase>& table_;
};

void Passes::add_norms() {
  const Shape rows = {N, C}, channels = {C};
  const Tensor x = tensor(rows), other = tensor(rows), weight = tensor(channels);
  Tensor sum = tensor(rows), y = tensor(rows);
  Tensor mean = tensor(Shape{N}, wide), rstd = tensor(Shape{N}, wide);
  Tensor dweight = tensor(channels, gradient), dbias = tensor(channels, gradient);
  for (const bool layer_norm : {true, false}) {
    for (const bool fused : {false, true}) {
      const NormForwardArgs args = {.x = x,
                                    .residual = fused ? &other : nullptr,
                                    .sum = fused ? &sum : nullptr,
                                    .weight = weight,
                                    .bias = layer_norm ? &weight : nullptr,
                                    .y = y,
                                    .mean = layer_norm ? &mean : nullptr,
                                    .rstd = rstd,
                                    .epsilon = 1e-5};
      const char* const variant = fused ? "with residual" : "";
      layer_norm ? add(LayerNormForwardArgs{args}, variant, text(N, C), kStreamingBar)
                 : add(RmsNormForwardArgs{args}, variant, text(N, C), kStreamingBar);
    }
    for (const bool fused : {false, true}) {
      const NormBackwardArgs args = {.dy = other,
                                     .dsum = fused ? &sum : nullptr,
                                     .x = x,
                                     .weight = weight,
                                     .mean = layer_norm ? &mean : nullptr,
                                     .rstd = rstd,
                                     .dx = y,
                                     .dweight = &dweight,
                                     .dbias = layer_norm ? &dbias : nullptr};
      const char* const variant = fused ? "with dsum" : "";
      layer_norm ? add(LayerNormBackwardArgs{args}, variant, text(N, C), kColumnSumBar)
                 : add(RmsNormBackwardArgs{args}, variant, text(N, C), kColumnSumBar);
    }
  }
}

void Passes::add_activations() {
  const Tensor x = tensor(Shape{N, F}), dy = tensor(Shape{N, F});
  Tensor y = tensor(Shape{N, F}), dbias = tensor(Shape{F}, gradient);
  for (const Activation kind :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kGeluBloom, Activation::kRelu}) {
    const std::string name(name_of(kind));
    add(ActivationForwardArgs{kind, x, y}, name, text(N, F), kStreamingBar);
    add(ActivationBackwardArgs{kind, x, dy, y}, name, text(N, F), kStreamingBar);
    if (kind != Activation::kGeluTanh) continue;
    add(ActivationBackwardArgs{.kind = kind, .x = x, .dy = dy, .dx = y, .dbias = &dbias},
        name + " with dbias", text(N, F), kColumnSumBar);
  }
}

// Of gate and up side by side, as one product leaves them.
void Passes::add_glu() {
  const Tensor both = tensor({N, 2 * F}), dy = tensor({N, F});
  Tensor y = tensor({N, F}), gradients = tensor({N, 2 * F});
  constexpr Activation kKind = Activation::kSilu;
  add(GluForwardArgs{kKind, both, nullptr, y}, "", text(N, F), kStreamingBar);
  add(GluBackwardArgs{kKind, both, nullptr, dy, gradients, nullptr}, "", text(N, F), kStreamingBar);
}

void Passes::add_rows() {
  const Tensor a = tensor(Shape{B, T, C}), b = tensor(Shape{B, T, C}), wide_rows = tensor({N, F});
  const Tensor samples = tensor(Shape{B}, DType::kI64);
  Tensor out = tensor(Shape{B, T, C}), sums = tensor(Shape{F}, gradient);
  add(AddArgs{a, b, out}, "", text(N, C), kStreamingBar);
  add(DropoutArgs{{.probability = 0.1, .key = {}, .samples = &samples}, a, out}, "", text(N, C),
      kStreamingBar);
  add(SumRowsArgs{.x = wide_rows, .out = sums}, "", text(N, F), kColumnSumBar);
}

void Passes::add_heads() {
  const int64_t heads = model.heads, head_dim = model.head_dim, half = model.rotary_dim() / 2;
  const Shape shape = {B, T, heads * head_dim};
  const std::string size = fmt::format("{} x {}, {} heads of {}", B, T, heads, head_dim);
  const Tensor from = tensor(shape), to = tensor(shape);
  const Tensor cos = tensor(Shape{T, half}, wide), sin = tensor(Shape{T, half}, wide);
  const HeadView view = {&from, heads, head_dim, 0, head_dim};
  for (const bool inverse : {false, true}) {
    add(RopeArgs{view, cos, sin, 0, inverse}, inverse ? "inverse" : "", size, kStreamingBar);
  }
  add(CopyHeadsArgs{view, {&to, heads, head_dim, 0, head_dim}, 0}, "", size, kStreamingBar);
}

void Passes::add_embedding() {
  const bool learned = model.positions == models::PositionKind::kLearned;
  const bool added = model.tied_head;  // to the gradient of the head
  const Tensor tokens = tensor(Shape{B, T}, DType::kI32), rows = tensor(Shape{V, C});
  const Tensor places = tensor(Shape{positions, C}), dy = tensor(Shape{B, T, C});
  Tensor y = tensor(Shape{B, T, C}), drows = tensor(Shape{V, C}, gradient);
  Tensor dplaces = tensor(Shape{positions, C}, gradient);
  add(EmbeddingForwardArgs{tokens, rows, learned ? &places : nullptr, 0, y},
      learned ? "with positions" : "", text(N, C), kStreamingBar);
  add(EmbeddingBackwardArgs{tokens, dy, drows, added}, added ? "added" : "", text(N, C),
      kColumnSumBar);
  add(PositionBackwardArgs{dy, dplaces, false}, "", text(N, C), kColumnSumBar);
}

// On a chunk of rows, as the head calls it; where the states are bf16, logits may be too.
void Passes::add_cross_entropy() {
  for (const DType of_logits : {wide, DType::kBF16}) {
    const bool narrow = of_logits != wide;
    if (narrow && dtype != DType::kBF16) continue;
    const int64_t rows = ops::head_chunk_rows(N, V, of_logits, ops::HeadOptions().chunk_bytes);
    const Shape shape = {rows, ops::logits_row(V)};
    const Tensor labels = tensor(Shape{rows}, DType::kI32);
    Tensor logits = tensor(shape, of_logits), loss_sum = tensor(Shape{}, wide);
    Tensor dlogits = of_logits == dtype ? logits : tensor(shape);
    for (const bool with_gradient : {false, true}) {
      const std::string variant = narrow ? "of bf16 logits" : "";
      add(CrossEntropyArgs{.logits = logits,
                           .vocabulary = V,
                           .labels = labels,
                           .loss_sum = loss_sum,
                           .dlogits = with_gradient ? &dlogits : nullptr},
          variant + (narrow && with_gradient ? " " : "") + (with_gradient ? "with gradient" : ""),
          text(rows, V), kCrossEntropyBar);
    }
  }
}

}  // namespace

void add_passes(const KernelExtents& extents, std::vector<KernelCase>& table) {
  Passes passes(extents, table);
  passes.add_norms();
  passes.add_activations();
  passes.add_glu();
  passes.add_heads();
  passes.add_rows();
  passes.add_embedding();
  passes.add_cross_entropy();
}

}  // namespace fsdp::tools
