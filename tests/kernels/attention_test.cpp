// Attention and its gradients against the plain T x T formula in double: masks, grouped heads, row
// layouts, dropout, cached decoding. Finite differences: tests/core/ops/attention_test.cpp.
#include "tests/support/attention_case.h"

namespace fsdp::test {
namespace {

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 3, 3, 13, 13, 5},
    {1, 2, 2, 33, 33, 8, false},
    {2, 2, 1, 65, 65, 33},              // grouped, one beyond a tile
    {1, 6, 2, 40, 40, 64, true, 7},     // grouped, window within a tile
    {1, 1, 1, 300, 300, 16, true, 70},  // window over tiles, several chunks
    {2, 4, 2, 5, 70, 24},               // queries at the end of longer keys
    {1, 2, 2, 1, 131, 64},              // decoding
    {1, 1, 1, 9, 4, 8},                 // the first queries see nothing
    {1, 2, 2, 50, 50, 8, false, 6},     // window without causal
    {2, 3, 3, 17, 17, 40, true, 0, 0, Layout::kPacked},
    {2, 3, 3, 17, 17, 40, true, 0, 0, Layout::kInterleaved},
    {2, 4, 2, 35, 35, 12, true, 0, 0.3, Layout::kPacked},
    {2, 2, 2, 7, 71, 9, true, 0, 0.5},
    {1, 2, 1, 130, 130, 96},
    {2, 3, 3, 17, 17, 40, true, 0, 0, Layout::kInterleaved, {1, 3, 21}},  // ALiBi, a longer table
    {2, 4, 2, 70, 70, 5, true, 9, 0.2, Layout::kSeparate, {2, 4, 70}},
    {3, 2, 1, 5, 70, 6, true, 0, 0, Layout::kSeparate, {3, 1, 70}},
    {3, 2, 2, 9, 9, 6, false, 0, 0, Layout::kSeparate, {1, 1, 9}},
    {3, 2, 1, 5, 5, 3, false, 0, 0, Layout::kSeparate, {3, 2, 5}},
};

// ---- the reference ----

struct Reference {
  Values out, log_sum_exp, dq, dk, dv;
};

// One query of one head: all T weights at once.
void add_query(const Case& c, const Operands& o, int64_t b, int64_t h, int64_t i, Reference& r) {
  const int64_t kv = h / (c.heads / c.kv_heads), D = c.head_dim;
  const size_t at_q = size_t(((b * c.queries + i) * c.heads + h) * D);
  const auto at_k = [&](int64_t j) { return size_t(((b * c.keys + j) * c.kv_heads + kv) * D); };
  const auto dot_at = [&](const Values& x, size_t at_x, const Values& y, size_t at_y) {
    double total = 0;
    for (size_t d = 0; d < size_t(D); ++d) total += x[at_x + d] * y[at_y + d];
    return total;
  };
  Values weights;
  double total = 0;
  for (int64_t j = 0; j < c.keys; ++j) {
    const double score = scale_of(c) * dot_at(o.q, at_q, o.k, at_k(j)) + bias_at(c, b, h, j);
    weights.push_back(visible(c, b, i, j) ? std::exp(score) : 0.0);
    total += weights.back();
  }
  r.log_sum_exp[size_t((b * c.heads + h) * c.queries + i)] = std::log(total);
  if (total == 0) {  // sees no key: all the same
    weights.assign(size_t(c.keys), 1.0);
    total = double(c.keys);
  }
  double delta = 0;
  Values dweights;
  for (int64_t j = 0; j < c.keys; ++j) {
    weights[size_t(j)] /= total;
    const double kept = c.dropout > 0 ? keep(c, b, h, i, j) : 1;
    dweights.push_back(kept * dot_at(o.dout, at_q, o.v, at_k(j)));
    delta += weights[size_t(j)] * dweights.back();
    for (size_t d = 0; d < size_t(D); ++d) {
      r.out[at_q + d] += kept * weights[size_t(j)] * o.v[at_k(j) + d];
      r.dv[at_k(j) + d] += kept * weights[size_t(j)] * o.dout[at_q + d];
    }
  }
  for (int64_t j = 0; j < c.keys; ++j) {
    const double dscore = weights[size_t(j)] * (dweights[size_t(j)] - delta) * scale_of(c);
    for (size_t d = 0; d < size_t(D); ++d) {
      r.dq[at_q + d] += dscore * o.k[at_k(j) + d];
      r.dk[at_k(j) + d] += dscore * o.q[at_q + d];
    }
  }
}

Reference reference(const Case& c, const Operands& o) {
  Reference r;
  r.out = r.dq = Values(o.q.size(), 0.0);
  r.dk = r.dv = Values(o.k.size(), 0.0);
  r.log_sum_exp.resize(size_t(c.batch * c.heads * c.queries));
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = 0; i < c.queries; ++i) add_query(c, o, b, h, i, r);
    }
  }
  return r;
}

TEST_CASE("attention against the plain formula, on any number of threads") {
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.insert(cases.end(), std::begin(kDocumentCases), std::end(kDocumentCases));
  cases.push_back({1, 1, 1, 300, 300, 16, true, 70, 0, Layout::kSeparate, {}, {150, 40}});
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : cases) {
      CAPTURE(name_of(dtype));
      CAPTURE(c.queries);
      CAPTURE(c.keys);
      CAPTURE(c.head_dim);
      const Operands o(c, dtype);
      const Reference r = reference(c, o);
      const auto out =
          on_any_threads([&](Backend& backend) { return run_attention(backend, c, dtype, o); });
      const DType wide = accumulation_dtype(dtype);
      CHECK(largest_error(out[0], r.out) < tolerance(dtype, 16));
      CHECK(largest_error(out[1], r.log_sum_exp) < tolerance(wide, 16));
      // backward starts from the rounded output
      const double limit = 4 * tolerance(dtype, 16);
      CHECK(largest_error(out[2], r.dq) < limit);
      CHECK(largest_error(out[3], r.dk) < limit);
      CHECK(largest_error(out[4], r.dv) < limit);
    }
  }
}

TEST_CASE("documents of a row: none moves a bit of another, whose tiles are not even read") {
  cpu::CpuBackend backend;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (const Case& c : kDocumentCases) check_documents_apart(backend, c, dtype, false);
    check_documents_apart(backend, kDocumentsOfTiles, dtype, true);
  }
}

// As plain attention, not by other sums: where a row is one document it has the same bits.
TEST_CASE("documents of a row: one document has the bits of plain attention") {
  cpu::CpuBackend backend;
  for (Case c : kCases) {
    if (c.queries != c.keys) continue;
    const Operands o(c, DType::kF32);
    const std::vector<Values> plain = run_attention(backend, c, DType::kF32, o);
    c.documents = {c.queries};
    const bool same = run_attention(backend, c, DType::kF32, o) == plain;
    CHECK(same);
  }
}

TEST_CASE("large scores do not overflow") {
  cpu::CpuBackend backend;
  const Case c = {1, 1, 1, 70, 70, 8};
  Operands o(c, DType::kF32);
  for (double& value : o.q) value *= 1e3;
  for (double& value : o.k) value *= 1e3;
  const auto out = run_attention(backend, c, DType::kF32, o);
  for (const Values& values : out) {
    CHECK(std::all_of(values.begin(), values.end(), [](double x) { return std::isfinite(x); }));
  }
}

}  // namespace
}  // namespace fsdp::test
