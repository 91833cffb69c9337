// A file to which lines, or records, are appended while a run goes on: metrics.jsonl,
// monitor.rank<r>.csv, unit_hashes.bin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fsdp::tools {

// Each line is in the file when the call returns, also of a run that is killed then. A line that
// cannot be written, because the disk is full, is kept and written with the next one: a run is
// worth more than its log. Without a path it does nothing.
class LineLog {
 public:
  LineLog() = default;
  explicit LineLog(const std::filesystem::path& path);  // goes on with a file that is there
  bool is_empty() const { return written_ == 0 && pending_.empty(); }
  void append(const std::string& line) { append_record(line + "\n"); }
  void append_record(std::string_view bytes);  // as it is
  // "metrics.jsonl: 3 lines cannot be written; is the disk full?"; "": all are.
  std::string problem() const;
  void retry();  // to write what could not be written
  // Waits until the lines are on the disk; why they are not, else "".
  std::string sync();

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  uintmax_t written_ = 0;  // bytes of whole lines in the file
  std::string pending_;    // lines that are not
  int64_t lines_pending_ = 0;
};

}  // namespace fsdp::tools
