// How a run shows that it advances: one line that is rewritten on a terminal, a plain line now and
// then elsewhere. Rank 0 has one; the others have none.
#pragma once

#include <cstdint>
#include <string>

#include "tools/launch/run_output.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

// A descriptor of the terminal that shows stdout, or -1. Under mpirun every rank's stdout is a
// pseudo terminal, wherever mpirun's own goes; then the parent process is asked.
int output_terminal(bool under_launcher);
std::string format_progress(const StepMetrics& metrics);
std::string format_duration(double seconds);  // "0:07", "12:34", "3:04:05"

class Progress {
 public:
  // out null: silent. `terminal`: the one that shows `out`, or -1; not owned. `every`: steps
  // between plain lines.
  Progress(RunOutput* out, int terminal, int64_t every)
      : out_(out), terminal_(terminal), every_(every) {}
  ~Progress() { end_line(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepMetrics& metrics);
  // A line that stays.
  void note(const std::string& text);
  void end_line();  // leaves the live line as it is and goes on below it

 private:
  RunOutput* out_;
  int terminal_;
  int64_t every_;
  double shown_at_ = -1;  // seconds, of a steady clock
  bool line_open_ = false;
};

}  // namespace fsdp::tools
