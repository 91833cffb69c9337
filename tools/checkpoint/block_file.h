// A file of a checkpoint and a checksum for each of its blocks: whoever reads a part of the file
// compares the blocks of that part, and reads no more. Next: manifest.h, which keeps the checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/file.h"
#include "core/io/patience.h"

namespace fsdp::tools {

// Small: a rank reads the rest of each block that one of its ranges cuts. 16 digits of a manifest
// for as many bytes are 0.03 %.
constexpr size_t kBlockBytes = size_t{1} << 16;

struct BlockChecksums {
  std::string name;  // of the file, in its folder
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // of kBlockBytes; the last one may be shorter
  bool operator==(const BlockChecksums&) const = default;
};

// Appears under its name when it is complete, as AtomicFile.
class BlockWriter {
 public:
  explicit BlockWriter(const std::filesystem::path& path);
  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  BlockChecksums commit();

 private:
  void write_pending();
  void write_blocks(std::string_view bytes);  // whole blocks, or the file's last

  AtomicFile file_;
  BlockChecksums sums_;
  std::string pending_;  // several blocks: fewer calls
};

// For one thread at a time.
class BlockReader {
 public:
  // Error when the file is not there or has another size. `verify`: whether blocks are compared
  // with their checksums. A read that fails for a moment is made again, of the file opened anew.
  BlockReader(const std::filesystem::path& folder, const BlockChecksums& sums, bool verify,
              const IoPatience& patience = {});

  // Error that names the file when a block of the range is damaged.
  void read(uint64_t offset, void* out, size_t bytes);
  // Compares all blocks.
  void verify_all();
  uint64_t bytes_read() const { return bytes_read_; }  // of the file, blocks that were cut included

 private:
  void load(size_t block);
  void read_bytes(uint64_t offset, void* out, size_t bytes);
  void open();

  BlockChecksums sums_;
  std::filesystem::path path_;
  bool verify_;
  IoPatience patience_;
  std::optional<ReadableFile> file_;  // none: a read of it has failed
  std::string buffer_;
  size_t loaded_ = SIZE_MAX;  // the block in the buffer
  uint64_t bytes_read_ = 0;
};

}  // namespace fsdp::tools
