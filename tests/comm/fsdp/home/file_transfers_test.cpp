// Copies between a device and a file: of pieces that do not divide, in both directions at once,
// with every stream slow at times. Requirements: S2.16.
#include "comm/fsdp/home/file_transfers.h"

#include <doctest/doctest.h>

#include "kernels/cpu/file_backend.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;

TEST_CASE("file transfers: what is stored is loaded, in pieces") {
  constexpr auto kPiece = static_cast<int64_t>(FileTransfers::kPieceBytes / sizeof(float));
  const test::TempFolder folder;
  cpu::CpuBackend device(test::random_delays(1, 2000)), host(test::random_delays(2, 2000));
  cpu::FileBackend file(folder.path(), "rank 0", test::random_delays(3, 2000));
  const auto from_file = file.create_stream("from_file"), to_file = file.create_stream("to_file");
  const auto from_host = device.create_stream("from_host"),
             to_host = device.create_stream("to_host");
  FileTransfers transfers(host, {*from_file, *from_host, *to_host, *to_file});
  const std::vector<int64_t> sizes = {3, kPiece, 2 * kPiece + 1001, 1025};
  for (const int64_t n : sizes) {
    transfers.expect_loads(static_cast<size_t>(n) * sizeof(float));
    transfers.expect_stores(static_cast<size_t>(n) * sizeof(float));
  }
  transfers.allocate();
  const size_t buffers = 4 * (FileTransfers::kPieceBytes + kFileBlock);
  CHECK(host.ledger().usage().total_current == buffers);
  for (int round = 0; round < 2; ++round) {
    std::vector<Tensor> homes, back;
    std::vector<std::vector<float>> expected;
    for (const int64_t n : sizes) {
      std::vector<float> values(static_cast<size_t>(n));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i % 8191 + homes.size());
      Tensor from = Tensor::from_host(device, Shape{n}, values);
      const EventPtr there = device.record(device.compute_stream());
      homes.push_back(file_tensor(file, Shape{n}, DType::kF32, MemoryCategory::kGradient));
      const FileTransfers::Stored stored = transfers.store(from, homes.back(), there);
      // The source is free when it is sent.
      device.wait(device.compute_stream(), stored.sent);
      device.fill_zero(device.compute_stream(), from.data(), from.bytes());
      back.push_back(Tensor::zeros(device, Shape{n}, DType::kF32));
      const EventPtr free = device.record(device.compute_stream());
      const EventPtr loaded = transfers.load(homes.back(), back.back(), stored.written, free);
      device.wait(device.compute_stream(), loaded);
      expected.push_back(std::move(values));
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      CHECK((back[i].to_host<float>() == expected[i]));
      CHECK((homes[i].to_host<float>() == expected[i]));
    }
  }
}
