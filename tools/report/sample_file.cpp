// Rows as text, and the file they go on with.
#include "tools/report/sample_file.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace fsdp::tools {

std::string csv_header(std::span<const char* const> columns) {
  std::string line = "time";
  for (const char* column : columns) line += fmt::format(",{}", column);
  return line;
}

std::string sample_row(std::string_view time, std::span<const std::optional<double>> sample,
                       int digits) {
  std::string line(time);
  for (const std::optional<double>& value : sample) {
    line += value ? fmt::format(",{:.{}f}", *value, digits) : ",";
  }
  return line;
}

std::string time_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = now.time_since_epoch() % std::chrono::seconds(1);
  std::tm parts = {};
  ::gmtime_r(&seconds, &parts);
  char text[64] = "";
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", text,
                     std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

int64_t open_rows(LineLog& log, const std::filesystem::path& path, const std::string& header) {
  log = LineLog(path);
  if (log.is_empty()) log.append(header);
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n') - 1;
}

}  // namespace fsdp::tools
