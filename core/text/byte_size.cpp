// Reading and writing of sizes.
#include "core/text/byte_size.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
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
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  std::string unit(rest, end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const auto found = kUnits.find(unit);
  if (error != std::errc() || found == kUnits.end()) return std::nullopt;
  // Whole bytes, as many as a double counts one by one.
  constexpr double kMost = 9007199254740992.0;  // 2^53
  const double bytes = number * static_cast<double>(found->second);
  const bool whole = unit.empty() ? number == std::floor(number) : true;
  if (!whole || !(bytes >= 1 && bytes <= kMost)) return std::nullopt;
  return static_cast<int64_t>(bytes);
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
