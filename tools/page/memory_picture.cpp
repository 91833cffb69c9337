// From samples to a moment for each pixel, and from moments to areas.
// Contract: tools/page/memory_picture.h.
#include "tools/page/memory_picture.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "tools/page/html.h"
#include "tools/report/svg_canvas.h"

namespace fsdp::tools {
namespace {

constexpr double kTop = 44, kHeight = 170;

// From the bottom: what is there all the time comes first. Others, in the order of their names,
// follow.
struct Category {
  const char* name;
  const char* colour;
};
constexpr std::array kKnown = {
    Category{"parameter shard", "#7fb7e6"}, Category{"optimizer state", "#b9a5e0"},
    Category{"gradient", "#86c99a"},        Category{"unsharded parameter", "#f2b66d"},
    Category{"communication", "#d6c566"},   Category{"transport staging", "#86cfcf"},
    Category{"key-value cache", "#e3a3cd"}, Category{"workspace", "#a8b1bb"},
    Category{"activation", "#e79a9a"}};

const char* colour_of(const std::string& name) {
  const auto known = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Category& each) { return each.name == name; });
  return known == kKnown.end() ? "#c4cad1" : known->colour;
}

std::string mib(int64_t bytes) { return mib_cell(static_cast<double>(bytes)).text + " MiB"; }

struct Moment {
  int64_t ns = 0;
  std::vector<int64_t> bytes;  // by category
  int64_t total = 0;
};

// Categories with bytes, from the bottom.
std::vector<std::string> categories_of(const StepTimeline& step) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& name) {
    const bool used = std::any_of(step.samples.begin(), step.samples.end(),
                                  [&](const auto& s) { return s.curve == name && s.value > 0; });
    if (used && std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  for (const Category& known : kKnown) add(known.name);
  std::map<std::string, bool> others;
  for (const TraceSample& s : step.samples) others[s.curve] = true;
  for (const auto& [name, there] : others) add(name);
  return out;
}

// Each sample is a moment; of the moments of one pixel the one with most bytes, and the last one,
// which goes on into the next pixels.
std::vector<Moment> moments_of(const StepTimeline& step, const std::vector<std::string>& categories,
                               int64_t pixel_ns) {
  std::vector<Moment> out;
  Moment now = {.ns = step.begin_ns, .bytes = std::vector<int64_t>(categories.size())};
  int64_t pixel = -1;
  for (const TraceSample& sample : step.samples) {
    const auto found = std::find(categories.begin(), categories.end(), sample.curve);
    if (found == categories.end()) continue;
    int64_t& bytes = now.bytes[static_cast<size_t>(found - categories.begin())];
    now.ns = std::max(now.ns, sample.sampled_ns);
    now.total += sample.value - bytes;
    bytes = sample.value;
    const int64_t here = (now.ns - step.begin_ns) / std::max<int64_t>(pixel_ns, 1);
    if (here != pixel) {
      pixel = here;
      out.insert(out.end(), 2, now);  // the most, the last
    }
    Moment& most = out[out.size() - 2];
    if (now.total > most.total) most = now;
    out.back() = now;
  }
  return out;
}

// The innermost one.
std::string phase_at(const StepTimeline& step, int64_t ns) {
  const TraceEvent* found = nullptr;
  for (const TraceEvent& e : step.events) {
    if (e.lane != "step" || e.name.starts_with("step ") || ns < e.begin_ns || ns >= e.end_ns)
      continue;
    if (!found || e.end_ns - e.begin_ns < found->end_ns - found->begin_ns) found = &e;
  }
  return found ? found->name : "";
}

// The area between two sums of categories, as steps: a value holds until the next moment.
std::string area(const SvgCanvas& canvas, const std::vector<Moment>& moments, int64_t end_ns,
                 size_t category, double pixels_per_byte) {
  std::vector<std::string> points, below;  // none twice
  const auto add = [&](std::vector<std::string>& line, int64_t ns, const Moment& moment,
                       size_t categories) {
    const int64_t sum = std::accumulate(
        moment.bytes.begin(), moment.bytes.begin() + static_cast<int64_t>(categories), int64_t{0});
    std::string point = fmt::format("{:.1f},{:.1f}", canvas.x_of(ns),
                                    kTop + kHeight - pixels_per_byte * static_cast<double>(sum));
    if (line.empty() || line.back() != point) line.push_back(std::move(point));
  };
  for (size_t i = 0; i < moments.size(); ++i) {
    const int64_t end = i + 1 < moments.size() ? moments[i + 1].ns : end_ns;
    for (const int64_t ns : {moments[i].ns, end}) {
      add(points, ns, moments[i], category + 1);
      add(below, ns, moments[i], category);
    }
  }
  points.insert(points.end(), below.rbegin(), below.rend());
  return fmt::format("{}", fmt::join(points, " "));
}

// The rows of colours begin at `y`. Returns the height of the picture.
double draw_legend(SvgCanvas& canvas, const std::vector<std::string>& categories,
                   const Moment& peak, double width, double y) {
  double x = 12;
  for (size_t i = 0; i < categories.size(); ++i) {
    const std::string text = fmt::format("{} {}", categories[i], mib(peak.bytes[i]));
    const double room = 30 + 6.2 * static_cast<double>(text.size());
    if (x + room > width) x = 12, y += 18;
    canvas.rectangle(x, y - 10, 12, 12, fmt::format("fill=\"{}\"", colour_of(categories[i])));
    canvas.text(x + 17, y, "small", text);
    x += room;
  }
  return y + 14;
}

void draw_areas(SvgCanvas& canvas, const std::vector<std::string>& categories,
                const std::vector<Moment>& moments, const Moment& peak, int64_t end_ns) {
  const double scale = kHeight / static_cast<double>(peak.total);
  for (size_t i = 0; i < categories.size(); ++i) {
    canvas.element(fmt::format("<polygon points=\"{}\" fill=\"{}\"><title>{}</title></polygon>\n",
                               area(canvas, moments, end_ns, i, scale), colour_of(categories[i]),
                               markup_text(categories[i])));
  }
  canvas.element(
      fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
                  "stroke=\"#c0281c\" stroke-dasharray=\"4 3\"/>\n",
                  canvas.x_of(peak.ns), kTop - 6, kTop + kHeight));
  canvas.text(12, kTop + 6, "small", mib(peak.total));
  canvas.text(12, kTop + kHeight, "small", "0");
}

}  // namespace

