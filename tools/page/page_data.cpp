// Contract: tools/page/page_data.h.
#include "tools/page/page_data.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/text/shell_word.h"
#include "tools/plan/plan_report.h"
#include "tools/report/communication_overlap.h"
#include "tools/report/source_commit.h"
#include "tools/report/step_picture.h"

namespace fsdp::tools {
namespace {

constexpr int kWidth = 960;       // of pictures, in pixels
constexpr size_t kMostRows = 60;  // of a table of units

// How many bytes of a part may still come, of all runs together. What is larger is left out.
struct PageRoom {
  size_t bytes = 400'000;

  bool take(const Json& part) {
    const size_t wanted = part.is_string() ? part.text().size() : part.dump().size();
    if (wanted > bytes) return false;
    bytes -= wanted;
    return true;
  }
  bool is_full() const { return bytes < 3000; }  // making a part takes its time
};

size_t points_of_curve(size_t runs) {
  constexpr size_t kLeast = 40, kMost = 1000, kCurves = 5;
  return std::clamp(kMostPoints / (kCurves * std::max<size_t>(runs, 1)), kLeast, kMost);
}

// Of a curve that is not drawn, the last one.
std::vector<CurvePoint> points_shown(const Curve& curve, size_t most) {
  const bool drawn = curve.key != "loss_scale" && curve.key != "peak_memory_bytes";
  if (drawn || curve.points.empty()) return downsample(curve.points, most);
  return {curve.points.back()};
}

Json curves_json(const RunLog& log, size_t most) {
  Json out = Json::object();
  for (const Curve& curve : log.curves) {
    Json steps = Json::array(), values = Json::array();
    for (const CurvePoint& point : points_shown(curve, most)) {
      steps.push_back(point.step);
      values.push_back(point.value);
    }
    out[curve.key] = {{"step", steps},
                      {"value", values},
                      {"name", curve.name},
                      {"points", curve.points.size()},
                      {"not_finite", curve.not_finite}};
  }
  return out;
}

Json collectives_json(const CommunicationOverlap& overlap) {
  Json out = Json::array();
  for (const auto& [unit, kinds] : overlap.by_unit) {
    for (const auto& [kind, t] : kinds)
      out.push_back(Json::array({unit, kind, t.calls, t.bytes, t.time_ns, t.exposed_ns}));
  }
  return out;
}

Json step_json(const RunView& run, PageRoom& memories, PageRoom& timelines) {
  const StepTimeline& step = run.step;
  if (step.step == 0) return {};
  Json phases = Json::array();
  for (const TraceEvent& e : step.events) {
    if (e.lane != "step" || e.name.starts_with("step ")) continue;
    phases.push_back(Json::array({e.name, e.begin_ns - step.begin_ns, e.end_ns - step.begin_ns}));
  }
  Json out = {{"number", step.step},
              {"steps", step.steps},
              {"ns", step.end_ns - step.begin_ns},
              {"phases", phases},
              {"draw", fmt::format("fsdp trace {} --svg FILE", shell_word(run.folder.string()))}};
  const bool full = memories.is_full();
  const Json memory = full ? Json() : memory_json(step);
  if (full || !memories.take(memory))
    out["memory_left_out"] = true;
  else
    out["memory"] = memory;
  if (!timelines.is_full()) {
    const Json svg = draw_step(step.events, {.width = kWidth, .title = "Rank 0, "}).svg;
    if (timelines.take(svg)) out["svg"] = svg;
  }
  Json rows = collectives_json(measure_overlap(step.events));
  const size_t shown = std::min(rows.size(), kMostRows);
  out["more_collectives"] = rows.size() - shown;
  rows = Json(Json::Array(rows.begin(), std::next(rows.begin(), static_cast<int64_t>(shown))));
  if (timelines.take(rows)) out["collectives"] = rows;
  return out;
}

Json run_json(const RunView& run, double now, size_t most_points) {
  Json out = {{"name", run.name},
              {"folder", run.folder.string()},
              {"state", run.state(now)},
              {"call", run.call()},
              {"ranks", run.ranks()},
              {"settings", run.settings},
              {"metrics", run.metrics},
              {"arguments", run.arguments},
              {"progress", run.progress},
              {"checkpoints", run.checkpoints},
              {"curves", curves_json(run.log, most_points)},
              {"foreign", run.log.foreign},
              {"no_step", run.no_step},
              {"no_units", run.no_units}};
  size_t end = 0;
  for (size_t rows = 0; rows < kMostRows && end != run.units.npos; ++rows)
    end = run.units.find('\n', end + 1);
  out["units"] = run.units.substr(0, end);
  out["more_units"] = end != run.units.npos;
  return out;
}

}  // namespace

std::string plan_svg(const Json& plan) {
  std::vector<PlanPoint> points;
  for (const Json& row : plan.at("scaling")) {
    const int gpus = row.at("gpus").get<int>();
    points.push_back(
        {gpus, row.at("tokens_per_s_gpu").get<double>() * gpus, row.at("settings").text()});
  }
  return scaling_plot(std::move(points));
}

Json memory_json(const StepTimeline& step) {
  std::map<std::string, size_t> places;  // of the categories with bytes
  for (const TraceSample& sample : step.samples) {
    if (sample.value > 0) places[sample.curve] = 0;
  }
  if (places.empty()) return {};
  Json categories = Json::array();
  for (auto& [name, place] : places) {
    place = categories.size();
    categories.push_back(name);
  }
  struct Moment {
    int64_t ns = 0;
    std::vector<int64_t> bytes;
    int64_t total = 0;
  };
  std::vector<Moment> moments;
  Moment now = {.bytes = std::vector<int64_t>(places.size())};
  const int64_t pixel_ns = std::max<int64_t>((step.end_ns - step.begin_ns) / kWidth, 1);
  int64_t pixel = -1;
  for (const TraceSample& sample : step.samples) {
    const auto found = places.find(sample.curve);
    if (found == places.end()) continue;
    int64_t& bytes = now.bytes[found->second];
    now.ns = std::max(now.ns, sample.sampled_ns - step.begin_ns);
    now.total += sample.value - bytes;
    bytes = sample.value;
    if (now.ns / pixel_ns != pixel) {
      pixel = now.ns / pixel_ns;
      moments.insert(moments.end(), 2, now);  // the most, the last
    }
    Moment& most = moments[moments.size() - 2];
    if (now.total > most.total) most = now;
    moments.back() = now;
  }
  Json out = Json::array();
  for (const Moment& moment : moments) {
    Json& row = (out.push_back(Json::array({moment.ns})), out.back());
    for (const int64_t bytes : moment.bytes) row.push_back(bytes);
  }
  return {{"categories", categories}, {"moments", out}};
}

Json page_data(const RunsReport& report, double now) {
  const size_t most = points_of_curve(report.runs.size());
  Json out = {{"made_by", "Made by fsdp report, " + source_commit() + "."},
              {"most_points", most},
              {"most_runs", kMostRuns},
              {"runs", Json::array()},
              {"sweeps", Json::array()},
              {"plans", Json::array()},
              {"left_out", Json::array()}};
  PageRoom memories, timelines;
  for (const RunView& run : report.runs) {
    Json each = run_json(run, now, most);
    each["step"] = step_json(run, memories, timelines);
    out["runs"].push_back(std::move(each));
  }
  for (const SweepView& sweep : report.sweeps) {
    out["sweeps"].push_back(
        {{"folder", sweep.folder.string()}, {"table", sweep.table}, {"settings", sweep.settings}});
  }
  for (const PlanView& plan : report.plans) {
    out["plans"].push_back(
        {{"file", plan.file.string()}, {"plan", plan.plan}, {"svg", plan_svg(plan.plan)}});
  }
  for (const auto& run : report.left_out) out["left_out"].push_back(run.string());
  return out;
}

std::string script_text(const Json& json) {
  std::string out;
  for (const char c : json.dump({.replace = true})) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace fsdp::tools
