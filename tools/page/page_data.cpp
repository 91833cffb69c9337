// Contract: tools/page/page_data.h.
#include "tools/page/page_data.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text/numbers.h"
#include "tools/page/html.h"

namespace fsdp::tools {
namespace {

struct Plot {
  const char* title;
  const char* first;   // key of its curve
  const char* second;  // of another one; null: none

  std::vector<std::string> keys() const {
    return second ? std::vector<std::string>{first, second} : std::vector<std::string>{first};
  }
};
constexpr std::array kPlots = {
    Plot{"loss", "loss", "validation_loss"}, Plot{"learning rate", "learning_rate", nullptr},
    Plot{"gradient norm", "grad_norm", nullptr}, Plot{"tokens/s", "tokens_per_s", nullptr}};

size_t points_of_curve(size_t runs) {
  constexpr size_t kLeast = 40, kMost = 1000, kCurves = 5;
  return std::clamp(kMostPoints / (kCurves * std::max<size_t>(runs, 1)), kLeast, kMost);
}

Json curve_json(const std::vector<CurvePoint>& points) {
  Json steps = Json::array(), values = Json::array();
  for (const CurvePoint& point : points) {
    steps.push_back(point.step);
    values.push_back(point.value);
  }
  return {{"step", steps}, {"value", values}};
}

Json curves_json(const RunView& run, size_t most) {
  Json out = Json::object();
  for (const Plot& plot : kPlots) {
    for (const std::string& key : plot.keys())
      out[key] = curve_json(downsample(run.log.curve(key).points, most));
  }
  return out;
}

Json scaling_json(const SweepView& sweep) {
  Json out = Json::array();
  for (const ScalingSeries& series : sweep.scaling) {
    Json ranks = Json::array(), speed_up = Json::array(), cases = Json::array();
    for (const ScalingPoint& point : series.points) {
      ranks.push_back(point.ranks);
      speed_up.push_back(point.speed_up);
      cases.push_back(point.name);
    }
    out.push_back(
        {{"name", series.name}, {"ranks", ranks}, {"speed_up", speed_up}, {"cases", cases}});
  }
  return out;
}

std::string note_on_gaps(const std::string& name, const Curve& curve) {
  const auto& steps = curve.not_finite;
  if (steps.empty()) return "";
  const size_t shown = std::min<size_t>(5, steps.size());
  return note(fmt::format(
      "{} is not finite at step {}{}.", name,
      fmt::join(steps.begin(), steps.begin() + static_cast<int64_t>(shown), ", "),
      steps.size() == shown ? "" : fmt::format(" and at {} more", steps.size() - shown)));
}

std::string note_on_foreign_lines(const RunView& run) {
  if (run.log.foreign == 0) return "";
  return note(fmt::format("{}: lines of metrics.jsonl that no run has written whole: {}", run.name,
                          run.log.foreign));
}

// How a curve ran, for who has no script.
void add_ends(HtmlTable& table, const std::string& name, const Curve& curve) {
  if (curve.points.empty()) return;
  const auto by_value = [](const auto& a, const auto& b) { return a.value < b.value; };
  const auto [least, most] =
      std::minmax_element(curve.points.begin(), curve.points.end(), by_value);
  const auto cell = [](const CurvePoint& point) {
    return Cell{.text = fmt::format("{:.5g}", point.value),
                .tip = format_value(point.value),
                .beside = fmt::format("step {}", point.step),
                .is_number = true};
  };
  table.row(name,
            {number_cell(static_cast<double>(curve.points.size()), 0), cell(curve.points.front()),
             cell(curve.points.back()), cell(*least), cell(*most)});
}

}  // namespace

Json page_data(const std::vector<RunView>& runs, const std::vector<SweepView>& sweeps) {
  Json out = {{"runs", Json::array()}, {"sweeps", Json::array()}};
  for (const RunView& run : runs) {
    out["runs"].push_back({{"name", run.name},
                           {"folder", run.folder.string()},
                           {"metrics", run.metrics},
                           {"curves", curves_json(run, points_of_curve(runs.size()))}});
  }
  for (const SweepView& sweep : sweeps) {
    out["sweeps"].push_back({{"folder", sweep.folder.string()},
                             {"table", sweep.table},
                             {"scaling", scaling_json(sweep)},
                             {"ideal", sweep.ideal}});
  }
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

std::string curves_html(const std::vector<RunView>& runs) {
  const size_t most = points_of_curve(runs.size());
  std::string plots, notes;
  HtmlTable ends({"", "points", "first", "last", "lowest", "highest"});
  bool fewer = false;
  for (const Plot& plot : kPlots) {
    bool any = false;
    for (const std::string& key : plot.keys()) {
      for (const RunView& run : runs) {
        const Curve& curve = run.log.curve(key);
        const std::string name = runs.size() == 1 ? curve.name : curve.name + ", " + run.name;
        any = any || !curve.points.empty();
        fewer = fewer || curve.points.size() > most;
        add_ends(ends, name, curve);
        notes += note_on_gaps(name, curve);
      }
    }
    if (any)
      plots += fmt::format("<div class=\"plot\" data-keys=\"{}\"><h3>{}</h3></div>\n",
                           fmt::join(plot.keys(), " "), plot.title);
  }
  for (const RunView& run : runs) notes += note_on_foreign_lines(run);
  if (plots.empty()) return note("No curves: nothing has been logged yet.") + notes;
  if (fewer)
    notes +=
        note(fmt::format("At most {} points of a curve are drawn, with the lowest and the "
                         "highest one of each stretch; fsdp report --tensorboard has all.",
                         most));
  return "<noscript><p class=\"note\">Curves need JavaScript. Their ends and extremes are in the "
         "table.</p></noscript>\n<div class=\"plots\">" +
         plots + "</div>\n" + notes + details("ends and extremes", ends.html(), runs.size() == 1);
}

}  // namespace fsdp::tools
