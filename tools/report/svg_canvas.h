// What pictures of one stretch of time (SVG) have in common: the axis below, a place for each
// moment, text, boxes, and colours for light and dark. Not here: what is drawn (step_picture.h,
// tools/page/memory_picture.h).
#pragma once

#include <cstdint>
#include <string>

#include "tools/report/communication_overlap.h"

namespace fsdp::tools {

// As text of XML and HTML, within attributes too. Neither has control characters: "?".
std::string markup_text(const std::string& text);

class SvgCanvas {
 public:
  static constexpr double kLeft = 118, kRight = 18;  // of the stretch, in pixels

  SvgCanvas(Interval time, int width) : time_(time), width_(width) {}

  double x_of(int64_t ns) const;
  // `style`: a class of kStyle, or "".
  void text(double x, double y, const char* style, const std::string& what,
            const char* anchor = "start");
  // `look`: attributes. `tip`: what a pointer on it shows.
  void rectangle(double x, double y, double width, double height, const std::string& look,
                 const std::string& tip = "");
  void element(const std::string& svg) { body_ += svg; }
  // Lines from `top` to `bottom`, with the milliseconds since the beginning below.
  void axis(double top, double bottom);
  std::string svg(double height) const;

 private:
  Interval time_;
  double width_;
  std::string body_;
};

}  // namespace fsdp::tools
