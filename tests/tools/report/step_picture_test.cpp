// A step drawn by hand becomes boxes of the right place, width, colour and name.
#include "tools/report/step_picture.h"

#include <regex>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kMs = 1'000'000;

TraceEvent event(const std::string& name, const std::string& unit, const std::string& lane,
                 int64_t begin_ms, int64_t end_ms) {
  return {name, unit, lane, 0, begin_ms * kMs, end_ms * kMs, 0, 0};
}

// step 2, from 100 to 200 ms, on a picture of 1136 pixels whose lanes are 1000 wide: 10 a ms.
//   compute  [root 100 110)[a 110 140)      [b 150 180)[all_reduce 180 190)[optimizer 190 200)
//   gather        [a 104 112) [b 120   155)                                            [a 195 230)
//   reduce                                      [a 170   185)
std::vector<TraceEvent> timeline() {
  return {event("step 1", "", "step", 0, 90),
          event("step 2", "", "step", 100, 200),
          event("forward", "", "step", 100, 150),
          event("matmul", "root", "compute", 100, 110),
          event("matmul", "blocks.a", "compute", 110, 125),
          event("gelu", "blocks.a", "compute", 125, 140),
          event("matmul", "blocks.b", "compute", 150, 180),
          event("all_reduce", "", "compute", 180, 190),
          event("adamw", "optimizer", "compute", 190, 200),
          event("all_gather", "blocks.a", "gather", 104, 112),
          event("all_gather", "blocks.b", "gather", 120, 155),
          event("all_gather", "blocks.a", "gather", 195, 230),
          event("reduce_scatter", "blocks.a", "reduce", 170, 185)};
}

struct Rectangle {
  double x, width;
  std::string look, tip;
};

// The boxes of the three lanes.
std::vector<Rectangle> boxes(const std::string& svg) {
  std::vector<Rectangle> out;
  const std::regex form(
      R"re(<rect x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)" height="34.0" ([^>]*)><title>([^<]*)<)re");
  for (std::sregex_iterator i(svg.begin(), svg.end(), form), end; i != end; ++i) {
    out.push_back({std::stod((*i)[1]), std::stod((*i)[2]), (*i)[3], (*i)[4]});
  }
  return out;
}

TEST_CASE("step picture: boxes lie where the unit ran, one colour for each unit") {
  const StepPicture picture = draw_step(timeline(), {.step = 2, .width = 1136});
  CAPTURE(picture.svg);
  const std::vector<Rectangle> drawn = boxes(picture.svg);
  REQUIRE(drawn.size() == 9);
  CHECK(drawn[1].tip == "blocks.a: 30 ms");  // two kernels in a row are one box
  CHECK(drawn[1].x == doctest::Approx(118 + 100));
  CHECK(drawn[1].width == doctest::Approx(300));
  CHECK(drawn[4].tip == "optimizer: 10 ms");
  CHECK(drawn[7].tip == "blocks.a: 5 ms");  // cut at the end of the step
  CHECK(drawn[8].tip == "blocks.a: 15 ms");
  CHECK(drawn[8].x == doctest::Approx(118 + 700));
  CHECK(drawn[1].look == drawn[5].look);
  CHECK(drawn[1].look == drawn[8].look);
  CHECK(drawn[1].look != drawn[2].look);
  CHECK(drawn[0].look == "class=\"box none\"");  // root communicates nothing here
  CHECK(drawn[4].look == "class=\"box none\"");
  for (const char* text : {">compute</text>", ">kernels</text>", ">gather</text>",
                           ">all_gather</text>", ">reduce</text>", ">reduce_scatter</text>",
                           ">forward</text>", ">step 2</text>", ">100 ms</text>", ">blocks.b<"}) {
    CHECK_MESSAGE(test::contains(picture.svg, text), text);
  }
}

TEST_CASE("step picture: how much communication is not hidden") {
  const StepPicture picture = draw_step(timeline(), {.width = 1136});
  CHECK(picture.step == 2);  // the last
  CHECK(picture.step_ns == 100 * kMs);
  CHECK(picture.compute_ns == 80 * kMs);
  CHECK(picture.communication_ns == (8 + 35 + 20 + 5) * kMs);
  CHECK(picture.exposed_ns == (10 + 10) * kMs);  // 140 to 150, 180 to 190
  // hatched: gather b, all_reduce, reduce a
  const std::string hatch = "fill=\"url(#exposed)\"/>";
  int hatched = 0;
  for (size_t at = 0; (at = picture.svg.find(hatch, at)) != std::string::npos; ++at) ++hatched;
  CHECK(hatched == 3 + 1);  // and the legend's
  CHECK(test::contains(picture.svg, "x=\"518.0\" y=\"148.0\" width=\"100.0\" height=\"8.0\""));
  CHECK(test::contains(picture.svg,
                       "Collectives ran for 68 ms of it, 48 ms beside computation; "
                       "20 ms were not hidden."));
}

TEST_CASE("step picture: names are escaped, and short boxes have none") {
  std::vector<TraceEvent> events = timeline();
  events.push_back(event("matmul", "<&\"\n", "compute", 140, 149));
  events.push_back(event("matmul", "x.y", "compute", 149, 150));
  const StepPicture picture = draw_step(events, {.width = 1136});
  CHECK(test::contains(picture.svg, ">&lt;&amp;&quot;?</text>"));
  CHECK(test::contains(picture.svg, ">blocks.a</text>"));
  CHECK(test::contains(picture.svg, ">a</text>"));   // at 195 ms: room for the end of the name
  CHECK(!test::contains(picture.svg, ">y</text>"));  // at 149 ms: no room
  CHECK(test::contains(picture.svg, "<title>x.y: 1 ms</title>"));
}

TEST_CASE("step picture: steps that are not there") {
  CHECK(test::error_of([] { draw_step({}, {}); }) == "the trace has no training step");
  CHECK(test::error_of([] { draw_step(timeline(), {.step = 3}); }) ==
        "step 3: not in the trace, which has steps 1 to 2");
}

TEST_CASE("step picture: text is text, and the axis has the milliseconds since the step began") {
  CHECK(markup_text("<a href=\"x\">&\n") == "&lt;a href=&quot;x&quot;&gt;&amp;?");
  const std::string svg =
      draw_step({event("step 1", "", "step", 50, 60), event("<b>", "", "step", 50, 60)},
                {.width = 1136, .title = "<i>"})
          .svg;
  CAPTURE(svg);
  CHECK(test::contains(svg, "&lt;i&gt;step 1<"));
  CHECK(test::contains(svg, "<title>&lt;b&gt;: 10 ms</title></rect>"));
  CHECK(test::contains(svg, "<line x1=\"118.0\" x2=\"118.0\" y1=\"72\""));
  CHECK(test::contains(svg, "class=\"small\" text-anchor=\"middle\">10 ms<"));
}

}  // namespace
}  // namespace fsdp::tools
