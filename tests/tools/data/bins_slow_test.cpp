// Time and memory of packing many rows.
#include <chrono>

#include <doctest/doctest.h>
#include <sys/resource.h>

#include "tests/support/lengths_of_rows.h"
#include "tools/data/bins.h"

namespace fsdp::data {
namespace {

int64_t peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

double filled(const std::vector<uint32_t>& lengths, const Bins& bins) {
  double tokens = 0;
  for (const uint32_t length : lengths) tokens += std::min<uint32_t>(length, 512);
  return tokens / static_cast<double>(bins.count() * 512);
}

void check(int64_t rows, double most_seconds, int64_t most_mib) {
  const std::vector<uint32_t> lengths = test::lengths_of_rows(static_cast<size_t>(rows), 9);
  const int64_t before = peak_kib();
  const auto begin = std::chrono::steady_clock::now();
  const Bins bins = pack_rows(lengths, 512, 100'000);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const int64_t mib = (peak_kib() - before) / 1024 + rows * 4 / (1 << 20);
  MESSAGE(rows << " rows: " << taken.count() << " s, " << mib << " MiB with the lengths");
  CHECK(std::ssize(bins.rows) == rows);
  CHECK(filled(lengths, bins) > 0.99);
  CHECK(taken.count() <= most_seconds);
  CHECK(mib <= most_mib);
}

TEST_CASE("bins: 52,000 rows take half a second, ten million a minute and 200 MiB") {
  check(52'000, 0.5, 200);
  check(10'000'000, 60, 200);
}

}  // namespace
}  // namespace fsdp::data
