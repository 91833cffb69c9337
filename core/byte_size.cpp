// Reading and writing of sizes.
#include "core/byte_size.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include <fmt/format.h>

#include "core/error.h"

namespace fsdp {

std::optional<int64_t> read_byte_size(const std::string& text) {
  static const std::map<std::string, int64_t> kUnits = {{"", 1},
                                                        {"KB", 1000},
                                                        {"MB", 1'000'000},
                                                        {"GB", 1'000'000'000},
                                                        {"TB", 1'000'000'000'000},
                                                        {"KIB", 1 << 10},
                                                        {"MIB", 1 << 20},
                                                        {"GIB", 1 << 30},
                                                        {"TIB", int64_t{1} << 40}};
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  std::string unit(rest, end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto found = kUnits.find(unit);
  const bool good = error == std::errc() && number > 0 && found != kUnits.end() &&
                    !__builtin_mul_overflow(number, found->second, &number);
  return good ? std::optional(number) : std::nullopt;
}

int64_t parse_byte_size(const std::string& text, const std::string& what) {
  const std::optional<int64_t> bytes = read_byte_size(text);
  FSDP_CHECK(bytes, "{}: expected one like 5GB, 300MB or 2GiB, got \"{:.40}\"", what, text);
  return *bytes;
}

std::string byte_size_text(size_t bytes) {
  constexpr size_t kMiB = size_t{1} << 20, kGiB = size_t{1} << 30;
  if (bytes < kMiB) return fmt::format("{} bytes", bytes);
  if (bytes < kGiB) return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / kMiB);
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB);
}

}  // namespace fsdp
