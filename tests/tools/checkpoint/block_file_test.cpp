// Checksums by block: a reader compares what it reads, and no more.
#include "tools/checkpoint/block_file.h"

#include <doctest/doctest.h>

#include "core/io/checksum.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// Three blocks and a bit, with no two blocks alike.
std::string some_bytes() {
  std::string bytes(3 * kBlockBytes + 12345, '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * i / 7 + i / kBlockBytes);
  return bytes;
}

BlockChecksums write(const std::filesystem::path& file, const std::string& bytes) {
  BlockWriter writer(file);
  for (size_t at = 0, step = 1; at < bytes.size(); at += step, step = step * 3 + 1) {
    writer.write(std::string_view(bytes).substr(at, step));
  }
  return writer.commit();
}

TEST_CASE("block file: every block has its checksum, and any range can be read") {
  const test::TempFolder folder;
  const std::string bytes = some_bytes();
  const BlockChecksums sums = write(folder / "x", bytes);
  CHECK(sums.name == "x");
  CHECK(sums.bytes == bytes.size());
  REQUIRE(sums.blocks.size() == 4);
  CHECK(sums.blocks[1] == checksum(bytes.substr(kBlockBytes, kBlockBytes)));
  CHECK(sums.blocks[3] == checksum(bytes.substr(3 * kBlockBytes)));
  CHECK(read_file(folder / "x") == bytes);
  for (const bool verify : {true, false}) {
    BlockReader reader(folder.path(), sums, verify);
    std::string part(kBlockBytes + 10, '\0');
    reader.read(kBlockBytes - 5, part.data(), part.size());
    CHECK(part == bytes.substr(kBlockBytes - 5, part.size()));
    CHECK(reader.bytes_read() == (verify ? 3 * kBlockBytes : part.size()));
    reader.read(bytes.size() - 1, part.data(), 1);
    CHECK(part[0] == bytes.back());
    CHECK(test::contains(test::error_of([&] { reader.read(bytes.size() - 1, part.data(), 2); }),
                         " of "));
  }
}

TEST_CASE("block file: damage is found where it is read, and only there") {
  const test::TempFolder folder;
  std::string bytes = some_bytes();
  const BlockChecksums sums = write(folder / "x", bytes);
  bytes[2 * kBlockBytes + 3] ^= 1;
  folder.write("x", bytes);
  BlockReader reader(folder.path(), sums, true);
  char byte = 0;
  reader.read(0, &byte, 1);
  reader.read(3 * kBlockBytes, &byte, 1);
  const std::string error = test::error_of([&] { reader.read(2 * kBlockBytes + 9, &byte, 1); });
  CHECK(error == (folder / "x").string() +
                     ": damaged: bytes 131072 to 196608 do not have the checksum that they were "
                     "written with");
  CHECK_THROWS_AS(reader.read(2 * kBlockBytes, &byte, 1), Error);  // nor the second time
  CHECK_THROWS_AS(reader.verify_all(), Error);
  folder.write("x", bytes.substr(1));
  CHECK(test::contains(test::error_of([&] { BlockReader(folder.path(), sums, false); }),
                       "expected 208953 bytes, got 208952"));
}

TEST_CASE("block file: large writes, which are not copied, are those of small ones") {
  const test::TempFolder folder;
  std::string bytes;
  while (bytes.size() < 40 * kBlockBytes) bytes += some_bytes();
  BlockWriter writer(folder / "whole");
  writer.write(std::string_view(bytes).substr(0, 77));
  writer.write(std::string_view(bytes).substr(77));
  const BlockChecksums whole = writer.commit();
  CHECK(whole.blocks == write(folder / "parts", bytes).blocks);
  CHECK(read_file(folder / "whole") == bytes);
  BlockReader(folder.path(), whole, true).verify_all();
}

TEST_CASE("block file: an empty file has no block") {
  const test::TempFolder folder;
  const BlockChecksums sums = BlockWriter(folder / "x").commit();
  CHECK(sums == BlockChecksums{.name = "x"});
  BlockReader(folder.path(), sums, true).verify_all();
}

}  // namespace
}  // namespace fsdp::tools
