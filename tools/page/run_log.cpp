// Lines become points. Contract: tools/page/run_log.h.
#include "tools/page/run_log.h"

#include <algorithm>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/report/metrics_line.h"

namespace fsdp::tools {
namespace {

std::vector<Curve> no_points() {
  return {{"loss", "training loss"},
          {"validation_loss", "validation loss"},
          {"learning_rate", "learning rate"},
          {"grad_norm", "gradient norm"},
          {"tokens_per_s", "tokens/s"},
          {"loss_scale", "loss scale"},
          {"peak_memory_bytes", "peak memory of rank 0"}};
}

void add(Curve& curve, const MetricsLine& line, double wall_s) {
  if (line.text(curve.key).empty()) return;
  auto& points = curve.points;
  while (!points.empty() && points.back().step >= line.step()) points.pop_back();
  std::erase_if(curve.not_finite, [&](int64_t step) { return step >= line.step(); });
  const std::optional<double> value = line.number(curve.key);
  if (value)
    points.push_back({line.step(), *value, wall_s});
  else
    curve.not_finite.push_back(line.step());
}

}  // namespace

const Curve& RunLog::curve(std::string_view key) const {
  const auto found = std::find_if(curves.begin(), curves.end(),
                                  [&](const Curve& each) { return each.key == key; });
  FSDP_CHECK(found != curves.end(), "{}: no curve of this name", key);
  return *found;
}

RunLog read_run_log(const std::filesystem::path& file) {
  RunLog out = {.curves = no_points()};
  if (!is_there(file)) return out;
  const MappedFile map(file);
  double wall_s = 0;  // an evaluation has none of its own
  for_each_line(map.text(), [&](std::string_view, const std::optional<MetricsLine>& line) {
    out.foreign += !line;
    if (!line) return;
    wall_s = line->number("wall_time_s").value_or(wall_s);
    for (Curve& curve : out.curves) add(curve, *line, wall_s);
  });
  return out;
}

std::vector<CurvePoint> downsample(const std::vector<CurvePoint>& points, size_t most) {
  FSDP_CHECK(most >= 4, "downsample: expected at least 4 points, got {}", most);
  if (points.size() <= most) return points;
  const auto by_value = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
  const size_t inner = points.size() - 2, stretches = (most - 2) / 2;
  std::vector<CurvePoint> out = {points.front()};
  for (size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + 1 + static_cast<int64_t>(i * inner / stretches);
    const auto end = points.begin() + 1 + static_cast<int64_t>((i + 1) * inner / stretches);
    const auto [least, greatest] = std::minmax_element(begin, end, by_value);
    out.push_back(*std::min(least, greatest));
    if (least != greatest) out.push_back(*std::max(least, greatest));
  }
  out.push_back(points.back());
  return out;
}

}  // namespace fsdp::tools
