// Contract: tools/checkpoint/block_file.h.
#include "tools/checkpoint/block_file.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/io/checksum.h"

namespace fsdp::tools {
namespace {

constexpr size_t kPendingBytes = 16 * kBlockBytes;

}  // namespace

BlockWriter::BlockWriter(const std::filesystem::path& path) : file_(path) {
  sums_.name = path.filename().string();
  pending_.reserve(kPendingBytes);
}

void BlockWriter::write(const void* data, size_t bytes) {
  std::string_view rest(static_cast<const char*>(data), bytes);
  while (!rest.empty()) {
    if (pending_.empty() && rest.size() >= kPendingBytes) {  // without a copy
      write_blocks(rest.substr(0, kPendingBytes));
      rest.remove_prefix(kPendingBytes);
      continue;
    }
    const size_t taken = std::min(kPendingBytes - pending_.size(), rest.size());
    pending_ += rest.substr(0, taken);
    rest.remove_prefix(taken);
    if (pending_.size() == kPendingBytes) write_pending();
  }
}

void BlockWriter::write_pending() {
  write_blocks(pending_);
  pending_.clear();
}

void BlockWriter::write_blocks(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    sums_.blocks.push_back(checksum(bytes.substr(at, kBlockBytes)));
  }
  sums_.bytes += bytes.size();
  file_.write(bytes);
}

BlockChecksums BlockWriter::commit() {
  if (!pending_.empty()) write_pending();
  file_.commit();
  return sums_;
}

BlockReader::BlockReader(const std::filesystem::path& folder, const BlockChecksums& sums,
                         bool verify, const IoPatience& patience)
    : sums_(sums), path_(folder / sums.name), verify_(verify), patience_(patience) {
  patiently(patience_, [this] { open(); });
}

void BlockReader::open() {
  file_.emplace(path_);
  FSDP_CHECK(file_->size() == sums_.bytes, "{}: damaged: expected {} bytes, got {}", path_.string(),
             sums_.bytes, file_->size());
}

void BlockReader::read_bytes(uint64_t offset, void* out, size_t bytes) {
  patiently(patience_, [&] {
    if (!file_) open();
    try {
      file_->read_at(offset, out, bytes);
    } catch (const SystemError&) {
      file_.reset();
      throw;
    }
  });
  bytes_read_ += bytes;
}

void BlockReader::load(size_t block) {
  if (loaded_ == block) return;
  const uint64_t begin = uint64_t{block} * kBlockBytes;
  loaded_ = SIZE_MAX;
  buffer_.resize(std::min<uint64_t>(kBlockBytes, sums_.bytes - begin));
  read_bytes(begin, buffer_.data(), buffer_.size());
  FSDP_CHECK(checksum(buffer_) == sums_.blocks[block],
             "{}: damaged: bytes {} to {} do not have the checksum that they were written with",
             path_.string(), begin, begin + buffer_.size());
  loaded_ = block;
}

void BlockReader::read(uint64_t offset, void* out, size_t bytes) {
  FSDP_CHECK(offset <= sums_.bytes && bytes <= sums_.bytes - offset, "{}: bytes {} to {} of {}",
             path_.string(), offset, offset + bytes, sums_.bytes);
  if (!verify_) return read_bytes(offset, out, bytes);
  auto* place = static_cast<char*>(out);
  while (bytes > 0) {
    load(offset / kBlockBytes);
    const size_t inside = offset % kBlockBytes;
    const size_t count = std::min(bytes, buffer_.size() - inside);
    std::memcpy(place, buffer_.data() + inside, count);
    place += count;
    offset += count;
    bytes -= count;
  }
}

void BlockReader::verify_all() {
  for (size_t block = 0; block < sums_.blocks.size(); ++block) load(block);
}

}  // namespace fsdp::tools
