// From events to lanes of boxes, and from boxes to SVG.
#include "tools/report/step_picture.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/report/communication_overlap.h"

namespace fsdp::tools {
namespace {

// ---------------------------------------------------------------------------- From events to lanes

constexpr const char* kStepLane = "step";  // core/trace_phases.h

// What one unit does without a pause in between: one kind of collective, or kernels.
struct Box {
  std::string unit;
  std::string collective;  // "": kernels
  Interval time;
};

struct Lane {
  std::string name;
  std::set<std::string> collectives;  // their kinds
  std::vector<Box> boxes;
};

struct Step {
  int64_t number;
  Interval time;
};

// Of "step 12", 12; 0: another phase.
int64_t number_of_step(const TraceEvent& event) {
  constexpr std::string_view kBefore = "step ";
  int64_t number = 0;
  if (event.lane != kStepLane || !event.name.starts_with(kBefore)) return 0;
  std::from_chars(event.name.data() + kBefore.size(), event.name.data() + event.name.size(),
                  number);
  return number;
}

std::vector<Step> steps_of(const std::vector<TraceEvent>& events) {
  std::vector<Step> steps;
  for (const TraceEvent& e : events) {
    const int64_t number = number_of_step(e);
    if (number > 0 && e.end_ns > e.begin_ns) steps.push_back({number, {e.begin_ns, e.end_ns}});
  }
  return steps;
}

Step find_step(const std::vector<TraceEvent>& events, int64_t number) {
  const std::vector<Step> steps = steps_of(events);
  FSDP_CHECK(!steps.empty(), "the trace has no training step");
  if (number == 0) return steps.back();
  for (const Step& step : steps) {
    if (step.number == number) return step;
  }
  fail("step {}: not in the trace, which has steps {} to {}", number, steps.front().number,
       steps.back().number);
}

// What lies in the step, cut at its ends.
std::vector<TraceEvent> events_within(const std::vector<TraceEvent>& events, Interval step) {
  std::vector<TraceEvent> out;
  for (TraceEvent e : events) {
    e.begin_ns = std::max(e.begin_ns, step.begin);
    e.end_ns = std::min(e.end_ns, step.end);
    if (e.end_ns > e.begin_ns) out.push_back(std::move(e));
  }
  std::stable_sort(out.begin(), out.end(), [](const TraceEvent& a, const TraceEvent& b) {
    return a.begin_ns < b.begin_ns;
  });
  return out;
}

// Compute first, the others in the order of their first event. `pause`: what is shorter between
// two events of a unit is not drawn.
std::vector<Lane> lanes_of(const std::vector<TraceEvent>& events, int64_t pause) {
  std::vector<Lane> lanes = {{.name = kComputeLane, .collectives = {}, .boxes = {}}};
  for (const TraceEvent& e : events) {
    if (e.lane == kStepLane) continue;
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](const Lane& each) { return each.name == e.lane; });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), {e.lane, {}, {}});
    const std::string collective = is_collective(e) ? e.name : "";
    if (!collective.empty() && e.lane != kComputeLane) lane->collectives.insert(collective);
    Box* last = lane->boxes.empty() ? nullptr : &lane->boxes.back();
    if (last && last->unit == e.scope && last->collective == collective &&
        e.begin_ns - last->time.end < pause) {
      last->time.end = std::max(last->time.end, e.end_ns);
    } else {
      lane->boxes.push_back({e.scope, collective, {e.begin_ns, e.end_ns}});
    }
  }
  return lanes;
}

// ---------------------------------------------------------------------------- From lanes to SVG

constexpr double kFirstLane = 78, kLane = 34, kLaneGap = 10;

// Of units, in the order in which they first do something; light enough for dark letters.
constexpr std::array kColours = {"#7fb7e6", "#f2b66d", "#86c99a", "#e79a9a",
                                 "#b9a5e0", "#d6c566", "#86cfcf", "#e3a3cd"};

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

