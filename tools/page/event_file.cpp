// Bytes of records and of protocol buffers, both little-endian. Contract: tools/page/event_file.h.
#include "tools/page/event_file.h"

#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "core/io/file.h"

namespace fsdp::tools {
namespace {

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ (rest & 1 ? 0x82f63b78u : 0);
    table[byte] = rest;
  }
  return table;
}

template <typename T>
std::string little_endian(T value) {
  std::string out;
  for (size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

// A checksum of bytes that hold checksums themselves says little; so the format turns it.
std::string masked_crc(std::string_view bytes) {
  return little_endian<uint32_t>(std::rotr(crc32c(bytes), 15) + 0xa282ead8u);
}

// ---- protocol buffers: a tag, of the field's number and its wire type, and its value ----
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value & 0x7f | 0x80);
  return out + static_cast<char>(value);
}
std::string double_field(char number, double value) {
  return static_cast<char>(number << 3 | 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string float_field(char number, float value) {
  return static_cast<char>(number << 3 | 5) + little_endian(std::bit_cast<uint32_t>(value));
}
std::string integer_field(char number, int64_t value) {
  return static_cast<char>(number << 3) + varint(static_cast<uint64_t>(value));
}
std::string bytes_field(char number, const std::string& bytes) {
  return static_cast<char>(number << 3 | 2) + varint(bytes.size()) + bytes;
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5.
std::string version_event(double wall_time) {
  return double_field(1, wall_time) + bytes_field(3, "brain.Event:2");
}

std::string tag_of(const std::string& key) {
  return key == "validation_loss" ? "validation/loss" : "train/" + key;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc32c_table();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string event_record(std::string_view message) {
  const std::string length = little_endian<uint64_t>(message.size());
  return length + masked_crc(length) + std::string(message) + masked_crc(message);
}

// Summary: value = 1; of Summary.Value: tag = 1, simple_value = 2.
std::string scalar_event(double wall_time, int64_t step, const std::string& tag, float value) {
  const std::string scalar = bytes_field(1, tag) + float_field(2, value);
  return double_field(1, wall_time) + integer_field(2, step) +
         bytes_field(5, bytes_field(1, scalar));
}

std::filesystem::path write_event_file(const std::filesystem::path& folder, const RunLog& log,
                                       double started) {
  make_folders(folder);
  AtomicFile file(folder / fmt::format("events.out.tfevents.{:010.0f}.fsdp", started));
  file.write(event_record(version_event(started)));
  for (const Curve& curve : log.curves) {
    for (const CurvePoint& point : curve.points) {
      file.write(event_record(scalar_event(started + point.wall_s, point.step, tag_of(curve.key),
                                           static_cast<float>(point.value))));
    }
  }
  file.commit();
  return file.path();
}

}  // namespace fsdp::tools
