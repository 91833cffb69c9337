// What a run prints to stdout. A reader that has stopped reading, such as an mpirun that was told
// to end, holds the run only until a signal has come: what finds no room then is kept, and dropped
// at the end. Not here: what is printed (tools/report/progress.h), lines on stderr (job_end.h).
#pragma once

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace fsdp::tools {

class RunOutput {
 public:
  explicit RunOutput(std::FILE* out);  // must outlive this
  ~RunOutput();                        // gives the reader a second for the rest
  RunOutput(const RunOutput&) = delete;
  RunOutput& operator=(const RunOutput&) = delete;

  // At once, and from any thread. An output that cannot be written is an error of `out` (ferror).
  void put(std::string_view text);

 private:
  void write_pending(std::chrono::milliseconds limit_after_signal);

  std::FILE* out_;
  int descriptor_;  // of the same pipe or terminal, whose calls do not wait; -1: it is a file
  std::mutex mutex_;
  std::string pending_;  // of one put(); after a signal what finds no room
};

}  // namespace fsdp::tools
