// Kernels as values: what they cost, on small extents, counted by hand and against sums over the
// elements that a kernel touches; what visitors see; what is said of a call.
#include "core/kernel_args.h"

#include <deque>
#include <optional>

#include <doctest/doctest.h>

#include "kernels/meta/meta_backend.h"

namespace fsdp {
namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16, kF64 = DType::kF64;

// Tensors without bytes.
class Args {
 public:
  Tensor& tensor(Shape shape, DType dtype = kF32) {
    return tensors_.emplace_back(Tensor::empty(meta_, shape, dtype));
  }
  // What the optimizer's kernels are given, of `n` elements.
  ShardUpdate shard(int64_t n, DType master, DType gradient, std::optional<DType> copy) {
    return {.master = tensor({n}, master),
            .grad = tensor({n}, gradient),
            .copy = copy ? &tensor({n}, *copy) : nullptr,
            .segments = segments_,
            .step_counts = tensor({1}, DType::kI32),
            .present = tensor({1}, DType::kI32),
            .learning_rate = tensor({}, kF64),
            .gradient_scale = tensor({}),
            .skip = tensor({}, DType::kI32),
            .weight_decay = 0.1};
  }

 private:
  meta::MetaBackend meta_;
  std::deque<Tensor> tensors_;
  std::vector<ShardSegment> segments_;
};

int64_t bytes_of(Kernel kernel) {
  CHECK(cost_of(kernel).flops == 0);
  return cost_of(kernel).bytes;
}

}  // namespace

TEST_CASE("cost of matrix products") {
  MatmulExtents e = {.m = 3, .n = 5, .k = 7};
  CHECK(matmul_cost(e) == Cost{.flops = 210, .bytes = 4 * (21 + 35 + 15)});
  e.accumulate = true;  // reads the result too
  CHECK(matmul_cost(e) == Cost{.flops = 210, .bytes = 4 * (21 + 35 + 2 * 15)});
  e.operand = kBF16;  // a bf16 weight gradient in f32
  CHECK(matmul_cost(e) == Cost{.flops = 210, .bytes = 2 * (21 + 35) + 4 * 2 * 15});
  e.transpose_a = e.transpose_b = true;  // the same work in any layout
  CHECK(matmul_cost(e).flops == 210);
  CHECK(e.a() == Shape{7, 3});
  CHECK(e.b() == Shape{5, 7});
  CHECK(e.c() == Shape{3, 5});
  const Cost cost = matmul_cost(e);
  e.row_a = e.row_c = 64;  // padding is neither read nor counted
  CHECK(matmul_cost(e) == cost);
  CHECK(e.a() == Shape{7, 64});
  CHECK(e.c() == Shape{3, 64});
  e.transpose_a = e.transpose_b = false;
  e.row_a = 0;
  CHECK(e.a() == Shape{3, 7});
  CHECK(e.b() == Shape{7, 5});
  Args args;
  const Tensor &a = args.tensor(e.a()), &b = args.tensor(e.b()), &bias = args.tensor({5});
  Tensor &c = args.tensor(e.c()), &before = args.tensor({3, 5});
  const MatmulArgs product = {.a = a, .b = b, .c = c};
  CHECK(product.extents() == MatmulExtents{.m = 3, .n = 5, .k = 7, .row_c = 64});
  const Cost plain = cost_of(product);
  CHECK(plain == matmul_cost(product.extents()));
  CHECK(cost_of(MatmulArgs{.a = a, .b = b, .c = c, .bias = &bias, .pre_activation = &before}) ==
        Cost{.flops = plain.flops, .bytes = plain.bytes + 4 * 15});
}

