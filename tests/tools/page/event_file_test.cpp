// Event files of TensorBoard byte by byte: checksums of RFC 3720, records put together by hand.
#include "tools/page/event_file.h"

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

std::string bytes_of(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return out;
}

TEST_CASE("event file: CRC-32C of RFC 3720, B.4") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  CHECK(crc32c(ascending) == 0x46dd794e);
}

TEST_CASE("event file: the message of a scalar, field by field") {
  // wall_time = 1: 09 and 1.5 as a double; step = 300: 10 and ac 02; summary: 2a, 12 bytes, of
  // which value: 0a, 10 bytes, of which tag: 0a, 3 bytes "a/b", and simple_value: 15 and 0.5 as a
  // float.
  CHECK(scalar_event(1.5, 300, "a/b", 0.5f) == bytes_of("09"
                                                        "000000000000f83f"
                                                        "10ac02"
                                                        "2a0c"
                                                        "0a0a"
                                                        "0a03612f62"
                                                        "150000003f"));
}

TEST_CASE("event file: a record is a length, a message, and a turned checksum of each") {
  // The first record of every file of TensorBoard, here of the time 0: wall_time, then
  // file_version.
  const std::string version = bytes_of("090000000000000000") + bytes_of("1a0d") + "brain.Event:2";
  const std::string record = event_record(version);
  REQUIRE(record.size() == 8 + 4 + version.size() + 4);
  CHECK(record.substr(0, 8) == bytes_of("1800000000000000"));
  const auto turned = [](std::string_view bytes) {
    const uint64_t crc = crc32c(bytes);
    const auto sum = static_cast<uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8);
    return std::string(reinterpret_cast<const char*>(&sum), 4);
  };
  // Every file that TensorBoard itself has written begins with this length and these four bytes.
  CHECK(record.substr(8, 4) == bytes_of("a37f4b22"));
  CHECK(record.substr(8, 4) == turned(record.substr(0, 8)));
  CHECK(record.substr(12, version.size()) == version);
  CHECK(record.substr(12 + version.size()) == turned(version));
}

TEST_CASE("event file: every point of the log, in the folder of the run") {
  const test::TempFolder folder;
  const RunLog log = {.curves = {{"loss", "", {{1, 2.5, 0.25}, {2, 1.5, 0.5}}, {}},
                                 {"validation_loss", "", {{2, 4, 0.5}}, {}},
                                 {"grad_norm", "", {}, {}}}};
  const std::filesystem::path file = write_event_file(folder / "board/run", log, 1000);
  CHECK(file == folder / "board/run/events.out.tfevents.0000001000.fsdp");
  const std::string version =
      std::string("\x09") + bytes_of("0000000000408f40") + bytes_of("1a0d") + "brain.Event:2";
  CHECK(read_file(file) == event_record(version) +
                               event_record(scalar_event(1000.25, 1, "train/loss", 2.5f)) +
                               event_record(scalar_event(1000.5, 2, "train/loss", 1.5f)) +
                               event_record(scalar_event(1000.5, 2, "validation/loss", 4)));
  CHECK(write_event_file(folder / "board/run", log, 1000) == file);  // replaced
}

}  // namespace
}  // namespace fsdp::tools
