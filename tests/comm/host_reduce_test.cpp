// The arithmetic of reductions against the same sums in double, and its special values.
#include "comm/host_reduce.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/tensors.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

template <typename T>
std::vector<T> reduce_values(ReduceOp op, const std::vector<std::vector<T>>& sources) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) {
    pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  }
  std::vector<T> out(sources[0].size());
  reduce_in_order(dtype_of<T>(), op, pointers, reinterpret_cast<std::byte*>(out.data()),
                  static_cast<int64_t>(out.size()));
  return out;
}

// Sums of `ranks` values in double, against which the error is measured.
template <typename T>
double worst_error(ReduceOp op, int ranks, int64_t numel) {
  std::vector<std::vector<T>> sources;
  for (int r = 0; r < ranks; ++r) {
    sources.emplace_back();
    for (const double v : random_values(numel, static_cast<uint64_t>(r + 1))) {
      sources.back().push_back(static_cast<T>(static_cast<Accumulate<T>>(v)));
    }
  }
  const std::vector<T> got = reduce_values(op, sources);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double sum = 0;
    for (const auto& source : sources) sum += static_cast<double>(source[i]);
    if (op == ReduceOp::kAverage) sum /= ranks;
    worst =
        std::max(worst, std::abs(static_cast<double>(got[i]) - sum) / std::max(std::abs(sum), 1.0));
  }
  return worst;
}

}  // namespace

TEST_CASE("a chain of sums goes on where it was, and a lone -0 stays -0") {
  const std::vector<float> a = {-0.f, 1e8f, 3}, b = {-0.f, 1, 4}, c = {0.f, -1e8f, 5};
  const auto bytes = [](const std::vector<float>& v) {
    return reinterpret_cast<const std::byte*>(v.data());
  };
  std::vector<float> out(3);
  const auto add = [&](const std::byte* start, std::vector<const std::byte*> sources) {
    add_in_order(DType::kF32, start, sources, reinterpret_cast<std::byte*>(out.data()), 3);
  };
  add(nullptr, {bytes(a)});
  CHECK(std::signbit(out[0]));
  add(bytes(out), {bytes(b)});
  CHECK(std::signbit(out[0]));
  add(bytes(out), {bytes(c)});
  CHECK(!std::signbit(out[0]));  // zeros of a rank without a pass would do this
  CHECK(out[1] == 0);            // 1e8 + 1 is 1e8 in f32
  CHECK(out[2] == 12);
  const std::vector<float> one_by_one = out;
  add(nullptr, {bytes(a), bytes(b), bytes(c)});
  CHECK(out == one_by_one);
}

TEST_CASE("sums are accumulated wide and rounded once") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    for (const int64_t numel : {1, 7, 2048, 2049, 10000}) {
      CHECK(worst_error<float>(op, 8, numel) < 8 * unit_roundoff(DType::kF32));
      CHECK(worst_error<double>(op, 8, numel) < 8 * unit_roundoff(DType::kF64));
      // One rounding of the result; in bf16 arithmetic eight ranks would err by up to seven.
      CHECK(worst_error<BFloat16>(op, 8, numel) < 1.01 * unit_roundoff(DType::kBF16));
      CHECK(worst_error<Float16>(op, 8, numel) < 1.01 * unit_roundoff(DType::kF16));
    }
  }
}

TEST_CASE("the order is that of the ranks, and the division comes last") {
  const std::vector<std::vector<float>> sources = {{1e8f, 0.1f}, {1.f, 0.2f}, {-1e8f, 0.3f}};
  const std::vector<float> sum = reduce_values(ReduceOp::kSum, sources);
  CHECK(sum[0] == (1e8f + 1.f) - 1e8f);
  CHECK(reduce_values(ReduceOp::kAverage, sources)[1] == ((0.1f + 0.2f) + 0.3f) / 3.f);
}

TEST_CASE("maximum: a NaN of any rank wins, infinities and integers") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> sources = {{1, nan, 2, -inf}, {3, 1, nan, -inf}};
  const std::vector<float> got = reduce_values(ReduceOp::kMax, sources);
  CHECK(got[0] == 3);
  CHECK(std::isnan(got[1]));
  CHECK(std::isnan(got[2]));
  CHECK(got[3] == -inf);
  CHECK(reduce_values<int64_t>(ReduceOp::kMax, {{-5, int64_t{1} << 60}, {-7, 3}}) ==
        std::vector<int64_t>{-5, int64_t{1} << 60});
  CHECK(reduce_values<int64_t>(ReduceOp::kSum, {{(int64_t{1} << 60) + 1}, {1}}) ==
        std::vector<int64_t>{(int64_t{1} << 60) + 2});  // not through a double
}

TEST_CASE("the output may be one of the sources") {
  std::vector<std::vector<float>> sources = {{1, 2, 3}, {10, 20, 30}};
  const std::byte* pointers[] = {reinterpret_cast<std::byte*>(sources[0].data()),
                                 reinterpret_cast<std::byte*>(sources[1].data())};
  reduce_in_order(DType::kF32, ReduceOp::kSum, pointers,
                  reinterpret_cast<std::byte*>(sources[1].data()), 3);
  CHECK(sources[1] == std::vector<float>{11, 22, 33});
}