TEST_CASE("cost of attention: every pair of a query and a key it sees") {
  constexpr int64_t kBatch = 2, kHeads = 6, kKeyHeads = 3, kQueries = 5, kKeys = 9, kDim = 4;
  for (const bool causal : {true, false}) {
    for (const DType dtype : {kF32, kBF16}) {
      Args args;
      const auto view = [&](int64_t tokens, int64_t heads) {
        return HeadView{&args.tensor({kBatch, tokens, heads * kDim}, dtype), heads, kDim, 0, kDim};
      };
      const AttentionArgs in = {.q = view(kQueries, kHeads),
                                .k = view(12, kKeyHeads),  // room for more
                                .v = view(12, kKeyHeads),
                                .keys = kKeys,
                                .scale = 1,
                                .causal = causal,
                                .dropout = {}};
      Tensor &out = args.tensor({kBatch, kQueries, kHeads * kDim}, dtype),
             &sums = args.tensor({kBatch, kHeads, kQueries});
      int64_t pairs = 0;
      for (int64_t i = 0; i < kQueries; ++i) {
        for (int64_t j = 0; j < kKeys; ++j) pairs += !causal || j <= i + kKeys - kQueries;
      }
      const int64_t product = 2 * pairs * kDim * kBatch * kHeads, width = size_of(dtype);
      const int64_t q = kBatch * kQueries * kHeads * kDim, k = kBatch * kKeys * kKeyHeads * kDim;
      CHECK(cost_of(AttentionForwardArgs{in, out, sums}) ==
            Cost{.flops = 2 * product, .bytes = width * (q + k + k + q)});
      CHECK(cost_of(AttentionBackwardArgs{.in = in,
                                          .out = out,
                                          .log_sum_exp = sums,
                                          .dout = out,
                                          .delta = sums,
                                          .dq = in.q,
                                          .dk = in.k,
                                          .dv = in.v}) ==
            Cost{.flops = 5 * product, .bytes = width * ((q + q + q + q) + (k + k + k + k))});
      AttentionArgs told = in;  // of documents
      told.pairs = 11;
      CHECK(cost_of(AttentionForwardArgs{told, out, sums}) ==
            Cost{.flops = 2 * 2 * 11 * kDim * kHeads, .bytes = width * (q + k + k + q)});
    }
  }
}

// What is read and written of a matrix of one element.
TEST_CASE("documents of like lengths with a given number of pairs") {
  CHECK(document_length(10 * 11 / 2, 10) == 10);
  CHECK(document_length(10, 10) == 1);
  CHECK(document_length(0, 10) == 1);
  for (const int64_t length : {1, 7, 64, 131}) {
    const auto pairs_of = [length](int64_t document) {
      int64_t pairs = 0;
      for (int64_t t = 0; t < length; ++t) pairs += t % document + 1;
      return pairs;
    };
    for (int64_t document = 1; document <= length; ++document) {
      CAPTURE(document);
      const int64_t least = document_length(pairs_of(document), length);
      CHECK(least <= document);
      CHECK(pairs_of(least) == pairs_of(document));
    }
  }
}

