// One state file, written and read.
#include "tools/predict/disk_meter.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "core/io/state_file.h"

namespace fsdp::tools {
namespace {

constexpr size_t kPiece = size_t{16} << 20;  // as comm/fsdp/home/file_transfers.h
constexpr int kRounds = 2;  // what is written first takes its place on the disk; later it has one

// Seconds of the fastest round.
double least_seconds(const std::function<void()>& work) {
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    least = std::min(least, passed.count());
  }
  return least;
}

}  // namespace

DiskRates measure_disk(const std::filesystem::path& folder, size_t bytes) {
  StateFile file(folder, "the measured disk");
  const size_t all = rounded_to_blocks(bytes);
  const uint64_t begin = file.reserve(all);
  std::vector<std::byte> room(std::min(all, kPiece) + kFileBlock, std::byte{1});
  void* aligned = room.data();
  size_t space = room.size();
  std::align(kFileBlock, std::min(all, kPiece), aligned, space);
  const auto in_pieces = [&](auto transfer) {
    return [&, transfer] {
      for (size_t done = 0; done < all; done += kPiece) {
        transfer(begin + done, std::min(kPiece, all - done));
      }
    };
  };
  const auto rate = [&](double seconds) {
    return LinkRate{.latency_us = 0, .bytes_per_s = static_cast<double>(all) / seconds};
  };
  const double written =
      least_seconds(in_pieces([&](uint64_t offset, size_t n) { file.write(offset, aligned, n); }));
  const double read =
      least_seconds(in_pieces([&](uint64_t offset, size_t n) { file.read(offset, aligned, n); }));
  return {.read = rate(read), .write = rate(written)};
}

}  // namespace fsdp::tools
