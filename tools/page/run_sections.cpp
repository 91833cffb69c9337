// Contract: tools/page/run_sections.h.
#include "tools/page/run_sections.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/text/byte_size.h"
#include "core/text/shell_word.h"
#include "tools/page/html.h"
#include "tools/page/memory_picture.h"
#include "tools/report/communication_overlap.h"
#include "tools/report/finished_run.h"
#include "tools/report/step_picture.h"

namespace fsdp::tools {
namespace {

constexpr int kWidth = 960;       // of pictures, in pixels
constexpr size_t kMostRows = 60;  // of a table of units

// What `draw` returns, or a note where the page has no room for it.
template <typename Draw>
std::string figure(PageRoom& room, const std::string& otherwise, Draw&& draw) {
  constexpr size_t kSmallest = 3000;
  if (room.bytes < kSmallest) return note(otherwise);  // drawing takes its time
  const std::string svg = draw().svg;
  return room.take(svg.size()) ? "<figure class=\"wide\">" + svg + "</figure>\n" : note(otherwise);
}

struct Place {
  const char* name;
  const char* predicted;
  const char* measured;
};
constexpr std::array kPlaces = {Place{"device", "predicted", "ledger"},
                                Place{"host", "predicted_on_host", "ledger_on_host"},
                                Place{"file", "predicted_in_file", "ledger_in_file"}};

// Two columns for each place that holds anything; a row for each category that does.
std::string peaks_table(const Json& memory) {
  std::vector<std::string> head = {"peak of rank 0 (MiB)"}, paths;
  std::vector<std::string> categories;
  for (const auto& [name, predicted, measured] : kPlaces) {
    const double most = number_at(memory, fmt::format("/{}/total", predicted)).value_or(0) +
                        number_at(memory, fmt::format("/{}/total", measured)).value_or(0);
    if (most == 0) continue;
    for (const char* key : {predicted, measured}) {
      head.push_back(fmt::format("{}, {}", name, key == predicted ? "predicted" : "measured"));
      paths.push_back(fmt::format("/{}/", key));
    }
    if (const Json* all = memory.follow(fmt::format("/{}/by_category", measured));
        all && all->is_object() && categories.empty()) {
      for (const auto& [category, bytes] : all->items()) categories.push_back(category);
    }
  }
  HtmlTable table(head);
  const auto add = [&](const std::string& name, const std::string& end) {
    std::vector<Cell> cells;
    double sum = 0;
    for (const std::string& path : paths) {
      const auto bytes = number_at(memory, path + end);
      cells.push_back(mib_cell(bytes));
      sum += bytes.value_or(0);
    }
    if (sum > 0) table.row(name, cells);
  };
  for (const std::string& category : categories) add(category, "by_category/" + category);
  add("all at once", "total");
  return table.html();
}

Cell ms_cell(int64_t ns) { return number_cell(static_cast<double>(ns) / 1e6, 3); }

std::string step_table(const CommunicationOverlap& overlap) {
  HtmlTable table({"unit, collective", "calls", "MiB", "ms", "not hidden (ms)"});
  size_t rows = 0;
  for (const auto& [unit, kinds] : overlap.by_unit) {
    for (const auto& [kind, time] : kinds) {
      if (++rows > kMostRows) continue;
      table.row(fmt::format("{}: {}", unit.empty() ? "no unit" : unit, kind),
                {number_cell(static_cast<double>(time.calls), 0),
                 mib_cell(static_cast<double>(time.bytes)), ms_cell(time.time_ns),
                 ms_cell(time.exposed_ns)});
    }
  }
  if (table.empty()) return note("The step has no collectives.");
  return table.html() + (rows > kMostRows
                             ? note(fmt::format("{} more rows are left out.", rows - kMostRows))
                             : "");
}

}  // namespace

bool PageRoom::take(size_t wanted) {
  if (wanted > bytes) return false;
  bytes -= wanted;
  return true;
}

std::string memory_html(const RunView& run, PageRoom& room) {
  std::string out;
  if (run.step.step == 0) {
    out = note("No curve over a step: " + run.no_step + ".");
  } else if (std::none_of(run.step.samples.begin(), run.step.samples.end(),
                          [](const TraceSample& sample) { return sample.value > 0; })) {
    out = note("No curve over a step: the trace has no memory.");
  } else {
    out = figure(room, "The curve over a step is left out: the page would become too large.",
                 [&] { return draw_memory(run.step, kWidth); });
  }
  const Json* memory = run.metrics.is_object() ? run.metrics.find("memory") : nullptr;
  if (memory) return out + peaks_table(*memory);
  const auto& peaks = run.log.curve("peak_memory_bytes").points;
  return out + note(peaks.empty()
                        ? "No peaks: the run has logged no step."
                        : fmt::format("Peaks by category are known when the run has ended. So "
                                      "far rank 0 held {} at the most.",
                                      byte_size_text(static_cast<size_t>(peaks.back().value))));
}

std::string timeline_html(const RunView& run, PageRoom& room) {
  if (run.step.step == 0) return note("No timeline: " + run.no_step + ".");
  std::string out = figure(
      room,
      fmt::format("The picture of step {} is left out: the page would become too large. fsdp trace "
                  "{} --svg FILE draws it.",
                  run.step.step, shell_word(run.folder.string())),
      [&] { return draw_step(run.step.events, {.width = kWidth, .title = "Rank 0, "}); });
  if (run.step.steps > 1) {
    out += note(fmt::format("The last of {} steps; fsdp trace draws the others.", run.step.steps));
  }
  const std::string table = step_table(measure_overlap(run.step.events));
  return out +
         (room.take(table.size()) ? table : note("The step's collectives are left out, too."));
}

std::string units_html(const RunView& run) {
  if (run.units.empty()) return note("No units: " + run.no_units);
  size_t end = 0;
  for (size_t rows = 0; rows < kMostRows && end != run.units.npos; ++rows)
    end = run.units.find('\n', end + 1);
  return preformatted(run.units.substr(0, end)) +
         (end == run.units.npos ? "" : note("More rows are left out: fsdp explain prints them."));
}

std::string collectives_html(const RunView& run) {
  const Json* kinds = run.metrics.is_object() ? run.metrics.find("collectives") : nullptr;
  if (!kinds || !kinds->is_object())
    return note("No collectives: their sums are known when the run has ended.");
  const double steps = number_at(run.metrics, "/steps").value_or(0);
  const auto per_step = [&](std::optional<double> value, double scale) -> std::optional<double> {
    return value && steps > 0 ? std::optional(*value * scale / steps) : std::nullopt;
  };
  HtmlTable table({"rank 0, evaluations included", "calls", "MiB", "calls a step", "MiB a step",
                   "ms a step", "not hidden (ms a step)"});
  for (const auto& [kind, total] : kinds->items()) {
    const auto calls = number_at(total, "/calls"), bytes = number_at(total, "/bytes");
    const auto seconds = [&](const char* key) {
      return number_at(run.metrics, fmt::format("/communication/by_kind/{}/{}", kind, key));
    };
    table.row(kind, {number_cell(calls, 0), mib_cell(bytes), number_cell(per_step(calls, 1), 2),
                     number_cell(per_step(bytes, 1.0 / (1 << 20)), 3),
                     number_cell(per_step(seconds("time_s"), 1000), 3),
                     number_cell(per_step(seconds("exposed_s"), 1000), 3)});
  }
  return table.empty() ? note("The run had no collectives.") : table.html();
}

}  // namespace fsdp::tools
