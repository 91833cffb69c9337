// Reads the lines of metrics.jsonl, and leaves out what will be written again.
#include "tools/checkpoint/kept_lines.h"

#include <string_view>

namespace fsdp::tools {

KeptLines metrics_until(const std::string& text, int64_t step, int64_t validated_at,
                        const LoggedSteps& logged) {
  KeptLines kept;
  int64_t last_step = -1, last_evaluation = -1;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // cut
    const std::string_view line = std::string_view(text).substr(begin, end + 1 - begin);
    begin = end + 1;
    const auto read = MetricsLine::read(line.substr(0, line.size() - 1));
    if (!read) {  // cut by the end of the machine, or of somebody else
      ++kept.foreign;
      continue;
    }
    const bool evaluation = read->is_evaluation();
    int64_t& last = evaluation ? last_evaluation : last_step;
    const int64_t until = evaluation ? validated_at : step;
    if (read->step() > until || read->step() <= last) continue;
    const bool finite = read->text("loss") != "null" && read->text("grad_norm") != "null";
    if (!evaluation && read->step() == step && !logged.has(step, finite)) continue;
    last = read->step();
    kept.text += line;
  }
  return kept;
}

}  // namespace fsdp::tools
