// copy_heads: every head lands at its place in the other layout, in every dtype; nothing else
// moves.
#include "core/layer_args.h"
#include "tests/support/kernel_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("copy_heads moves heads between layouts and leaves all else alone") {
  constexpr int64_t kBatch = 3, kTokens = 37, kCapacity = 41, kFirst = 2, kHeads = 3, kWidth = 5;
  for (const DType dtype : kFloatingTypes) {
    CAPTURE(name_of(dtype));
    // BLOOM's rows [head, (q, k, v), width]: the keys; then into rows of heads with one beside
    // them.
    const Values source = rounded(random_values(kBatch * kTokens * kHeads * 3 * kWidth, 1), dtype);
    const Values before =
        rounded(random_values(kBatch * kCapacity * (kHeads + 1) * kWidth, 2), dtype);
    const auto out = on_any_threads([&](Backend& backend) {
      const Tensor from =
          make_tensor(backend, {kBatch, kTokens, kHeads * 3 * kWidth}, dtype, source);
      const Tensor to =
          make_tensor(backend, {kBatch, kCapacity, (kHeads + 1) * kWidth}, dtype, before);
      backend.run(backend.compute_stream(),
                  CopyHeadsArgs{{&from, kHeads, kWidth, kWidth, 3 * kWidth},
                                {&to, kHeads, kWidth, kWidth, kWidth},
                                kFirst});
      return std::vector<Values>{to.to_doubles()};
    });
    Values expected = before;
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t h = 0; h < kHeads; ++h) {
          for (int64_t d = 0; d < kWidth; ++d) {
            const int64_t at = ((b * kCapacity + kFirst + t) * (kHeads + 1) + h + 1) * kWidth + d;
            const int64_t from = ((b * kTokens + t) * kHeads * 3 + h * 3 + 1) * kWidth + d;
            expected[size_t(at)] = source[size_t(from)];
          }
        }
      }
    }
    CHECK(out[0] == expected);
  }
}

}  // namespace
}  // namespace fsdp::test