constexpr const char* kStyle = R"svg(<style>
text { font-family: sans-serif; font-size: 12px; fill: #1f2328 }
.card { fill: #ffffff; stroke: #d0d7de }
.title { font-size: 14px; font-weight: bold }
.small { font-size: 11px; fill: #59636e }
.line { stroke: #d0d7de }
.phase { fill: #eaeef2 }
.none { fill: #c4cad1 }
.box { stroke: #ffffff; stroke-width: 0.5 }
.in { fill: #1b1f24; font-size: 11px }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.card { fill: #0d1117; stroke: #3d444d }
.small { fill: #9198a1 }
.line { stroke: #3d444d }
.phase { fill: #2a313c }
.box { stroke: #0d1117 }
.in { fill: #1b1f24 }
}
</style>
<defs><pattern id="exposed" width="6" height="6" patternUnits="userSpaceOnUse"
patternTransform="rotate(45)"><rect width="2" height="6" fill="#c0281c"/></pattern></defs>
)svg";

class Drawing {
 public:
  static constexpr double kLeft = 118, kRight = 18;  // of the step, in pixels

  Drawing(Interval time, int width) : time_(time), width_(width) {}

  // `style`: a class of kStyle, or "".
  void text(double x, double y, const char* style, const std::string& what,
            const char* anchor = "start");
  // Lines from `top` to `bottom`, with the milliseconds since the beginning below.
  void axis(double top, double bottom);
  void phase(const TraceEvent& event);
  void lane(const Lane& lane, double y, const std::vector<Interval>& compute);
  void legend(double y, const std::string& summary);
  void colour(const std::vector<TraceEvent>& events);
  std::string svg(double height) const;

 private:
  double x_of(int64_t ns) const;
  // `look`: attributes. `tip`: what a pointer on it shows.
  void rectangle(double x, double y, double width, double height, const std::string& look,
                 const std::string& tip = "");
  // The parts of a collective during which nothing is computed.
  void hatch(Interval box, double y, const std::vector<Interval>& compute);
  // The longest form of the name that fits: "blocks.3", "3" or nothing.
  void label(const std::string& name, Interval time, double y, const char* style);

  Interval time_;
  double width_;
  std::string body_;
  std::map<std::string, std::string> colours_;  // by unit
};

double Drawing::x_of(int64_t ns) const {
  return kLeft + (width_ - kLeft - kRight) * ms(ns - time_.begin) / ms(time_.end - time_.begin);
}

void Drawing::text(double x, double y, const char* style, const std::string& what,
                   const char* anchor) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x,
                  y, style, anchor, markup_text(what));
}

void Drawing::rectangle(double x, double y, double width, double height, const std::string& look,
                        const std::string& tip) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}", x,
                       y, width, height, look);
  body_ += tip.empty() ? "/>\n" : "><title>" + markup_text(tip) + "</title></rect>\n";
}

void Drawing::axis(double top, double bottom) {
  const double length_ms = ms(time_.end - time_.begin);
  const double decade = std::pow(10, std::floor(std::log10(length_ms / 8)));
  double between = decade;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (length_ms / between > 10) between = factor * decade;
  }
  for (int i = 0; i * between <= length_ms; ++i) {
    const double x = x_of(time_.begin + std::llround(i * between * 1e6));
    body_ +=
        fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" class=\"line\"/>\n",
                    x, top, bottom);
    const bool last = (i + 1) * between > length_ms;
    text(x, bottom + 14, "small", fmt::format("{:g}{}", i * between, last ? " ms" : ""), "middle");
  }
}

std::string Drawing::svg(double height) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "viewBox=\"0 0 {0} {1}\">\n{2}<rect x=\"0.5\" y=\"0.5\" width=\"{3}\" "
             "height=\"{4}\" rx=\"6\" class=\"card\"/>\n",
             width_, height, kStyle, width_ - 1, height - 1) +
         body_ + "</svg>\n";
}

// A unit is what communicates beside compute; "optimizer" is none.
void Drawing::colour(const std::vector<TraceEvent>& events) {
  std::set<std::string> units;
  for (const TraceEvent& e : events) {
    if (e.lane != kComputeLane && is_collective(e)) units.insert(e.scope);
  }
  units.erase("");
  for (const TraceEvent& e : events) {
    if (!units.erase(e.scope)) continue;
    colours_[e.scope] = fmt::format("fill=\"{}\"", kColours[colours_.size() % kColours.size()]);
  }
}

void Drawing::label(const std::string& name, Interval time, double y, const char* style) {
  constexpr double kLetter = 6.2;  // of 11 pixels, on average
  const double room = x_of(time.end) - x_of(time.begin) - 4;
  const double middle = (x_of(time.end) + x_of(time.begin)) / 2;
  for (const std::string& form : {name, name.substr(name.rfind('.') + 1)}) {
    if (form.empty() || kLetter * static_cast<double>(form.size()) > room) continue;
    text(middle, y, style, form, "middle");
    return;
  }
}

void Drawing::phase(const TraceEvent& event) {
  const Interval time = {event.begin_ns, event.end_ns};
  const double x = x_of(time.begin), y = kFirstLane - 28;
  rectangle(x, y, std::max(x_of(time.end) - x - 1, 1.0), 18, "class=\"phase\"",
            fmt::format("{}: {:.3g} ms", event.name, ms(time.end - time.begin)));
  label(event.name, time, y + 13, "small");
}

void Drawing::hatch(Interval box, double y, const std::vector<Interval>& compute) {
  for (const Interval& part : parts_outside(box, compute)) {
    const double x = x_of(part.begin), width = x_of(part.end) - x;
    if (width >= 1) rectangle(x, y, width, 8, "fill=\"url(#exposed)\"");
  }
}

void Drawing::lane(const Lane& lane, double y, const std::vector<Interval>& compute) {
  const bool kernels = lane.name == kComputeLane;
  text(12, y + 15, "", lane.name);
  text(12, y + 28, "small",
       kernels ? std::string("kernels") : fmt::format("{}", fmt::join(lane.collectives, ", ")));
  for (const Box& box : lane.boxes) {
    const auto colour = colours_.find(box.unit);
    const std::string look =
        colour == colours_.end() ? "class=\"box none\"" : "class=\"box\" " + colour->second;
    const double x = x_of(box.time.begin), width = std::max(x_of(box.time.end) - x, 1.0);
    const std::string name = box.unit.empty() ? "no unit" : box.unit;
    rectangle(x, y, width, kLane, look,
              fmt::format("{}: {:.3g} ms", name, ms(box.time.end - box.time.begin)));
    if (!box.collective.empty()) hatch(box.time, y + kLane - 8, compute);
    if (!kernels && box.collective.empty()) continue;  // a cast before a gather
    label(box.unit.empty() ? box.collective : box.unit, box.time, y + 16, "in");
  }
}

void Drawing::legend(double y, const std::string& summary) {
  double x = 12;
  for (size_t i = 0; i < 4; ++i, x += 13) {
    rectangle(x, y - 10, 12, 12, fmt::format("fill=\"{}\"", kColours[i]));
  }
  text(x + 4, y, "small", "a colour for each unit");
  rectangle(x + 142, y - 10, 24, 12, "class=\"none\"");
  text(x + 171, y, "small", "no unit: loss, optimizer");
  rectangle(x + 320, y - 10, 24, 12, "fill=\"url(#exposed)\"");
  text(x + 349, y, "small", "communication that no computation hides");
  text(12, y + 20, "small", summary);
}

std::string summary_of(const StepPicture& picture) {
  return fmt::format(
      "The step took {:.3g} ms. Collectives ran for {:.3g} ms of it, {:.3g} ms beside computation; "
      "{:.3g} ms were not hidden.",
      ms(picture.step_ns), ms(picture.communication_ns),
      ms(picture.communication_ns - picture.exposed_ns), ms(picture.exposed_ns));
}

}  // namespace

std::string markup_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;  // XML has no control characters
    }
  }
  return out;
}

