// What kernels cost, and their texts.
#include "core/kernel_args.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/tensor.h"

namespace fsdp {
namespace {

int64_t width(DType dtype) { return static_cast<int64_t>(size_of(dtype)); }

// Elements of the heads of a view, T tokens of every sample.
int64_t elements_of(const HeadView& view, int64_t tokens) {
  return view.tensor->shape()[0] * tokens * view.heads * view.head_dim;
}
int64_t tokens_of(const HeadView& view) { return view.tensor->shape()[1]; }

// Words with commas between them.
std::string joined(std::initializer_list<std::string> words) {
  std::string out;
  for (const std::string& word : words) {
    if (word.empty()) continue;
    if (!out.empty()) out += ", ";
    out += word;
  }
  return out;
}
std::string said_if(bool condition, std::string word) {
  return condition ? std::move(word) : std::string();
}

// Pairs of a query and a key that it sees, where rows are not of documents. Causal: query i sees
// keys up to i + keys - queries.
int64_t pairs_of_rows(const AttentionArgs& args) {
  const int64_t queries = tokens_of(args.q), keys = args.keys > 0 ? args.keys : tokens_of(args.k);
  const int64_t of_row =
      args.causal ? queries * (keys - queries) + queries * (queries + 1) / 2 : queries * keys;
  return args.q.tensor->shape()[0] * of_row;
}

// Of attention: products of all pairs of a query and a key that it sees, and passes over what has
// the size of the queries and of the keys. Only the host knows the pairs of documents.
Cost attention_cost(const AttentionArgs& args, int64_t products, int64_t passes) {
  const int64_t queries = tokens_of(args.q), keys = args.keys > 0 ? args.keys : tokens_of(args.k);
  const int64_t pairs = args.pairs > 0 ? args.pairs : pairs_of_rows(args);
  const int64_t elements = elements_of(args.q, queries) + elements_of(args.k, keys);
  return {.flops = products * 2 * args.q.heads * args.q.head_dim * pairs,
          .bytes = passes * elements * width(args.q.tensor->dtype())};
}

}  // namespace

template <typename Args>
size_t kernel_kind() {
  return Kernels::kind_of<Args>();
}
#define FSDP_INSTANTIATE(Args) template size_t kernel_kind<Args>();
FSDP_KERNELS(FSDP_INSTANTIATE)
#undef FSDP_INSTANTIATE

Cost matmul_cost(const MatmulExtents& e) {
  const int64_t results = (e.accumulate ? 2 : 1) * e.m * e.n;
  return {.flops = 2 * e.m * e.n * e.k,
          .bytes = (e.m * e.k + e.k * e.n) * width(e.operand) + results * width(e.result)};
}

Cost cost_of(Kernel kernel) {
  return kernel.visit([](const auto& args) {
    if constexpr (requires { args.cost(); }) return args.cost();
    Cost cost;
    for_each_tensor(args, [&](const TensorRole& role, const Tensor& tensor) {
      const int64_t passes = role.use == TensorRole::Use::kInOut ? 2 : 1;
      if (!role.is_small) cost.bytes += passes * static_cast<int64_t>(tensor.bytes());
    });
    return cost;
  });
}

std::string words_of(Kernel kernel) {
  return kernel.visit([](const auto& args) -> std::string {
    if constexpr (requires { args.words(); }) return args.words();
    return {};
  });
}

std::string_view name_of(Activation kind) {
  constexpr std::array<std::string_view, 16> kNames = {
      "no activation", "gelu_tanh",  "gelu_erf", "gelu_bloom",   "relu",  "gelu_fast",
      "gelu_clipped",  "quick_gelu", "silu",     "relu_squared", "relu6", "leaky_relu",
      "tanh",          "sigmoid",    "mish",     "laplace"};
  return kNames.at(static_cast<size_t>(kind));
}

// ---- Products ----

MatmulExtents MatmulArgs::extents() const {
  MatmulExtents e = {.m = c.shape()[0],
                     .n = b.shape()[transpose_b ? 0 : 1],
                     .k = b.shape()[transpose_b ? 1 : 0],
                     .transpose_a = transpose_a,
                     .transpose_b = transpose_b,
                     .accumulate = accumulate,
                     .operand = a.dtype(),
                     .result = c.dtype()};
  const int64_t columns = transpose_a ? e.m : e.k;
  if (a.shape()[1] != columns) e.row_a = a.shape()[1];
  if (c.shape()[1] != e.n) e.row_c = c.shape()[1];
  return e;
}

Cost MatmulArgs::cost() const {
  Cost cost = matmul_cost(extents());
  if (pre_activation) cost.bytes += static_cast<int64_t>(pre_activation->bytes());
  return cost;
}

std::string MatmulArgs::words() const {
  return joined({said_if(transpose_a, "a transposed"), said_if(transpose_b, "b transposed"),
                 said_if(accumulate, "added")});
}

Cost SumRowsArgs::cost() const {
  return {.bytes = x.shape().rows() * out.numel() * width(x.dtype())};
}
std::string SumRowsArgs::words() const { return said_if(accumulate, "added"); }

// ---- Passes ----

std::string ActivationForwardArgs::words() const { return std::string(name_of(kind)); }
std::string ActivationBackwardArgs::words() const { return std::string(name_of(kind)); }
std::string GluForwardArgs::words() const {
  return joined({std::string(name_of(kind)), said_if(!up, "halves of rows")});
}
std::string GluBackwardArgs::words() const {
  return joined({std::string(name_of(kind)), said_if(!up, "halves of rows")});
}

// As of one dtype.
Cost AddArgs::cost() const { return {.bytes = 3 * static_cast<int64_t>(a.bytes())}; }

// ---- Heads ----

Cost RopeArgs::cost() const {
  const Shape& shape = x.tensor->shape();
  const int64_t rotated = 2 * cos.shape().last();
  return {.bytes = 2 * shape[0] * shape[1] * x.heads * rotated * width(x.tensor->dtype())};
}
std::string RopeArgs::words() const {
  return fmt::format("{} of {} heads", 2 * cos.shape().last(), x.heads);
}

Cost CopyHeadsArgs::cost() const {
  return {.bytes = 2 * elements_of(from, tokens_of(from)) * width(from.tensor->dtype())};
}
std::string CopyHeadsArgs::words() const {
  return fmt::format("{} heads of {}", from.heads, from.head_dim);
}

AttentionExtents AttentionArgs::extents() const {
  return {.head_dim = q.head_dim, .keys = keys > 0 ? keys : tokens_of(k)};
}
int64_t document_length(int64_t pairs, int64_t length) {
  const auto pairs_of = [](int64_t tokens) { return tokens * (tokens + 1) / 2; };
  int64_t least = 1, most = std::max<int64_t>(length, 1);
  while (least < most) {
    const int64_t middle = (least + most) / 2;
    const bool enough = length / middle * pairs_of(middle) + pairs_of(length % middle) >= pairs;
    (enough ? most : least) = enough ? middle : middle + 1;
  }
  return least;
}

int64_t AttentionArgs::document() const {
  const int64_t rows = std::max<int64_t>(q.tensor->shape()[0], 1), length = extents().keys;
  return pairs > 0 ? document_length(pairs / rows, length) : length;
}

// Calls with one text count as equally long (tools/predict/call_rates.h), and each batch of
// documents has another number of pairs. So the text has their share, rounded to a power of the
// square root of two: at most a fifth off.
std::string AttentionArgs::words() const {
  const double whole = static_cast<double>(pairs_of_rows(*this)), left = static_cast<double>(pairs);
  const double share = pairs > 0 ? std::exp2(std::round(2 * std::log2(left / whole)) / 2) : 0;
  return joined({fmt::format("{} heads of {}", q.heads, q.head_dim),
                 said_if(k.heads != q.heads, fmt::format("{} of keys", k.heads)),
                 said_if(keys > 0, fmt::format("{} keys", keys)), said_if(!causal, "not causal"),
                 said_if(window > 0, fmt::format("window {}", window)),
                 said_if(pairs > 0, fmt::format("{:.3g} % of pairs", 100 * share)),
                 said_if(dropout.probability > 0, "dropout")});
}
Cost AttentionForwardArgs::cost() const {  // q k^T, p v; q, k, v in, out
  return attention_cost(in, 2, 2);
}
Cost AttentionBackwardArgs::cost()
    const {  // q k^T again, dp, dv, dq, dk; q, out, dout, dq; k, v, dk, dv
  return attention_cost(in, 5, 4);
}

// ---- Embedding and loss ----

int64_t EmbeddingForwardArgs::vocabulary() const { return table.shape()[0]; }
Cost EmbeddingForwardArgs::cost() const {  // the rows of the table that the tokens name
  const int64_t of_positions = positions ? y.shape()[1] * y.shape().last() : 0;
  return {.bytes = (2 * y.numel() + of_positions) * width(y.dtype())};
}

int64_t EmbeddingBackwardArgs::vocabulary() const { return dtable.shape()[0]; }
// The tokens' rows of the table's gradient are read and written. A gradient that starts here is
// first set to zero.
Cost EmbeddingBackwardArgs::cost() const {
  const int64_t stored = accumulate ? 0 : dtable.numel();
  return {.bytes =
              dy.numel() * width(dy.dtype()) + (2 * dy.numel() + stored) * width(dtable.dtype())};
}
std::string EmbeddingBackwardArgs::words() const { return said_if(accumulate, "added"); }

Cost PositionBackwardArgs::cost() const {
  return {.bytes = static_cast<int64_t>(dy.bytes() + dpositions.bytes())};
}
std::string PositionBackwardArgs::words() const { return said_if(accumulate, "added"); }

int64_t CrossEntropyArgs::columns() const {
  return vocabulary > 0 ? vocabulary : logits.shape().last();
}
Cost CrossEntropyArgs::cost() const {
  const int64_t of_element = width(logits.dtype()) + (dlogits ? width(dlogits->dtype()) : 0);
  return {.bytes = logits.shape().rows() * columns() * of_element};
}
std::string CrossEntropyArgs::words() const {
  const bool narrow = dlogits && dlogits->dtype() != logits.dtype();
  return joined({said_if(columns() != logits.shape().last(), fmt::format("{} columns", columns())),
                 said_if(dlogits != nullptr, "gradient"),
                 narrow ? std::string(name_of(dlogits->dtype())) : std::string()});
}

std::string PowerSumArgs::words() const { return fmt::format("{}", power); }

}  // namespace fsdp