TEST_CASE("cost of element-wise passes: bytes per element") {
  constexpr int64_t kRows = 20, kColumns = 50, n = kRows * kColumns;
  for (const DType t : {kF32, kBF16}) {
    const int64_t width = size_of(t);
    Args args;
    const Shape shape = {kRows, kColumns};
    const Tensor &x = args.tensor(shape, t), &other = args.tensor(shape, t),
                 &weight = args.tensor({kColumns}, t);
    Tensor &y = args.tensor(shape, t), &sum = args.tensor(shape, t), &rstd = args.tensor({kRows}),
           &columns = args.tensor({kColumns});
    const Tensor& both = args.tensor({kRows, 2 * kColumns}, t);
    Tensor& halves = args.tensor({kRows, 2 * kColumns}, t);
    constexpr Activation kKind = Activation::kSilu;
    CHECK(bytes_of(AddArgs{x, other, y}) == 3 * width * n);
    CHECK(bytes_of(ActivationForwardArgs{kKind, x, y}) == 2 * width * n);
    CHECK(bytes_of(ActivationBackwardArgs{kKind, x, other, y}) == 3 * width * n);
    CHECK(bytes_of(GluForwardArgs{kKind, x, &other, y}) == 3 * width * n);
    CHECK(bytes_of(GluBackwardArgs{kKind, x, &other, other, y, &sum}) == 5 * width * n);
    CHECK(bytes_of(GluForwardArgs{kKind, both, nullptr, y}) == 3 * width * n);
    CHECK(bytes_of(GluBackwardArgs{kKind, both, nullptr, x, halves, nullptr}) == 5 * width * n);
    NormForwardArgs norm = {.x = x, .weight = weight, .y = y, .rstd = rstd, .epsilon = 0};
    CHECK(bytes_of(RmsNormForwardArgs{norm}) == 2 * width * n);
    norm.residual = &other;
    norm.sum = &sum;
    norm.bias = &weight;
    norm.mean = &rstd;
    CHECK(bytes_of(LayerNormForwardArgs{norm}) == 4 * width * n);
    NormBackwardArgs back = {.dy = other, .x = x, .weight = weight, .rstd = rstd, .dx = y};
    CHECK(bytes_of(RmsNormBackwardArgs{back}) == 3 * width * n);
    back.dsum = &sum;
    back.dweight = back.dbias = &columns;
    CHECK(bytes_of(LayerNormBackwardArgs{back}) == 4 * width * n);
    CHECK(bytes_of(SumRowsArgs{.x = x, .out = columns}) == width * n);
    const Tensor& samples = args.tensor({kRows}, DType::kI64);
    CHECK(bytes_of(DropoutArgs{{.samples = &samples}, x, y}) == 2 * width * n);
    CHECK(bytes_of(CastArgs{x, args.tensor(shape, kF32)}) == (width + 4) * n);
    CHECK(bytes_of(DivideArgs{y, 2}) == 2 * width * n);
    CHECK(bytes_of(FillNormalArgs{y, 0, 1, 0, 0, 0}) == width * n);
    CHECK(bytes_of(OverflowArgs{x, 1, rstd}) == width * n);
    const std::vector<std::pair<int64_t, int64_t>> spans = {{0, n}};
    CHECK(bytes_of(PowerSumArgs{
              .x = x, .spans = spans, .power = 2, .out = args.tensor({}, kF64)}) == width * n);
    // Two heads of which half of the channels are rotated, in rows with room for one more.
    const Tensor &heads = args.tensor({2, 10, 3 * 8}, t), &table = args.tensor({10, 2});
    const HeadView view = {&heads, 2, 8, 0, 8};
    CHECK(bytes_of(RopeArgs{view, table, table}) == 2 * width * 2 * 10 * 2 * 4);
    CHECK(bytes_of(CopyHeadsArgs{view, view, 0}) == 2 * width * 2 * 10 * 2 * 8);
  }
}

TEST_CASE("cost of a loss: bytes per element of the vocabulary, in longer rows") {
  constexpr int64_t kRows = 20, kColumns = 50, n = kRows * kColumns;
  for (const DType t : {kF32, kBF16}) {
    const int64_t width = size_of(t);
    Args args;
    Tensor& sum = args.tensor({});
    Tensor &logits = args.tensor({kRows, kColumns + 6}), &dlogits = args.tensor(logits.shape(), t);
    const Tensor& labels = args.tensor({kRows}, DType::kI32);
    CrossEntropyArgs loss = {
        .logits = logits, .vocabulary = kColumns, .labels = labels, .loss_sum = sum};
    CHECK(bytes_of(loss) == 4 * n);
    loss.dlogits = &dlogits;
    CHECK(bytes_of(loss) == (4 + width) * n);
    Tensor& in_place = args.tensor(logits.shape(), DType::kBF16);
    CHECK(bytes_of(CrossEntropyArgs{.logits = in_place,
                                    .vocabulary = kColumns,
                                    .labels = labels,
                                    .loss_sum = sum,
                                    .dlogits = &in_place}) == 4 * n);
  }
}

