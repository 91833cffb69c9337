// Arguments of the backend's kernels, one struct per kernel family. The contract of each kernel
// (which field is read, written, optional) stands here; core/backend.h lists the kernels.
// Optional tensors are pointers that may be null. Kernels trust shapes: core/ops checks them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/rng.h"

namespace fsdp {

class Tensor;

// kGeluBloom: kGeluTanh with constants rounded to eight digits, as BLOOM was trained; kGeluFast:
// with sqrt(2 / pi) rounded to ten digits. kGeluClipped: kGeluErf within [-10, 10]. kQuickGelu:
// x sigmoid(1.702 x). kLeakyRelu: 0.01 x below 0. kMish: x tanh(log(1 + e^x)). kLaplace: a normal
// distribution function, of mean 0.707107 and deviation 0.282095.
enum class Activation : uint8_t {
  kNone,
  kGeluTanh,
  kGeluErf,
  kGeluBloom,
  kRelu,
  kGeluFast,
  kGeluClipped,
  kQuickGelu,
  kSilu,
  kReluSquared,
  kRelu6,
  kLeakyRelu,
  kTanh,
  kSigmoid,
  kMish,
  kLaplace
};

// c = op(a) op(b) [+ bias] [+ c]; accumulated in the accumulation dtype, rounded once on store.
// a and b share one dtype; c has that dtype or its accumulation dtype.
// [Note: padded rows] K and N are those of b, M that of c: without an activation, rows of a and c
// may be longer than that. What lies behind is never read; what it holds afterwards is unspecified.
struct MatmulArgs {
  const Tensor& a;  // (M, K or more), or (K, M or more) when transpose_a
  const Tensor& b;  // (K, N), or (N, K) when transpose_b
  Tensor& c;        // (M, N or more)
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;       // c += the product; then neither bias nor activation
  const Tensor* bias = nullptr;  // (N), dtype of a
  Activation activation = Activation::kNone;
  Tensor* pre_activation =
      nullptr;  // (M, N): product + bias before the activation; required with one
};

// out[j] (+)= sum over rows of x[i][j], rows in a fixed order.
struct SumRowsArgs {
  const Tensor& x;  // (N, C or more); see [Note: padded rows]
  Tensor& out;      // (C), any floating dtype
  bool accumulate = false;
};

// Layer norm (mean given) or RMS norm (mean and bias null), optionally fused with the residual add
// before it: sum = x + residual, y = norm(sum). Statistics in the accumulation dtype.
// RMS norm rounds x * rstd to the dtype of x before it multiplies by weight, as Llama does.
struct NormForwardArgs {
  const Tensor& x;                   // (N, C)
  const Tensor* residual = nullptr;  // (N, C)
  Tensor* sum = nullptr;             // (N, C), with residual
  const Tensor& weight;              // (C)
  const Tensor* bias = nullptr;      // (C)
  Tensor& y;                         // (N, C)
  Tensor* mean = nullptr;            // (N), accumulation dtype
  Tensor& rstd;                      // (N), accumulation dtype
  double epsilon;
};

struct NormBackwardArgs {
  const Tensor& dy;                // (N, C)
  const Tensor* dsum = nullptr;    // (N, C): gradient that reaches the sum directly; added to dx
  const Tensor& x;                 // (N, C): what was normalised (the sum when fused)
  const Tensor& weight;            // (C)
  const Tensor* mean = nullptr;    // (N)
  const Tensor& rstd;              // (N)
  Tensor& dx;                      // (N, C); may be the same memory as dy
  Tensor* dweight = nullptr;       // (C), null when frozen
  Tensor* dbias = nullptr;         // (C)
  bool accumulate_weight = false;  // dweight += instead of =
  bool accumulate_bias = false;
};

// Heads inside a row-major activation: element (b, t, h, d) of the view lies at
// (b * T + t) * row_width + offset + h * head_stride + d. Describes separate q, k, v tensors,
// GPT-2's packed [q | k | v] rows and BLOOM's [head, (q, k, v), d] rows alike.
struct HeadView {
  const Tensor* tensor = nullptr;  // (B, T, row_width)
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t offset = 0;       // elements
  int64_t head_stride = 0;  // elements
};

// Rotates the first 2 * (last extent of cos) channels of every head in place, channel i with
// channel i + half ("half-split", as Hugging Face stores Llama). Position = index in the sequence +
// first_position.
struct RopeArgs {
  HeadView x;
  const Tensor& cos;  // (positions, rotary_dim / 2), accumulation dtype
  const Tensor& sin;
  int64_t first_position = 0;
  bool inverse = false;  // rotate by the negative angle: the backward pass
};

struct DropoutArgs {
  double probability = 0;  // of being zeroed; kept values are scaled by 1 / (1 - probability)
  DropoutKey key;
  const Tensor* samples = nullptr;  // (B), i64: global sample index of each row of the batch
};

// softmax(scale * q k^T + key_bias + mask) v without a T x T tensor. Query head h reads key-value
// head h / (heads / kv_heads). The query at position i of Tq queries is at i + Tk - Tq among the
// keys; causal: keys j <= i; window w > 0: keys j > i - w. key_bias is added to all scores of a
// key: ALiBi, or -infinity to hide it (padding). A query that sees no key gives all Tk keys, later
// ones too, the same weight: what a mask of the smallest finite number does (Hugging Face's eager
// attention), and gradients pass that softmax as they pass any other. Dropout of the weights:
// element index (h * Tq + i) * Tk + j of its sample.
struct AttentionArgs {
  HeadView q;        // T = Tq
  HeadView k;        // T = Tk or more
  HeadView v;        // T as k has
  int64_t keys = 0;  // Tk, where k and v have room for more (forward only); 0: T
  double scale;
  bool causal = true;
  int64_t window = 0;
  const Tensor* key_bias = nullptr;  // (B or 1, heads or 1, Tk or more), accumulation dtype
  bool hides_keys = true;            // key_bias may hold -infinity
  DropoutArgs dropout;
};

struct AttentionForwardArgs {
  AttentionArgs in;
  Tensor& out;          // (B, Tq, heads * head_dim)
  Tensor& log_sum_exp;  // (B, heads, Tq), accumulation dtype
};

struct AttentionBackwardArgs {
  AttentionArgs in;
  const Tensor& out;          // as forward wrote it
  const Tensor& log_sum_exp;  // as forward wrote it
  const Tensor& dout;         // (B, Tq, heads * head_dim)
  Tensor& delta;              // (B, heads, Tq), accumulation dtype: workspace, sum of dout * out
  HeadView dq;                // written, not accumulated
  HeadView dk;
  HeadView dv;
};

// Softmax cross-entropy over rows of f32/f64 logits. loss_sum += sum over labelled rows;
// dlogits = (softmax - onehot) * gradient_scale, 0 for ignored rows; may be the memory of logits.
// See [Note: padded rows].
struct CrossEntropyArgs {
  Tensor& logits;  // (N, V or more), accumulation dtype; overwritten when dlogits shares its memory
  int64_t vocabulary = 0;     // V, where rows are longer; 0: all of a row
  const Tensor& labels;       // (N), i32; kIgnoreIndex: no loss
  Tensor& loss_sum;           // (), accumulation dtype
  Tensor* dlogits = nullptr;  // shape of logits, any floating dtype; null: loss only
  double gradient_scale = 1;
  const Tensor* loss_scale = nullptr;  // (), f32: a further factor of dlogits; null: 1
};
constexpr int32_t kIgnoreIndex = -100;

// One run of consecutive elements of a flat shard that belongs to one parameter.
struct ShardSegment {
  int64_t begin = 0;  // within the shard, elements
  int64_t end = 0;
  bool decay = false;     // weight decay applies
  int32_t parameter = 0;  // index into step_counts
};

// Elements [begin, end) of a flat shard, which are `first` and on of the parameter of that name.
struct ParameterRun {
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t name_hash = 0;
  int64_t first = 0;
};

// out[i] = x[i] rounded to bf16, up or down by chance, so that the mean over many updates is x[i];
// what bf16 holds exactly stays. The draw is of seed, update, parameter and element (core/rng.h,
// RoundingStream): no sharding changes it. Elements outside the runs are left alone.
struct StochasticRoundArgs {
  const Tensor& x;                        // (n), f32
  Tensor& out;                            // (n), bf16; apart from x
  const std::vector<ParameterRun>& runs;  // disjoint
  uint64_t seed = 0;
  uint32_t update = 0;  // how often the optimizer has stepped
};

// What every optimizer's kernel reads and writes of a flat shard. The whole update is skipped on
// the device when *skip != 0; a parameter whose present flag is 0 (no gradient on any rank) stands
// still. step_counts must already hold this step's t (see Backend::advance_steps).
struct ShardUpdate {
  Tensor& master;      // (n), f32 or f64
  const Tensor& grad;  // (n), any floating dtype; g in the formulas is grad * (*gradient_scale)
  Tensor* copy =
      nullptr;  // (n): the new master rounded to the compute dtype, where one is resident
  const std::vector<ShardSegment>& segments;
  const Tensor& step_counts;     // (parameters), i32: t of each parameter
  const Tensor& present;         // (parameters), i32: 0: no gradient in this step
  const Tensor& learning_rate;   // (), f64
  const Tensor& gradient_scale;  // (), accumulation dtype: clip coefficient (and 1 / loss scale)
  const Tensor& skip;            // (), i32
  double weight_decay;           // of segments with the decay flag
};

// Adam (Kingma & Ba, ICLR 2015) in PyTorch's operation order:
//   m = m + (1 - b1) (g - m);  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
// Before that, `decoupled` (AdamW: Loshchilov & Hutter, ICLR 2019): p *= 1 - lr * weight_decay;
// else: g += weight_decay * p.
struct AdamArgs {
  ShardUpdate shard;
  Tensor& exp_avg;     // (n), dtype of master: m
  Tensor& exp_avg_sq;  // (n), dtype of master: v
  double beta1, beta2, epsilon;
  bool decoupled = true;
};

// Adamax (Kingma & Ba, section 7.1) as in torch.optim.Adamax, which adds epsilon inside the
// maximum:
//   g += weight_decay * p;  m = m + (1 - b1) (g - m);  u = max(b2 u, |g| + epsilon)
//   p -= lr / (1 - b1^t) * m / u
struct AdamaxArgs {
  ShardUpdate shard;
  Tensor& exp_avg;  // (n), dtype of master: m
  Tensor& exp_inf;  // (n), dtype of master: u
  double beta1, beta2, epsilon;
};

// Adadelta (Zeiler, arXiv 1212.5701) as in torch.optim.Adadelta, which has a learning rate:
//   g += weight_decay * p;  v = rho v + (1 - rho) g^2
//   d = sqrt(a + epsilon) / sqrt(v + epsilon) * g;  a = rho a + (1 - rho) d^2;  p -= lr * d
struct AdadeltaArgs {
  ShardUpdate shard;
  Tensor& square_avg;  // (n), dtype of master: v
  Tensor& acc_delta;   // (n), dtype of master: a
  double rho, epsilon;
};

// SGD as in torch.optim.SGD:
//   g += weight_decay * p;  b = g when t is 1, else momentum b + (1 - dampening) g
//   p -= lr * (nesterov ? g + momentum b : b)
// Without a buffer: p -= lr * g.
struct SgdArgs {
  ShardUpdate shard;
  Tensor* momentum_buffer = nullptr;  // (n), dtype of master: b; null: no momentum
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

constexpr int64_t kNormBlock = 1024;  // elements that are summed together in a norm

// out (+)= sum over the spans of |x|^p in the accumulation dtype, in fixed blocks and order;
// p = infinity: the maximum. An element that is not finite makes the result not finite.
// With `first_blocks`: the sum of the k-th kNormBlock elements of span s goes to
// out[first_blocks[s] + k] instead.
struct PowerSumArgs {
  const Tensor& x;                                        // (n)
  const std::vector<std::pair<int64_t, int64_t>>& spans;  // [begin, end): leaves padding out
  double power;
  Tensor& out;  // () or (blocks), f64
  bool accumulate = false;
  const std::vector<int64_t>* first_blocks = nullptr;  // by span
};

// From the global sum of |g|^p: norm = sum^(1/p) / scale (p = inf: sum itself / scale);
// coefficient = min(1, max_norm / (norm + 1e-6)) / scale, or 1 / scale when max_norm <= 0;
// skip = 1 when norm is not finite or *overflow != 0.
struct ClipArgs {
  const Tensor& power_sum;  // (), f64
  double power;
  double max_norm;
  const Tensor* loss_scale = nullptr;  // (), f32: what the gradients are multiplied by; null: 1
  const Tensor* overflow = nullptr;    // (), i32; null: 0
  Tensor& norm;                        // (), f64
  Tensor& coefficient;                 // (), accumulation dtype of the gradients
  Tensor& skip;                        // (), i32
};

// *flag = 1 when an element of x is not finite or larger than `limit`; else left as it is.
struct OverflowArgs {
  const Tensor& x;
  double limit;
  Tensor& flag;  // (), i32
};

// The loss scale after one step. Clean step: scale *= growth after every `interval` of them in a
// row (unless that is infinite). Overflow: when overflows / steps since the last change >=
// tolerance, scale = max(scale * backoff, floor); a scale <= minimum is taken back and sets
// `aborted`. torch.amp.GradScaler has tolerance 0, no floor and no minimum; the rest is fairseq's
// optim/dynamic_loss_scaler.py.
struct LossScaleRule {
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;
  double tolerance = 0;
  double floor = 0;
  double minimum = 0;
};
struct LossScaleArgs {
  LossScaleRule rule;
  const Tensor& overflow;  // (), i32
  Tensor& scale;           // (), f32; products are formed in f64 and rounded
  Tensor&
      counters;     // (3), i32: clean steps in a row, steps since a change, overflows since backoff
  Tensor& aborted;  // (), i32
};

}  // namespace fsdp
