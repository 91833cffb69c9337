// Contract: tools/plan/scaling_plot.h.
#include "tools/plan/scaling_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/report/step_picture.h"

namespace fsdp::tools {
namespace {

constexpr double kWidth = 560, kHeight = 320, kLeft = 70, kRight = 20, kTop = 20, kBottom = 44;

constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#333}.axis{stroke:#999}.ideal{stroke:#999;"
    "stroke-dasharray:4 4;fill:none}.line{stroke:#1f6feb;fill:none;stroke-width:2}"
    ".point{fill:#1f6feb}@media (prefers-color-scheme:dark){text{fill:#ccc}}</style>";

// Positions for the logarithms between two values.
class Axis {
 public:
  Axis(double least, double most, double from, double to)
      : least_(std::log(least)), span_(std::log(most) - least_), from_(from), to_(to) {}
  double at(double value) const {
    return from_ + (to_ - from_) * (std::log(value) - least_) / span_;
  }

 private:
  double least_, span_, from_, to_;
};

std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (value >= 1e3) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.3g}", value);
}

std::vector<PlanPoint> one_each(std::vector<PlanPoint> points) {
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return std::pair(a.gpus, -a.tokens_per_s) < std::pair(b.gpus, -b.tokens_per_s);
  });
  const auto end = std::unique(points.begin(), points.end(),
                               [](const auto& a, const auto& b) { return a.gpus == b.gpus; });
  points.erase(end, points.end());
  return points;
}

}  // namespace

std::string scaling_plot(std::vector<PlanPoint> all) {
  const std::vector<PlanPoint> points = one_each(std::move(all));
  if (points.size() < 2) return "";
  const PlanPoint &first = points.front(), &last = points.back();
  const double ideal = first.tokens_per_s * last.gpus / first.gpus;
  double least = first.tokens_per_s, most = ideal;
  for (const PlanPoint& point : points) {
    least = std::min(least, point.tokens_per_s);
    most = std::max(most, point.tokens_per_s);
  }
  const Axis x(first.gpus, last.gpus, kLeft, kWidth - kRight);
  const Axis y(least / 1.1, most * 1.1, kHeight - kBottom, kTop);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" role=\"img\" aria-label=\"tokens per second over GPUs\">{2}",
      kWidth, kHeight, kStyle);
  out += fmt::format(
      "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{2:.1f}\" "
      "y2=\"{1:.1f}\"/><line class=\"ideal\" x1=\"{3:.1f}\" y1=\"{4:.1f}\" "
      "x2=\"{5:.1f}\" y2=\"{6:.1f}\"/>",
      kLeft, kHeight - kBottom, kWidth - kRight, x.at(first.gpus), y.at(first.tokens_per_s),
      x.at(last.gpus), y.at(ideal));
  std::string line;
  for (const PlanPoint& point : points) {
    const double px = x.at(point.gpus), py = y.at(point.tokens_per_s);
    const double efficiency = point.tokens_per_s * first.gpus / (first.tokens_per_s * point.gpus);
    line += fmt::format("{:.1f},{:.1f} ", px, py);
    out += fmt::format(
        "<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{}"
        "</title></circle>",
        px, py, markup_text(point.label));
    out += fmt::format(
        "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"middle\">{2}</text>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"{6}\">{4}, {5:.0f} %</text>",
        px, kHeight - kBottom + 16, point.gpus, py + 18, short_number(point.tokens_per_s),
        100 * efficiency, &point == &first ? "start" : "end");
  }
  return out + fmt::format(
                   "<polyline class=\"line\" points=\"{}\"/><text x=\"{:.0f}\" y=\"{:.0f}\" "
                   "text-anchor=\"middle\">GPUs</text><text x=\"8\" y=\"14\">tokens/s, and "
                   "what is left of the first job's tokens/s/GPU</text></svg>\n",
                   line, (kLeft + kWidth - kRight) / 2, kHeight - 8);
}

}  // namespace fsdp::tools
