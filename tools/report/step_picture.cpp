// From events to lanes of boxes, and from boxes to SVG.
#include "tools/report/step_picture.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/report/communication_overlap.h"
#include "tools/report/svg_canvas.h"

namespace fsdp::tools {
namespace {

// ---------------------------------------------------------------------------- From events to lanes

constexpr const char* kComputeLane = "compute";
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

// Parts of `interval` in none of `others`, which are merged.
std::vector<Interval> parts_outside(Interval interval, const std::vector<Interval>& others) {
  std::vector<Interval> out;
  for (const Interval& other : others) {
    if (other.end <= interval.begin) continue;
    if (other.begin >= interval.end) break;
    if (other.begin > interval.begin) out.push_back({interval.begin, other.begin});
    interval.begin = other.end;
  }
  if (interval.end > interval.begin) out.push_back(interval);
  return out;
}

// ---------------------------------------------------------------------------- From lanes to SVG

constexpr double kFirstLane = 78, kLane = 34, kLaneGap = 10;

// Of units, in the order in which they first do something; light enough for dark letters.
constexpr std::array kColours = {"#7fb7e6", "#f2b66d", "#86c99a", "#e79a9a",
                                 "#b9a5e0", "#d6c566", "#86cfcf", "#e3a3cd"};

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

class Drawing : public SvgCanvas {
 public:
  using SvgCanvas::SvgCanvas;

  void phase(const TraceEvent& event);
  void lane(const Lane& lane, double y, const std::vector<Interval>& compute);
  void legend(double y, const std::string& summary);
  void colour(const std::vector<TraceEvent>& events);

 private:
  // The parts of a collective during which nothing is computed.
  void hatch(Interval box, double y, const std::vector<Interval>& compute);
  // The longest form of the name that fits: "blocks.3", "3" or nothing.
  void label(const std::string& name, Interval time, double y, const char* style);

  std::map<std::string, std::string> colours_;  // by unit
};

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

int64_t length(const std::vector<Interval>& intervals) {
  int64_t sum = 0;
  for (const Interval& i : intervals) sum += i.end - i.begin;
  return sum;
}

}  // namespace

StepPicture draw_step(const std::vector<TraceEvent>& events, const PictureOptions& options) {
  const Step step = find_step(events, options.step);
  const std::vector<TraceEvent> shown = events_within(events, step.time);
  std::vector<Interval> compute, communication;
  for (const TraceEvent& e : shown) {
    if (is_collective(e)) {
      communication.push_back({e.begin_ns, e.end_ns});
    } else if (e.lane == kComputeLane) {
      compute.push_back({e.begin_ns, e.end_ns});
    }
  }
  compute = merged(std::move(compute));
  communication = merged(std::move(communication));
  StepPicture out = {.svg = "",
                     .step = step.number,
                     .step_ns = step.time.end - step.time.begin,
                     .compute_ns = length(compute),
                     .communication_ns = length(communication)};
  for (const Interval& i : communication) out.exposed_ns += length_outside(i, compute);

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
