// Lines of the table: kernels that pass over activations, in the sizes of the model.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/ops/cross_entropy.h"
#include "tools/bench/kernel_case.h"

namespace fsdp::tools {
namespace {

// What the lines below are written in.
struct PassExtents {
  explicit PassExtents(const KernelExtents& extents)
      : B(extents.batch),
        T(extents.length),
        N(B * T),
        C(extents.model.hidden),
        F(extents.model.ffn),
        V(extents.model.vocabulary),
        positions(std::max(extents.model.max_positions, T)),
        heads(extents.model.heads),
        head_dim(extents.model.head_dim),
        rotated(extents.model.rotary_dim()),
        learned_positions(extents.model.positions == models::PositionKind::kLearned),
        tied_head(extents.model.tied_head),
        dtype(extents.compute),
        wide(accumulation_dtype(extents.compute)),
        gradient(extents.gradient) {}

  int64_t B, T, N, C, F, V, positions, heads, head_dim;
  int64_t rotated;  // channels of a head
  bool learned_positions, tied_head;
  DType dtype, wide, gradient;  // of activations, of statistics, of weight gradients
};

std::string text(int64_t rows, int64_t columns) { return fmt::format("{} x {}", rows, columns); }

// ---------------------------------------------------------------------------- Norms

KernelRun norm_forward(const PassExtents& e, KernelInputs& in, bool layer_norm, bool fused) {
  const Shape rows = {e.N, e.C};
  const Tensor x = in.normal(rows, e.dtype), weight = in.normal(Shape{e.C}, e.dtype);
  const Tensor residual = fused ? in.normal(rows, e.dtype) : Tensor();
  const Tensor bias = in.normal(Shape{e.C}, e.dtype);
  Tensor sum = fused ? in.empty(rows, e.dtype) : Tensor(), y = in.empty(rows, e.dtype);
  Tensor mean = in.empty(Shape{e.N}, e.wide), rstd = in.empty(Shape{e.N}, e.wide);
  return [=](Backend& backend, Stream& stream) mutable {
    const NormForwardArgs args = {.x = x,
                                  .residual = fused ? &residual : nullptr,
                                  .sum = fused ? &sum : nullptr,
                                  .weight = weight,
                                  .bias = layer_norm ? &bias : nullptr,
                                  .y = y,
                                  .mean = layer_norm ? &mean : nullptr,
                                  .rstd = rstd,
                                  .epsilon = 1e-5};
    layer_norm ? backend.layer_norm_forward(stream, args) : backend.rms_norm_forward(stream, args);
  };
}

KernelRun norm_backward(const PassExtents& e, KernelInputs& in, bool layer_norm, bool fused) {
  const Shape rows = {e.N, e.C};
  const Tensor dy = in.normal(rows, e.dtype), x = in.normal(rows, e.dtype);
  const Tensor dsum = fused ? in.normal(rows, e.dtype) : Tensor();
  const Tensor weight = in.normal(Shape{e.C}, e.dtype);
  const Tensor mean = in.normal(Shape{e.N}, e.wide), rstd = in.constant(Shape{e.N}, e.wide, 1);
  Tensor dx = in.empty(rows, e.dtype);
  Tensor dweight = in.empty(Shape{e.C}, e.gradient), dbias = in.empty(Shape{e.C}, e.gradient);
  return [=](Backend& backend, Stream& stream) mutable {
    const NormBackwardArgs args = {.dy = dy,
                                   .dsum = fused ? &dsum : nullptr,
                                   .x = x,
                                   .weight = weight,
                                   .mean = layer_norm ? &mean : nullptr,
                                   .rstd = rstd,
                                   .dx = dx,
                                   .dweight = &dweight,
                                   .dbias = layer_norm ? &dbias : nullptr};
    layer_norm ? backend.layer_norm_backward(stream, args)
               : backend.rms_norm_backward(stream, args);
  };
}

void add_norms(const PassExtents& e, std::vector<KernelCase>& table) {
  const int64_t n = e.N * e.C;
  for (const bool layer_norm : {true, false}) {
    const std::string name = layer_norm ? "layer_norm" : "rms_norm";
    for (const bool fused : {false, true}) {
      table.push_back({name + "_forward", fused ? "with residual" : "", text(e.N, e.C),
                       ops::norm_forward_cost(n, e.dtype, fused), kStreamingBar,
                       [=](KernelInputs& in) { return norm_forward(e, in, layer_norm, fused); }});
    }
    for (const bool fused : {false, true}) {
      table.push_back({name + "_backward", fused ? "with dsum" : "", text(e.N, e.C),
                       ops::norm_backward_cost(n, e.dtype, fused), kColumnSumBar,
                       [=](KernelInputs& in) { return norm_backward(e, in, layer_norm, fused); }});
    }
  }
}

// ---------------------------------------------------------------------------- Elementwise

void add_activations(const PassExtents& e, std::vector<KernelCase>& table) {
  struct Kind {
    Activation kind;
    const char* name;
  };
  constexpr std::array kKinds = {
      Kind{Activation::kGeluTanh, "gelu_tanh"}, Kind{Activation::kGeluErf, "gelu_erf"},
      Kind{Activation::kGeluBloom, "gelu_bloom"}, Kind{Activation::kRelu, "relu"}};
  const int64_t n = e.N * e.F;
  for (const auto& [kind, name] : kKinds) {
    table.push_back({"activation_forward", name, text(e.N, e.F),
                     ops::activation_forward_cost(n, e.dtype), kStreamingBar,
                     [=](KernelInputs& in) -> KernelRun {
                       const Tensor x = in.normal(Shape{n}, e.dtype);
                       Tensor y = in.empty(Shape{n}, e.dtype);
                       return [=](Backend& backend, Stream& stream) mutable {
                         backend.activation_forward(stream, kind, x, y);
                       };
                     }});
    table.push_back({"activation_backward", name, text(e.N, e.F),
                     ops::activation_backward_cost(n, e.dtype), kStreamingBar,
                     [=](KernelInputs& in) -> KernelRun {
                       const Tensor x = in.normal(Shape{n}, e.dtype);
                       const Tensor dy = in.normal(Shape{n}, e.dtype);
                       Tensor dx = in.empty(Shape{n}, e.dtype);
                       return [=](Backend& backend, Stream& stream) mutable {
                         backend.activation_backward(stream, kind, x, dy, dx);
                       };
                     }});
  }
}

void add_glu(const PassExtents& e, std::vector<KernelCase>& table) {
  const Shape shape = {e.N, e.F};
  table.push_back({"glu_forward", "", text(e.N, e.F), ops::glu_forward_cost(shape.numel(), e.dtype),
                   kStreamingBar, [=](KernelInputs& in) -> KernelRun {
                     const Tensor gate = in.normal(shape, e.dtype), up = in.normal(shape, e.dtype);
                     Tensor y = in.empty(shape, e.dtype);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.glu_forward(stream, Activation::kSilu, gate, up, y);
                     };
                   }});
  table.push_back({"glu_backward", "", text(e.N, e.F),
                   ops::glu_backward_cost(shape.numel(), e.dtype), kStreamingBar,
                   [=](KernelInputs& in) -> KernelRun {
                     const Tensor gate = in.normal(shape, e.dtype), up = in.normal(shape, e.dtype);
                     const Tensor dy = in.normal(shape, e.dtype);
                     Tensor dgate = in.empty(shape, e.dtype), dup = in.empty(shape, e.dtype);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.glu_backward(stream, Activation::kSilu, gate, up, dy, dgate, dup);
                     };
                   }});
}