StepPicture draw_step(const std::vector<TraceEvent>& events, const PictureOptions& options) {
  const Step step = find_step(events, options.step);
  const std::vector<TraceEvent> shown = events_within(events, step.time);
  const auto [compute, communication] = busy_times(shown);
  StepPicture out = {.svg = "",
                     .step = step.number,
                     .step_ns = step.time.end - step.time.begin,
                     .compute_ns = length(compute),
                     .communication_ns = length(communication)};
  for (const Interval& i : communication) out.exposed_ns += length(parts_outside(i, compute));

  Drawing drawing(step.time, options.width);
  drawing.colour(shown);
  drawing.text(12, 26, "title", fmt::format("{}step {}", options.title, step.number));
  const std::vector<Lane> lanes = lanes_of(shown, out.step_ns / options.width);
  const double bottom = kFirstLane + (kLane + kLaneGap) * static_cast<double>(lanes.size());
  drawing.axis(kFirstLane - 6, bottom);
  for (const TraceEvent& e : shown) {
    if (e.lane == kStepLane && number_of_step(e) == 0) drawing.phase(e);
  }
  double y = kFirstLane;
  for (const Lane& lane : lanes) {
    drawing.lane(lane, y, compute);
    y += kLane + kLaneGap;
  }
  drawing.legend(bottom + 42, summary_of(out));
  out.svg = drawing.svg(bottom + 76);
  return out;
}

}  // namespace fsdp::tools
