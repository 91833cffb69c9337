// One file, written and read.
#include "tools/predict/disk_meter.h"

#include <chrono>
#include <functional>
#include <numeric>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "core/io/file.h"

namespace fsdp::tools {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

LinkRate rate_of(size_t bytes, double seconds) {
  return {.latency_us = 0, .bytes_per_s = static_cast<double>(bytes) / seconds};
}

// So that the next read goes to the disk. Advice: without it the rate is that of memory.
void let_go_of(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
}

struct Removed {
  std::filesystem::path file;
  ~Removed() {
    std::error_code ignored;
    std::filesystem::remove(file, ignored);
  }
};

}  // namespace

DiskRates measure_disk(const std::filesystem::path& folder, size_t bytes) {
  const Removed file{folder / (".disk_rate." + std::to_string(::getpid()))};
  std::vector<char> block(kBlock);
  std::iota(block.begin(), block.end(), char{0});
  const double written = seconds_of([&] {
    AtomicFile out(file.file);
    for (size_t done = 0; done < bytes; done += kBlock) {
      out.write(block.data(), std::min(kBlock, bytes - done));
    }
    out.commit();
  });
  let_go_of(file.file);
  const double read = seconds_of([&] {
    const ReadableFile in(file.file);
    for (size_t done = 0; done < bytes; done += kBlock) {
      in.read_at(done, block.data(), std::min(kBlock, bytes - done));
    }
  });
  return {.read = rate_of(bytes, read), .write = rate_of(bytes, written)};
}

}  // namespace fsdp::tools