void add_rows(const PassExtents& e, std::vector<KernelCase>& table) {
  const Shape shape = {e.N, e.C};
  table.push_back({"add", "", text(e.N, e.C), ops::add_cost(shape.numel(), e.dtype), kStreamingBar,
                   [=](KernelInputs& in) -> KernelRun {
                     const Tensor a = in.normal(shape, e.dtype), b = in.normal(shape, e.dtype);
                     Tensor out = in.empty(shape, e.dtype);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.add(stream, a, b, out);
                     };
                   }});
  table.push_back(
      {"dropout", "", text(e.N, e.C), ops::dropout_cost(shape.numel(), e.dtype), kStreamingBar,
       [=](KernelInputs& in) -> KernelRun {
         const Tensor x = in.normal(Shape{e.B, e.T, e.C}, e.dtype);
         const Tensor samples = Tensor::from_host<int64_t>(
             in.backend(), Shape{e.B}, std::vector<int64_t>(static_cast<size_t>(e.B), 1),
             MemoryCategory::kWorkspace);
         Tensor y = in.empty(x.shape(), e.dtype);
         return [=](Backend& backend, Stream& stream) mutable {
           backend.dropout(stream, {.probability = 0.1, .key = {}, .samples = &samples}, x, y);
         };
       }});
  table.push_back({"sum_rows", "", text(e.N, e.F), ops::sum_rows_cost(e.N * e.F, e.dtype),
                   kColumnSumBar, [=](KernelInputs& in) -> KernelRun {
                     const Tensor x = in.normal(Shape{e.N, e.F}, e.dtype);
                     Tensor out = in.empty(Shape{e.F}, e.gradient);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.sum_rows(stream, {.x = x, .out = out});
                     };
                   }});
}

// ---------------------------------------------------------------------------- Heads

