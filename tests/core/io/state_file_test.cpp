// The file without a name: what is written is read again, whatever the place and the size, with a
// ring and without one; what the system refuses is said; nothing is left in the folder.
// Requirements: S2.16.
#include "core/io/state_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "core/io/file.h"
#include "core/rng.h"
#include "tests/support/temp_folder.h"
#include "tests/support/without_io_uring.h"

using namespace fsdp;
using test::contains;
using test::error_of;

namespace {

namespace fs = std::filesystem;

size_t files_in(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

std::string random_bytes(size_t count, uint32_t seed) {
  std::string out(count, '\0');
  for (size_t i = 0; i < count; i += 4) {
    const uint32_t word = philox4x32({static_cast<uint32_t>(i), seed, 0, 0}, {7, 7})[0];
    std::memcpy(out.data() + i, &word, std::min<size_t>(4, count - i));
  }
  return out;
}

// Blocks, parts of blocks and several requests, in memory that is aligned and that is not, against
// a text of the same contents.
void check_transfers(StateFile& file) {
  constexpr size_t kSize = (size_t{3} << 20) + 3 * kFileBlock;
  CHECK(file.reserve(kFileBlock) == 0);
  const uint64_t begin = file.reserve(kSize);
  CHECK(begin == kFileBlock);
  CHECK(file.size() == begin + kSize);
  std::string expected(kSize, '\0');
  auto* aligned = static_cast<char*>(std::aligned_alloc(kFileBlock, kSize + kFileBlock));
  struct Extent {
    size_t at, bytes;
  };
  uint32_t seed = 0;
  for (const Extent e : {Extent{0, kSize}, Extent{kFileBlock, kFileBlock}, Extent{5, 11},
                         Extent{4000, 200}, Extent{4096, 4097}, Extent{kSize - 1, 1},
                         Extent{777, (size_t{2} << 20) + 13}, Extent{size_t{1} << 20, 8192}}) {
    for (const size_t shift : {0, 3}) {
      CAPTURE(e.at);
      CAPTURE(e.bytes);
      CAPTURE(shift);
      const std::string bytes = random_bytes(e.bytes, ++seed);
      std::memcpy(aligned + shift, bytes.data(), e.bytes);
      file.write(begin + e.at, aligned + shift, e.bytes);
      expected.replace(e.at, e.bytes, bytes);
      std::memset(aligned, 0, kSize);
      file.read(begin + e.at, aligned + shift, e.bytes);
      CHECK(std::memcmp(aligned + shift, bytes.data(), e.bytes) == 0);
    }
    file.read(begin, aligned, kSize);
    CHECK(std::memcmp(aligned, expected.data(), kSize) == 0);
  }
  file.write_zeros(begin + 2 * kFileBlock, size_t{2} << 20);
  expected.replace(2 * kFileBlock, size_t{2} << 20, size_t{2} << 20, '\0');
  file.read(begin, aligned, kSize);
  CHECK(std::memcmp(aligned, expected.data(), kSize) == 0);
  // Fresh room is zeros.
  const uint64_t more = file.reserve(kFileBlock);
  file.read(more, aligned, kFileBlock);
  CHECK(std::string(aligned, kFileBlock) == std::string(kFileBlock, '\0'));
  std::free(aligned);
}

// The descriptor's path, under which the file can be opened once more.
fs::path path_of(const fs::path& folder) {
  for (const auto& item : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const fs::path target = fs::read_symlink(item.path(), gone);
    if (contains(target.string(), folder.string()) && contains(target.string(), "(deleted)")) {
      return item.path();
    }
  }
  fail("no file without a name in {}", folder.string());
}

}  // namespace

TEST_CASE("state file: reads what was written, and leaves nothing") {
  const test::TempFolder folder;
  {
    StateFile file(folder.path(), "rank 0");
    check_transfers(file);
    CHECK(files_in(folder.path()) == 0);  // whoever kills it now leaves nothing
    if (!file.has_ring()) CHECK(contains(file.notice(), "one after the other"));
    if (file.has_ring() && file.is_direct()) CHECK(file.notice() == "");
  }
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("state file: a filter refuses io_uring") {
  const test::TempFolder folder;
  test::without_io_uring([&] {
    StateFile file(folder.path(), "rank 0");
    CHECK(!file.has_ring());
    CHECK(contains(file.notice(), "one after the other"));
    check_transfers(file);
  });
}

TEST_CASE("state file: names that a killed process has left are removed, others stay") {
  const test::TempFolder folder;
  std::ofstream(folder.path() / ".fsdp-state-123-0") << "left";
  std::ofstream(folder.path() / "mine") << "stays";
  const StateFile file(folder.path(), "rank 0");
  CHECK(files_in(folder.path()) == 1);
  CHECK(read_file(folder.path() / "mine") == "stays");
}

TEST_CASE("state file: no folder, a file that somebody cut") {
  const test::TempFolder folder;
  const std::string missing = error_of([&] { StateFile(folder.path() / "none", "rank 0"); });
  CHECK(contains(missing, (folder.path() / "none").string() + ": expected a folder"));
  for (const bool ring : {true, false}) {
    const auto check = [&] {
      StateFile file(folder.path(), "rank 3");
      file.reserve(3 * kFileBlock);
      REQUIRE(::truncate(path_of(folder.path()).c_str(), kFileBlock) == 0);
      std::string out(2 * kFileBlock, '\0');
      CHECK(contains(error_of([&] { file.read(0, out.data(), out.size()); }),
                     "the state of rank 3 (12288 bytes without a name): expected to read"));
      CHECK(contains(error_of([&] { file.read(0, out.data(), out.size()); }),
                     "the file ends before them"));
    };
    ring ? check() : test::without_io_uring(check);
  }
}

TEST_CASE("state file: from several threads") {
  const test::TempFolder folder;
  StateFile file(folder.path(), "rank 0");
  constexpr size_t kPart = size_t{5} << 20;
  file.reserve(4 * kPart);
  std::vector<std::thread> threads;
  std::array<bool, 4> same = {};
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string bytes = random_bytes(kPart, static_cast<uint32_t>(i));
      std::string out(kPart, '\0');
      for (int round = 0; round < 3; ++round) {
        file.write(i * kPart, bytes.data(), kPart);
        file.read(i * kPart, out.data(), kPart);
      }
      same[i] = out == bytes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(same == std::array{true, true, true, true});
}
