// Scratch memory of the CPU's kernels: counted when work is issued, and never above the limit.
#include "kernels/cpu/scratch.h"

#include <doctest/doctest.h>

#include "core/ops/linear.h"
#include "kernels/cpu/attention_scratch.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp::cpu {
namespace {

size_t scratch_of(Backend& backend) { return backend.ledger().usage().scratch; }

TEST_CASE("scratch: it grows to the most that a thread was asked for, thread by thread") {
  PlannedScratch planned(3);
  CHECK(planned.plan({.bytes = 1000}) == 1024);
  CHECK(planned.plan({.bytes = 1000}) == 0);
  CHECK(planned.plan({.bytes = 2048, .by_all = true}) == 1024 + 2 * 2048);
  CHECK(planned.plan({.bytes = 2000}) == 0);
  CHECK(planned.plan({.products = {.bytes = 700}}) == 1024);
  CHECK(planned.plan({.bytes = 3000, .products = {.bytes = 1024}}) == 1024);
  CHECK(planned.plan({.products = {.bytes = 1500, .threads = 2}}) == 512 + 1536);
  CHECK(planned.plan({.products = {.bytes = 100, .copied = 700, .threads = 2}}) == 2 * 1024);
  CHECK(planned.plan({.products = {.bytes = 1536, .copied = 600}}) == 0);
}

TEST_CASE("scratch: sums of rows are counted when they are issued") {
  CpuBackend backend;
  const Tensor x = Tensor::empty(backend, Shape{100, 30}, DType::kBF16);
  Tensor sum = Tensor::empty(backend, Shape{30}, DType::kF32);
  CHECK(scratch_of(backend) == 0);
  backend.run(backend.compute_stream(), SumRowsArgs{.x = x, .out = sum});
  CHECK(scratch_of(backend) == rounded_bytes(4 * 30 * sizeof(float)));  // blocks of 32 rows
  backend.run(backend.compute_stream(), SumRowsArgs{.x = x, .out = sum});
  CHECK(scratch_of(backend) == rounded_bytes(4 * 30 * sizeof(float)));
  backend.synchronize(backend.compute_stream());
}

TEST_CASE("scratch: a product through tiles of f32 takes the tiles") {
  CpuBackend backend;
  const Tensor a = Tensor::empty(backend, Shape{5, 7}, DType::kF16);
  const Tensor b = Tensor::empty(backend, Shape{7, 3}, DType::kF16);
  Tensor c = Tensor::empty(backend, Shape{5, 3}, DType::kF16);
  const MatmulArgs args = {.a = a, .b = b, .c = c};
  CHECK(is_converted(product_of(args)));
  CHECK(ProductScratch().of(args, 1).bytes == ConversionTiles::kBytes);
}

// What the message of a call that goes above the limit is; "": none does.
std::string above(size_t spare) {
  CpuBackend backend;
  const Tensor x = Tensor::empty(backend, Shape{100, 300}, DType::kF32);
  Tensor sum = Tensor::empty(backend, Shape{300}, DType::kF32);
  const size_t held = backend.ledger().usage().held_peak;
  CHECK(held == rounded_bytes(100 * 300 * 4) + rounded_bytes(300 * 4));
  backend.ledger().set_limit(held + spare, [] { return "forward"; });
  backend.set_scope("blocks.1");
  const std::string error = test::error_of([&] {
    backend.run(backend.compute_stream(), SumRowsArgs{.x = x, .out = sum});
    Tensor::empty(backend, Shape{1}, DType::kF32);
  });
  backend.synchronize(backend.compute_stream());
  return error;
}

TEST_CASE("scratch and blocks: above the limit they are an error before the work is issued") {
  const size_t scratch = rounded_bytes(4 * 300 * sizeof(float));
  CHECK(above(scratch + 512).empty());
  CHECK(above(scratch + 511)
            .starts_with("[allocate] 4 bytes of activation, in forward of blocks.1: with them this "
                         "rank would hold "));
  CHECK(above(scratch - 1)
            .starts_with("[allocate] 5120 bytes of scratch, in forward of blocks.1: with them this "
                         "rank would hold "));
  CHECK(test::contains(above(scratch), "\nmemory (MiB) "));
}

}  // namespace
}  // namespace fsdp::cpu
