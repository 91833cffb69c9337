// Elements as text, one after the other. Contract: tools/report/svg_canvas.h.
#include "tools/report/svg_canvas.h"

#include <cmath>

#include <fmt/format.h>

namespace fsdp::tools {
namespace {

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

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

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

double SvgCanvas::x_of(int64_t ns) const {
  return kLeft + (width_ - kLeft - kRight) * ms(ns - time_.begin) / ms(time_.end - time_.begin);
}

void SvgCanvas::text(double x, double y, const char* style, const std::string& what,
                     const char* anchor) {
  body_ +=
      fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x,
                  y, style, anchor, markup_text(what));
}

void SvgCanvas::rectangle(double x, double y, double width, double height, const std::string& look,
                          const std::string& tip) {
  body_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" {}", x,
                       y, width, height, look);
  body_ += tip.empty() ? "/>\n" : "><title>" + markup_text(tip) + "</title></rect>\n";
}

void SvgCanvas::axis(double top, double bottom) {
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

std::string SvgCanvas::svg(double height) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
             "viewBox=\"0 0 {0} {1}\">\n{2}<rect x=\"0.5\" y=\"0.5\" width=\"{3}\" "
             "height=\"{4}\" rx=\"6\" class=\"card\"/>\n",
             width_, height, kStyle, width_ - 1, height - 1) +
         body_ + "</svg>\n";
}

}  // namespace fsdp::tools
