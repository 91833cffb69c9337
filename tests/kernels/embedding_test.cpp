// Lookup, and the scattered gradient: exact sums in order, zeroed or kept rows, every pair of
// dtypes.
#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

struct Case {
  int64_t batch, length, vocabulary, columns;
};
constexpr Case kCases[] = {{1, 1, 1, 1}, {2, 7, 5, 3}, {3, 40, 300, 65}, {2, 33, 4, 130}};

std::vector<int32_t> tokens_of(const Case& c) {
  std::vector<int32_t> tokens;
  for (const double value : random_values(c.batch * c.length, 9, 0, double(c.vocabulary))) {
    tokens.push_back(static_cast<int32_t>(value));
  }
  return tokens;
}

TEST_CASE("embedding_forward copies rows and adds positions") {
  for (const DType dtype : kFloatingTypes) {
    for (const Case& c : kCases) {
      const auto tokens = tokens_of(c);
      const Values table = rounded(random_values(c.vocabulary * c.columns, 1), dtype);
      const Values positions = rounded(random_values((c.length + 2) * c.columns, 2), dtype);
      const auto out = on_any_threads([&](Backend& backend) {
        const Tensor ids = Tensor::from_host(backend, {c.batch, c.length}, tokens);
        const Tensor rows = make_tensor(backend, {c.vocabulary, c.columns}, dtype, table);
        const Tensor more = make_tensor(backend, {c.length + 2, c.columns}, dtype, positions);
        Tensor plain = Tensor::empty(backend, {c.batch, c.length, c.columns}, dtype);
        Tensor y = Tensor::empty(backend, plain.shape(), dtype);
        backend.run(backend.compute_stream(), EmbeddingForwardArgs{ids, rows, nullptr, 0, plain});
        backend.run(backend.compute_stream(), EmbeddingForwardArgs{ids, rows, &more, 2, y});
        return std::vector<Values>{plain.to_doubles(), y.to_doubles()};
      });
      Values plain, y;
      for (int64_t i = 0; i < c.batch * c.length; ++i) {
        for (int64_t k = 0; k < c.columns; ++k) {
          plain.push_back(table[size_t(tokens[size_t(i)] * c.columns + k)]);
          y.push_back(plain.back() + positions[size_t((i % c.length + 2) * c.columns + k)]);
        }
      }
      CHECK(out[0] == plain);
      CHECK(out[1] == rounded(dtype == DType::kF64 ? y : rounded(y, DType::kF32), dtype));
    }
  }
}

// The rows of dy added to those of `start` in order, in the wider accumulation type.
Values scattered(const Case& c, const std::vector<int32_t>& rows, const Values& dy,
                 const Values& start, DType sum_type, DType out_type) {
  Values sums = start;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t k = 0; k < size_t(c.columns); ++k) {
      double& sum = sums[size_t(rows[i] * c.columns) + k];
      sum += dy[i * size_t(c.columns) + k];
      if (sum_type == DType::kF32) sum = double(float(sum));
    }
  }
  return rounded(sums, out_type);
}

DType sum_type(DType dy, DType out) {
  return dy == DType::kF64 || out == DType::kF64 ? DType::kF64 : DType::kF32;
}

// {dtable}, {dpositions}: both scatters with the same arguments.
std::vector<Values> scatter(Backend& backend, const Case& c, DType dtype, DType out_type,
                            bool accumulate, const Values& dy, const Values& start) {
  const Tensor ids = Tensor::from_host(backend, {c.batch, c.length}, tokens_of(c));
  const Tensor gradient = make_tensor(backend, {c.batch, c.length, c.columns}, dtype, dy);
  const int64_t rows = c.vocabulary + c.length;
  Tensor table = make_tensor(backend, {rows, c.columns}, out_type, start);
  Tensor positions = make_tensor(backend, {rows, c.columns}, out_type, start);
  backend.run(backend.compute_stream(), EmbeddingBackwardArgs{ids, gradient, table, accumulate});
  backend.run(backend.compute_stream(), PositionBackwardArgs{gradient, positions, accumulate});
  return {table.to_doubles(), positions.to_doubles()};
}

TEST_CASE("gradients are summed in order of (b, t); other rows are zeroed or kept") {
  for (const DType dtype : kFloatingTypes) {
    for (const DType out_type : kFloatingTypes) {
      for (const Case& c : kCases) {
        for (const bool accumulate : {false, true}) {
          const Values dy = rounded(random_values(c.batch * c.length * c.columns, 1), dtype);
          const Values start =
              rounded(random_values((c.vocabulary + c.length) * c.columns, 2), out_type);
          const auto out = on_any_threads([&](Backend& backend) {
            return scatter(backend, c, dtype, out_type, accumulate, dy, start);
          });
          std::vector<int32_t> times;
          for (int64_t i = 0; i < c.batch * c.length; ++i) times.push_back(int32_t(i % c.length));
          const Values from = accumulate ? start : Values(start.size(), 0.0);
          const DType sum = sum_type(dtype, out_type);
          CHECK(out[0] == scattered(c, tokens_of(c), dy, from, sum, out_type));
          CHECK(out[1] == scattered(c, times, dy, from, sum, out_type));
        }
      }
    }
  }
}

TEST_CASE("a token outside the table is an error") {
  cpu::CpuBackend backend;
  const Tensor tokens = Tensor::from_host<int32_t>(backend, {1, 3}, {0, 5, 1});
  Tensor table = Tensor::zeros(backend, {5, 2}, DType::kF32);
  Tensor y = Tensor::empty(backend, {1, 3, 2}, DType::kF32);
  backend.run(backend.compute_stream(), EmbeddingForwardArgs{tokens, table, nullptr, 0, y});
  CHECK_THROWS_WITH_AS(backend.synchronize(backend.compute_stream()),
                       doctest::Contains("[embedding] token: expected in [0, 5), got 5"), Error);
}

}  // namespace
}  // namespace fsdp::test
