// Attention: checks, what is saved, and where the gradients of packed rows go.
#include "core/ops/attention.h"

#include <array>

#include "core/layer_args.h"
#include "core/ops/check.h"

namespace fsdp::ops {
namespace {

void check_view(std::string_view what, const HeadView& view) {
  FSDP_CHECK(view.tensor && view.tensor->shape().rank() == 3,
             "[attention] {}: expected a (B, T, row_width) tensor", what);
  const int64_t last = view.offset + (view.heads - 1) * view.head_stride + view.head_dim;
  FSDP_CHECK(last <= view.tensor->shape()[2],
             "[attention] {}: expected heads within rows of {} elements, got up to {}", what,
             view.tensor->shape()[2], last);
}

int64_t keys_of(const AttentionArgs& a) { return a.keys > 0 ? a.keys : a.k.tensor->shape()[1]; }

void check_attention(const AttentionArgs& a) {
  check_view("q", a.q);
  check_view("k", a.k);
  check_view("v", a.v);
  FSDP_CHECK(a.k.heads == a.v.heads && a.k.heads > 0 && a.q.heads % a.k.heads == 0,
             "[attention] heads: expected key-value heads that divide {} query heads, got {} "
             "and {}",
             a.q.heads, a.k.heads, a.v.heads);
  FSDP_CHECK(a.q.head_dim == a.k.head_dim && a.q.head_dim == a.v.head_dim,
             "[attention] head_dim: expected equal ones, got {}, {}, {}", a.q.head_dim,
             a.k.head_dim, a.v.head_dim);
  const int64_t room = a.k.tensor->shape()[1], keys = keys_of(a);
  FSDP_CHECK(room == a.v.tensor->shape()[1] && a.q.tensor->shape()[1] <= keys,
             "[attention] lengths: expected queries <= keys = values, got {}, {}, {}",
             a.q.tensor->shape()[1], keys, a.v.tensor->shape()[1]);
  FSDP_CHECK(keys <= room, "[attention] keys: expected at most {}, got {}", room, keys);
  const int64_t batch = a.q.tensor->shape()[0];
  FSDP_CHECK(a.k.tensor->shape()[0] == batch && a.v.tensor->shape()[0] == batch,
             "[attention] batch: expected equal ones, got {}, {}, {}", batch,
             a.k.tensor->shape()[0], a.v.tensor->shape()[0]);
  check_dtype("attention", "k", a.k.tensor->dtype(), a.q.tensor->dtype());
  check_dtype("attention", "v", a.v.tensor->dtype(), a.q.tensor->dtype());
  if (a.key_bias) {
    const Shape& bias = a.key_bias->shape();
    FSDP_CHECK(bias.rank() == 3 && (bias[0] == 1 || bias[0] == batch) &&
                   (bias[1] == 1 || bias[1] == a.q.heads) && bias[2] >= keys,
               "[attention] key_bias: expected (1 or {}, 1 or {}, {} or more), got {}", batch,
               a.q.heads, keys, bias.str());
    check_dtype("attention", "key_bias", a.key_bias->dtype(),
                accumulation_dtype(a.q.tensor->dtype()));
  }
  if (a.first_key) {
    check_shape("attention", "first_key", a.first_key->shape(),
                Shape{batch, a.q.tensor->shape()[1]});
    check_dtype("attention", "first_key", a.first_key->dtype(), DType::kI32);
    FSDP_CHECK(a.causal,
               "[attention] first_key: expected a causal mask: without one a query sees "
               "the documents behind its own");
    FSDP_CHECK(a.keys == 0, "[attention] first_key: expected no cache of keys");
    FSDP_CHECK(!a.key_bias || !a.hides_keys,
               "[attention] first_key: expected no key_bias that hides keys: a query that sees "
               "none would average the keys of other documents");
  }
  if (a.dropout.probability > 0) {
    check_shape("attention", "samples", a.dropout.samples->shape(), Shape{batch});
  }
}

// What backward needs: its own handles on the tensors behind the views.
struct SavedAttention {
  AttentionArgs args;
  std::array<Tensor, 3> tensors;  // of q, k, v; the same memory when packed
  Tensor samples, key_bias, first_key, out, log_sum_exp;
};

// Packed rows: which of q, k, v is the first to view the same tensor as number i.
size_t first_view(const std::array<Tensor, 3>& tensors, size_t i) {
  size_t j = 0;
  while (tensors[j].data() != tensors[i].data()) ++j;
  return j;
}

std::vector<Tensor> attention_backward(SavedAttention& s, const Tensor& dout) {
  Backend& backend = dout.backend();
  std::array<HeadView*, 3> views = {&s.args.q, &s.args.k, &s.args.v};
  std::array<Tensor, 3> gradients;
  std::array<HeadView, 3> targets;
  std::vector<Tensor> distinct;
  for (size_t i = 0; i < 3; ++i) {
    views[i]->tensor = &s.tensors[i];
    const size_t first = first_view(s.tensors, i);
    gradients[i] = first < i ? gradients[first]
                             : Tensor::empty(backend, s.tensors[i].shape(), s.tensors[i].dtype());
    if (first == i) distinct.push_back(gradients[i]);
    targets[i] = *views[i];
    targets[i].tensor = &gradients[i];
  }
  if (s.samples.defined()) s.args.dropout.samples = &s.samples;
  if (s.key_bias.defined()) s.args.key_bias = &s.key_bias;
  if (s.first_key.defined()) s.args.first_key = &s.first_key;
  Tensor delta = Tensor::empty(backend, s.log_sum_exp.shape(), s.log_sum_exp.dtype());
  backend.run(backend.compute_stream(), AttentionBackwardArgs{.in = s.args,
                                                              .out = s.out,
                                                              .log_sum_exp = s.log_sum_exp,
                                                              .dout = dout,
                                                              .delta = delta,
                                                              .dq = targets[0],
                                                              .dk = targets[1],
                                                              .dv = targets[2]});
  return distinct;
}

void check_tables(const RopeTables& tables, const Shape& x, int64_t head_dim) {
  const Shape& table = tables.cos.shape();
  if (table.rank() == 3) {
    check_shape("rope", "tables by token", table, Shape{x[0], x[1], table[2]});
  } else {
    FSDP_CHECK(x[1] <= table[0], "[rope] positions: expected at most {}, got {}", table[0], x[1]);
  }
  FSDP_CHECK(2 * table.last() <= head_dim, "[rope] rotary_dim: expected at most {}, got {}",
             head_dim, 2 * table.last());
}

void rotate(const Tensor& tensor, HeadView view, const RopeTables& tables, bool inverse) {
  Tensor rows = tensor, cos = tables.cos, sin = tables.sin;
  if (cos.shape().rank() == 3) {  // by token: the kernel sees one sequence of B * T
    const Shape by_token = {cos.shape().rows(), cos.shape().last()};
    cos = cos.view(by_token);
    sin = sin.view(by_token);
    rows = rows.view(Shape{1, by_token[0], rows.shape()[2]});
  }
  view.tensor = &rows;
  Backend& backend = tensor.backend();
  backend.run(backend.compute_stream(),
              RopeArgs{.x = view, .cos = cos, .sin = sin, .inverse = inverse});
}

}  // namespace

RopeTables rope_tables_at(const RopeTables& tables, const Tensor& positions) {
  const Shape& shape = positions.shape();
  FSDP_CHECK(shape.rank() == 2, "[rope] positions: expected (B, T), got {}", shape.str());
  check_dtype("rope", "positions", positions.dtype(), DType::kI32);
  Backend& backend = positions.backend();
  const auto rows_of = [&](const Tensor& table) {
    Tensor rows =
        Tensor::empty(backend, Shape{shape[0], shape[1], table.shape().last()}, table.dtype());
    backend.run(backend.compute_stream(), EmbeddingForwardArgs{positions, table, nullptr, 0, rows});
    return rows;
  };
  return {rows_of(tables.cos), rows_of(tables.sin)};
}

Tensor rope(const Tensor& tensor, HeadView view, const RopeTables& tables) {
  view.tensor = &tensor;
  check_view("rope", view);
  check_tables(tables, tensor.shape(), view.head_dim);
  rotate(tensor, view, tables, false);
  Tensor y = tensor.detached();
  if (Tape* tape = tape_of({&tensor})) {
    tape->record("rope", {&tensor}, {&y}, [view, tables](std::vector<Tensor>& gradients) {
      Tensor dx = std::move(gradients[0]);
      Backend& backend = dx.backend();
      if (dx.storage().use_count() > 1) {
        Tensor own = Tensor::empty(backend, dx.shape(), dx.dtype());
        backend.copy(backend.compute_stream(), own.data(), dx.data(), dx.bytes());
        dx = own;
      }
      rotate(dx, view, tables, true);
      return std::vector<Tensor>{dx};
    });
  }
  return y;
}

Tensor attention(const AttentionArgs& args) {
  check_attention(args);
  const Tensor& q = *args.q.tensor;
  const Tensor& k = *args.k.tensor;
  const Tensor& v = *args.v.tensor;
  Backend& backend = q.backend();
  const Shape statistics = {q.shape()[0], args.q.heads, q.shape()[1]};
  Tensor out = Tensor::empty(
      backend, Shape{q.shape()[0], q.shape()[1], args.q.heads * args.q.head_dim}, q.dtype());
  Tensor log_sum_exp = Tensor::empty(backend, statistics, accumulation_dtype(q.dtype()));
  backend.run(backend.compute_stream(),
              AttentionForwardArgs{.in = args, .out = out, .log_sum_exp = log_sum_exp});
  Tape* tape = tape_of({&q, &k, &v});
  if (!tape) return out;
  FSDP_CHECK(keys_of(args) == k.shape()[1],
             "[attention] keys: a gradient needs all {} of them, got {}", k.shape()[1], args.keys);
  SavedAttention saved = {.args = args,
                          .tensors = {q.detached(), k.detached(), v.detached()},
                          .samples = {},
                          .key_bias = {},
                          .first_key = {},
                          .out = out,
                          .log_sum_exp = log_sum_exp};
  if (args.dropout.samples) saved.samples = args.dropout.samples->detached();
  if (args.key_bias) saved.key_bias = args.key_bias->detached();
  if (args.first_key) saved.first_key = args.first_key->detached();
  std::vector<const Tensor*> inputs;
  for (size_t i = 0; i < 3; ++i) {
    if (first_view(saved.tensors, i) == i) inputs.push_back(std::array{&q, &k, &v}[i]);
  }
  saved.out = out.detached();
  tape->record("attention", inputs, {&out},
               [saved = std::move(saved)](std::vector<Tensor>& gradients) mutable {
                 return attention_backward(saved, gradients[0]);
               });
  return out;
}

}  // namespace fsdp::ops
