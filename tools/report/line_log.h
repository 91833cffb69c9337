// A file to which lines, or records, are appended while a run goes on: metrics.jsonl,
// monitor.rank<r>.csv, unit_hashes.bin.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace fsdp::tools {

// Each line is in the file when the call returns, also of a run that is killed then. A line that
// cannot be written, because the disk is full, is kept and written with the next one: a run is
// worth more than its log. A file that somebody removes is begun again. Without a path it does
// nothing.
class LineLog {
 public:
  // Of lines that wait for a disk; beyond it the oldest are lost, however long the disk is full.
  static constexpr size_t kMostPending = size_t{16} << 20;  // bytes

  LineLog() = default;
  explicit LineLog(const std::filesystem::path& path);  // goes on with a file that is there
  bool is_empty() const { return written_ == 0 && pending_.empty(); }
  void append(const std::string& line) { append_record(line + "\n"); }
  void append_record(std::string_view bytes);  // as it is
  // "metrics.jsonl: 3 lines cannot be written; is the disk full?"; "": all are, and the last sync()
  // has put them on the disk.
  std::string problem() const;
  void retry();  // to write what could not be written
  // Waits until the lines are on the disk; why they are not, else "".
  std::string sync();

 private:
  void reopen();

  std::filesystem::path path_;
  std::ofstream file_;
  uintmax_t written_ = 0;            // bytes of whole lines in the file
  std::deque<std::string> pending_;  // lines that are not
  size_t bytes_pending_ = 0;         // at most kMostPending, and a line
  int64_t lines_lost_ = 0;
  std::string sync_problem_;  // of the last sync()
};

}  // namespace fsdp::tools
