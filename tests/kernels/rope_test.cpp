// Rotary embedding inside packed rows against complex multiplication, its inverse, and positions.
#include <complex>

#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

struct RopeCase {
  int64_t batch, length, heads, head_dim, half, offset, head_stride, row_width, first_position;
};
constexpr RopeCase kCases[] = {
    {1, 1, 1, 2, 1, 0, 2, 2, 0},
    {2, 5, 3, 6, 3, 0, 6, 18, 0},    // plain
    {2, 7, 3, 10, 3, 4, 12, 45, 2},  // a part of each head, an offset, gaps, a later position
    {1, 33, 2, 64, 32, 128, 64, 384, 0},
};

double angle(int64_t position, int64_t i, int64_t half) {
  return double(position) * std::pow(10000.0, -double(i) / double(half));
}

Tensor table(Backend& backend, const RopeCase& c, DType dtype, double (*f)(double)) {
  Values values;
  for (int64_t p = 0; p < c.length + c.first_position; ++p) {
    for (int64_t i = 0; i < c.half; ++i) values.push_back(f(angle(p, i, c.half)));
  }
  return make_tensor(backend, {c.length + c.first_position, c.half}, accumulation_dtype(dtype),
                     values);
}

Values rotate(Backend& backend, const RopeCase& c, DType dtype, const Values& values,
              bool inverse) {
  Tensor x = make_tensor(backend, {c.batch, c.length, c.row_width}, dtype, values);
  const Tensor cosine = table(backend, c, dtype, [](double v) { return std::cos(v); });
  const Tensor sine = table(backend, c, dtype, [](double v) { return std::sin(v); });
  backend.run(backend.compute_stream(), RopeArgs{.x = {.tensor = &x,
                                                       .heads = c.heads,
                                                       .head_dim = c.head_dim,
                                                       .offset = c.offset,
                                                       .head_stride = c.head_stride},
                                                 .cos = cosine,
                                                 .sin = sine,
                                                 .first_position = c.first_position,
                                                 .inverse = inverse});
  return x.to_doubles();
}

Values expected_rotation(const RopeCase& c, Values x) {
  for (int64_t row = 0; row < c.batch * c.length; ++row) {
    for (int64_t h = 0; h < c.heads; ++h) {
      double* head = x.data() + row * c.row_width + c.offset + h * c.head_stride;
      for (int64_t i = 0; i < c.half; ++i) {
        const std::complex<double> turned =
            std::complex<double>(head[i], head[i + c.half]) *
            std::polar(1.0, angle(row % c.length + c.first_position, i, c.half));
        head[i] = turned.real();
        head[i + c.half] = turned.imag();
      }
    }
  }
  return x;
}

TEST_CASE("rope rotates pairs of channels, and nothing else") {
  for (const DType dtype : kFloatingTypes) {
    for (const RopeCase& c : kCases) {
      const Values x = rounded(random_values(c.batch * c.length * c.row_width, 1), dtype);
      const auto out = on_any_threads([&](Backend& backend) {
        return std::vector<Values>{rotate(backend, c, dtype, x, false)};
      });
      CAPTURE(name_of(dtype));
      CHECK(largest_error(out[0], expected_rotation(c, x)) < tolerance(dtype, 4));
    }
  }
}

TEST_CASE("the inverse undoes it") {
  cpu::CpuBackend backend;
  for (const RopeCase& c : kCases) {
    const Values x = random_values(c.batch * c.length * c.row_width, 1);
    const Values there = rotate(backend, c, DType::kF64, x, false);
    CHECK(largest_error(rotate(backend, c, DType::kF64, there, true), x) < 1e-15);
  }
}

}  // namespace
}  // namespace fsdp::test