MemoryPicture draw_memory(const StepTimeline& step, int width) {
  const std::vector<std::string> categories = categories_of(step);
  FSDP_CHECK(!categories.empty() && step.end_ns > step.begin_ns,
             "the trace has no memory in step {}", step.step);
  const std::vector<Moment> moments =
      moments_of(step, categories, (step.end_ns - step.begin_ns) / width);
  const Moment& peak =
      *std::max_element(moments.begin(), moments.end(),
                        [](const auto& a, const auto& b) { return a.total < b.total; });
  MemoryPicture out = {.peak_bytes = peak.total,
                       .peak_ns = peak.ns - step.begin_ns,
                       .phase = phase_at(step, peak.ns)};
  SvgCanvas canvas({step.begin_ns, step.end_ns}, width);
  canvas.text(12, 26, "title",
              fmt::format("Memory in step {}: at most {}", step.step, mib(peak.total)));
  canvas.axis(kTop, kTop + kHeight);
  draw_areas(canvas, categories, moments, peak, step.end_ns);
  canvas.text(12, kTop + kHeight + 40, "small",
              fmt::format("Dashed: the most, {:.3g} ms after the step began{}{}. Then:",
                          static_cast<double>(out.peak_ns) / 1e6, out.phase.empty() ? "" : ", in ",
                          out.phase));
  out.svg = canvas.svg(draw_legend(canvas, categories, peak, width, kTop + kHeight + 60));
  return out;
}

}  // namespace fsdp::tools
