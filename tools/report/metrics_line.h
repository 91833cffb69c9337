// A line of metrics.jsonl that is read again: names and the texts of their numbers. A run of weeks
// has half a million lines, of which JSON values would take 3 s and 3 GB. Not here: writing them
// (metrics.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::tools {

// Refers to the text that it was read from.
class MetricsLine {
 public:
  // None for a line that no run has written whole: an object of numbers and nulls with a step and a
  // loss.
  static std::optional<MetricsLine> read(std::string_view line);

  int64_t step() const { return step_; }
  bool is_evaluation() const { return !text("validation_loss").empty(); }
  // As it stands there, "1.5" or "null"; "": the line, of an older program, has no such key.
  std::string_view text(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // none: null, or no such key

 private:
  std::vector<std::pair<std::string_view, std::string_view>> values_;
  int64_t step_ = 0;
};

// `use` gets each line of the text with its end, and what it says: none for a line that no run has
// written whole.
void for_each_line(
    std::string_view text,
    const std::function<void(std::string_view line, const std::optional<MetricsLine>& read)>& use);

// Which steps have a line. One more has the step that a signal stops a run at.
struct LoggedSteps {
  int64_t every = 1;  // train.log_every
  int64_t total = 0;  // train.steps
  // `finite`: its loss and its gradient norm are.
  bool has(int64_t step, bool finite) const {
    return step == 1 || step % every == 0 || step == total || !finite;
  }
};

// What the last lines of a metrics.jsonl say; a member is empty where none of them says it.
struct LogEnd {
  std::optional<double> step = {}, loss = {}, tokens_per_s = {}, wall_time_s = {};
  std::optional<double> true_tokens = {}, samples = {}, validation_loss = {};
  std::optional<double> steps_per_s = {};  // over these lines
};
LogEnd read_log_end(const std::filesystem::path& file);

// What a run that continues keeps of its metrics.jsonl: the lines up to a step, each step once, and
// the lines of evaluations up to `validated_at`; a line that was cut is left out. What comes later
// will be written again. The line of `step` itself stays only if it is `logged` in any case: a line
// that exists because the run was stopped there does not belong to the run that continues.
struct KeptLines {
  std::string text;
  int64_t foreign = 0;  // lines that no run has written, left out
};
KeptLines metrics_until(std::string_view text, int64_t step, int64_t validated_at,
                        const LoggedSteps& logged);

}  // namespace fsdp::tools