TEST_CASE("cost of optimizers: bytes per element") {
  constexpr int64_t n = 1000;
  const auto adam = [](DType master, DType gradient, std::optional<DType> copy) {
    Args args;
    const ShardUpdate shard = args.shard(n, master, gradient, copy);
    Tensor &m = args.tensor({n}, master), &v = args.tensor({n}, master);
    return bytes_of(UpdateArgs<rules::AdamW>{shard, {&m, &v}});
  };
  CHECK(adam(kF32, kF32, {}) == n * 28);
  CHECK(adam(kF32, kF32, kF32) == n * 32);
  CHECK(adam(kF32, kF32, kBF16) == n * 30);
  CHECK(adam(kF64, kF64, {}) == n * 56);
  Args args;
  const ShardUpdate shard = args.shard(n, kF32, kF32, {});
  CHECK(bytes_of(UpdateArgs<rules::Sgd>{.shard = shard}) == n * 12);
  CHECK(bytes_of(UpdateArgs<rules::Sgd>{shard, {&args.tensor({n})}}) == n * 20);
}

TEST_CASE("cost of embeddings") {
  constexpr int64_t n = 2 * 5 * 10, kTable = 700 * 10;
  Args args;
  const Tensor &tokens = args.tensor({2, 5}, DType::kI32), &positions = args.tensor({8, 10});
  const Tensor &table = args.tensor({700, 10}), &narrow = args.tensor({2, 5, 10}, kBF16);
  Tensor &y = args.tensor({2, 5, 10}), &dtable = args.tensor({700, 10});
  CHECK(bytes_of(EmbeddingForwardArgs{tokens, table, nullptr, 0, y}) == 4 * (n + n));
  CHECK(bytes_of(EmbeddingForwardArgs{tokens, table, &positions, 0, y}) == 4 * (n + 5 * 10 + n));
  CHECK(bytes_of(EmbeddingBackwardArgs{tokens, y, dtable, true}) == 4 * (n + n + n));
  CHECK(bytes_of(EmbeddingBackwardArgs{tokens, narrow, dtable, false}) ==
        2 * n + 4 * (n + n + kTable));
  CHECK(bytes_of(PositionBackwardArgs{narrow, dtable, true}) == 2 * n + 4 * kTable);
}

TEST_CASE("costs add up") {
  Cost sum = {.flops = 1, .bytes = 2};
  sum += Cost{.flops = 10, .bytes = 20} * 3;
  CHECK(sum == Cost{.flops = 31, .bytes = 62});
}

TEST_CASE("a visitor sees the tensors that are given, with their roles; words say the rest") {
  Args args;
  const Tensor &logits_of = args.tensor({3, 8}), &labels = args.tensor({3}, DType::kI32);
  Tensor logits = logits_of, &loss = args.tensor({}), &narrow = args.tensor({3, 8}, kBF16);
  const CrossEntropyArgs call = {
      .logits = logits, .vocabulary = 5, .labels = labels, .loss_sum = loss, .dlogits = &narrow};
  CHECK(call.name() == "cross_entropy");
  CHECK(words_of(call) == "5 columns, gradient, bf16");
  std::vector<const Tensor*> seen;
  int64_t below = 0;
  for_each_tensor(call, [&](const TensorRole& role, const Tensor& tensor) {
    seen.push_back(&tensor);
    if (role.content == TensorRole::Content::kIndices) below = role.below;
  });
  CHECK(seen == std::vector<const Tensor*>{&logits, &labels, &loss, &narrow});
  CHECK(below == 5);
  CHECK(words_of(AddArgs{labels, labels, loss}) == "");
  CHECK(words_of(GluForwardArgs{Activation::kSilu, logits, nullptr, narrow}) ==
        "silu, halves of rows");
  CHECK(Kernel(call).kind() != Kernel(AddArgs{labels, labels, loss}).kind());
}

}  // namespace fsdp
