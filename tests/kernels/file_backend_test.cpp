// A file as memory: values come back in the order of streams, fresh memory is zeros, the ledger
// counts what the file has, and nothing computes there. Requirements: S2.16.
#include "kernels/cpu/file_backend.h"

#include <doctest/doctest.h>

#include "core/copy_in_order.h"
#include "core/shard_args.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using cpu::CpuBackend;
using cpu::FileBackend;
using test::contains;
using test::error_of;

namespace {

std::vector<float> counted(int64_t n, float first) {
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(first + static_cast<float>(i));
  return out;
}

}  // namespace

TEST_CASE("file backend: tensors keep values, slices of any size too") {
  const test::TempFolder folder;
  FileBackend file(folder.path(), "rank 0");
  CHECK(file.name() == "file");
  CHECK(!file.computes());
  CHECK(!file.host_reaches_memory());
  for (const int64_t n : {1, 7, 1024, 1025, 300000}) {
    const Tensor x = Tensor::empty(file, Shape{n}, DType::kF32);
    CHECK(x.to_host<float>() == std::vector<float>(static_cast<size_t>(n)));
    std::vector<float> expected = counted(n, 1);
    x.write(expected.data());
    CHECK(x.to_host<float>() == expected);
    const int64_t at = n / 3, count = (n + 1) / 2;
    const std::vector<float> part = counted(count, -100);
    x.slice(at, Shape{count}).write(part.data());
    std::copy(part.begin(), part.end(), expected.begin() + at);
    CHECK(x.to_host<float>() == expected);
    file.fill_zero(file.compute_stream(), x.data(), x.bytes());
    CHECK(x.to_host<float>() == std::vector<float>(static_cast<size_t>(n)));
  }
}

TEST_CASE("file backend: what streams copy, and copies in the order of two backends") {
  const test::TempFolder folder;
  FileBackend file(folder.path(), "rank 0");
  CpuBackend memory;
  const auto out = file.create_stream("out"), in = file.create_stream("in");
  const Tensor home = Tensor::empty(file, Shape{5000}, DType::kF32);
  const Tensor x = Tensor::from_host(memory, Shape{5000}, counted(5000, 3));
  const Tensor y = Tensor::zeros(memory, Shape{5000}, DType::kF32);
  file.wait(*out, memory.record(memory.compute_stream()));
  file.copy(*out, home.data(), x.data(), x.bytes());
  file.wait(*in, file.record(*out));
  file.copy(*in, y.data(), home.data(), y.bytes());
  memory.wait(memory.compute_stream(), file.record(*in));
  CHECK(y.to_host<float>() == counted(5000, 3));
  // Longer than a stretch.
  const Tensor z = Tensor::from_host(memory, Shape{2100000}, counted(2100000, -5));
  const Tensor there = Tensor::empty(file, z.shape(), DType::kF32);
  copy_in_order(memory, z, there);
  const Tensor back = Tensor::zeros(memory, z.shape(), DType::kF32);
  copy_in_order(memory, there, back);
  CHECK(back.to_host<float>() == z.to_host<float>());
}

TEST_CASE("file backend: its ledger, and a kernel that is refused") {
  const test::TempFolder folder;
  FileBackend file(folder.path(), "rank 0");
  Tensor x = Tensor::empty(file, Shape{2048}, DType::kF32, MemoryCategory::kOptimizerState);
  const Tensor y = Tensor::empty(file, Shape{1024}, DType::kF32, MemoryCategory::kGradient);
  const MemoryUsage usage = file.ledger().usage();
  CHECK(usage.total_current == 3 * kFileBlock);
  CHECK(usage.held_peak == 3 * kFileBlock);
  CHECK(usage.current[static_cast<size_t>(MemoryCategory::kOptimizerState)] == 2 * kFileBlock);
  CHECK(file.file().size() == 3 * kFileBlock);
  CHECK(contains(error_of([&] {
                   file.run(file.compute_stream(), CastArgs{y, x});
                 }),
                 "[cast] a file computes nothing"));
  CpuBackend memory;
  const Tensor m = Tensor::zeros(memory, Shape{4}, DType::kF32);
  CHECK(contains(error_of([&] { file.copy(file.compute_stream(), m.data(), m.data(), 16); }),
                 "expected one side in the file"));
}

TEST_CASE("file backend: a disk without room says how much was expected") {
  const test::TempFolder folder;
  FileBackend file(folder.path(), "rank 1");
  const std::string said =
      error_of([&] { Tensor::empty(file, Shape{int64_t{1} << 48}, DType::kF32); });
  CHECK(contains(said, folder.path().string() + ": the state of rank 1: expected room for"));
}
