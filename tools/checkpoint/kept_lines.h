// Which lines of metrics.jsonl a run that goes on keeps. Not here: where it goes on (resume.h), and
// the file itself (tools/report/metrics.h).
#pragma once

#include <cstdint>
#include <string>

#include "tools/report/metrics_line.h"

namespace fsdp::tools {

// The lines of metrics.jsonl up to a step, each step once, and those of evaluations up to
// `validated_at`; a line that was cut is left out. What comes later will be written again. The
// line of `step` itself stays where it is one of those `logged` in any case: one that it has
// because the run was stopped there is none of the run that goes on.
struct KeptLines {
  std::string text;
  int64_t foreign = 0;  // lines that no run has written, left out
};
KeptLines metrics_until(const std::string& text, int64_t step, int64_t validated_at,
                        const LoggedSteps& logged);

}  // namespace fsdp::tools
