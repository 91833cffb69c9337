// Places on the axis of time, text that cannot end an element, the lines of the axis.
#include "tools/report/svg_canvas.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST_CASE("svg canvas: a moment has its place, from margin to margin") {
  const SvgCanvas canvas({100 * kMs, 200 * kMs}, 1136);  // 1000 pixels between the margins
  CHECK(canvas.x_of(100 * kMs) == SvgCanvas::kLeft);
  CHECK(canvas.x_of(150 * kMs) == SvgCanvas::kLeft + 500);
  CHECK(canvas.x_of(200 * kMs) == SvgCanvas::kLeft + 1000);
}

TEST_CASE("svg canvas: text is text") {
  CHECK(markup_text("<a href=\"x\">&\n") == "&lt;a href=&quot;x&quot;&gt;&amp;?");
  SvgCanvas canvas({0, kMs}, 960);
  canvas.text(1, 2, "small", "<b>");
  canvas.rectangle(1, 2, 3, 4, "class=\"box\"", "<i>");
  canvas.element("<g/>");
  const std::string svg = canvas.svg(50);
  CAPTURE(svg);
  CHECK(test::contains(
      svg, "<text x=\"1.0\" y=\"2.0\" class=\"small\" text-anchor=\"start\">&lt;b&gt;<"));
  CHECK(test::contains(svg, "height=\"4.0\" class=\"box\"><title>&lt;i&gt;</title></rect>"));
  CHECK(test::contains(svg, "<g/></svg>"));
  CHECK(test::contains(svg, "viewBox=\"0 0 960 50\""));
}

TEST_CASE("svg canvas: the axis has the milliseconds since the beginning") {
  SvgCanvas canvas({50 * kMs, 60 * kMs}, 1136);
  canvas.axis(10, 90);
  const std::string svg = canvas.svg(100);
  CAPTURE(svg);
  CHECK(
      test::contains(svg, "<line x1=\"118.0\" x2=\"118.0\" y1=\"10\" y2=\"90\" class=\"line\"/>"));
  CHECK(test::contains(svg, "y=\"104.0\" class=\"small\" text-anchor=\"middle\">10 ms<"));
}

}  // namespace
}  // namespace fsdp::tools