void add_heads(const PassExtents& e, std::vector<KernelCase>& table) {
  const Shape shape = {e.B, e.T, e.heads * e.head_dim};
  const std::string size = fmt::format("{} x {}, {} heads of {}", e.B, e.T, e.heads, e.head_dim);
  const auto view = [=](const Tensor& tensor) {
    return HeadView{&tensor, e.heads, e.head_dim, 0, e.head_dim};
  };
  const int64_t half = e.rotated / 2;
  for (const bool inverse : {false, true}) {
    table.push_back({"rope", inverse ? "inverse" : "", size,
                     ops::rope_cost(e.N * e.heads * 2 * half, e.dtype), kStreamingBar,
                     [=](KernelInputs& in) -> KernelRun {
                       const Tensor x = in.normal(shape, e.dtype);
                       // an angle whose rotations stay as large as they are
                       const Tensor cos = in.constant(Shape{e.T, half}, e.wide, 0.6);
                       const Tensor sin = in.constant(Shape{e.T, half}, e.wide, 0.8);
                       return [=](Backend& backend, Stream& stream) {
                         backend.rope(stream, {view(x), cos, sin, 0, inverse});
                       };
                     }});
  }
  table.push_back({"copy_heads", "", size, ops::copy_cost(shape.numel(), e.dtype), kStreamingBar,
                   [=](KernelInputs& in) -> KernelRun {
                     const Tensor from = in.normal(shape, e.dtype), to = in.empty(shape, e.dtype);
                     return [=](Backend& backend, Stream& stream) {
                       backend.copy_heads(stream, view(from), view(to), 0);
                     };
                   }});
}

// ---------------------------------------------------------------------------- Both ends

void add_embedding(const PassExtents& e, std::vector<KernelCase>& table) {
  const Shape rows = {e.B, e.T, e.C};
  const bool learned = e.learned_positions;
  const bool added = e.tied_head;  // to the gradient of the head
  table.push_back({"embedding_forward", learned ? "with positions" : "", text(e.N, e.C),
                   ops::embedding_forward_cost(rows.numel(), learned ? e.T * e.C : 0, e.dtype),
                   kStreamingBar, [=](KernelInputs& in) -> KernelRun {
                     const Tensor tokens = in.indices(Shape{e.B, e.T}, e.V);
                     const Tensor table_rows = in.normal(Shape{e.V, e.C}, e.dtype);
                     const Tensor positions = in.normal(Shape{e.positions, e.C}, e.dtype);
                     Tensor y = in.empty(rows, e.dtype);
                     return [=](Backend& backend, Stream& stream) mutable {
                       backend.embedding_forward(stream, tokens, table_rows,
                                                 learned ? &positions : nullptr, 0, y);
                     };
                   }});
  table.push_back(
      {"embedding_backward", added ? "added" : "", text(e.N, e.C),
       ops::embedding_backward_cost(rows.numel(), added ? 0 : e.V * e.C, e.dtype, e.gradient),
       kColumnSumBar, [=](KernelInputs& in) -> KernelRun {
         const Tensor tokens = in.indices(Shape{e.B, e.T}, e.V), dy = in.normal(rows, e.dtype);
         Tensor dtable = in.normal(Shape{e.V, e.C}, e.gradient);
         return [=](Backend& backend, Stream& stream) mutable {
           backend.embedding_backward(stream, tokens, dy, dtable, added);
         };
       }});
  table.push_back(
      {"position_backward", "", text(e.N, e.C),
       ops::position_backward_cost(rows.numel(), e.positions * e.C, e.dtype, e.gradient),
       kColumnSumBar, [=](KernelInputs& in) -> KernelRun {
         const Tensor dy = in.normal(rows, e.dtype);
         Tensor dpositions = in.empty(Shape{e.positions, e.C}, e.gradient);
         return [=](Backend& backend, Stream& stream) mutable {
           backend.position_backward(stream, dy, dpositions, false);
         };
       }});
}

// On a chunk of rows, as the head calls it.
void add_cross_entropy(const PassExtents& e, std::vector<KernelCase>& table) {
  const int64_t rows = ops::head_chunk_rows(e.N, e.V);
  const Shape shape = {rows, ops::logits_row(e.V)};
  for (const bool gradient : {false, true}) {
    table.push_back({"cross_entropy", gradient ? "with gradient" : "", text(rows, e.V),
                     gradient ? ops::cross_entropy_cost(rows * e.V, e.dtype)
                              : ops::cross_entropy_loss_cost(rows * e.V, e.dtype),
                     kCrossEntropyBar, [=](KernelInputs& in) -> KernelRun {
                       Tensor logits = in.normal(shape, e.wide);
                       const Tensor labels = in.indices(Shape{rows}, e.V);
                       Tensor loss_sum = in.constant(Shape{}, e.wide, 0);
                       Tensor dlogits;
                       if (gradient) {
                         dlogits = e.wide == e.dtype ? logits : in.empty(shape, e.dtype);
                       }
                       return [=](Backend& backend, Stream& stream) mutable {
                         backend.cross_entropy(stream, {.logits = logits,
                                                        .vocabulary = e.V,
                                                        .labels = labels,
                                                        .loss_sum = loss_sum,
                                                        .dlogits = gradient ? &dlogits : nullptr});
                       };
                     }});
  }
}

}  // namespace

void add_passes(const KernelExtents& extents, std::vector<KernelCase>& table) {
  const PassExtents e(extents);
  add_norms(e, table);
  add_activations(e, table);
  add_glu(e, table);
  add_heads(e, table);
  add_rows(e, table);
  add_embedding(e, table);
  add_cross_entropy(e, table);
}

}  // namespace fsdp::tools
