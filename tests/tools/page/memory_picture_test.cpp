// A step with a short peak: the picture says when it was, how much, and of what.
#include "tools/page/memory_picture.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kMs = 1'000'000;

StepTimeline step_with(std::vector<TraceSample> samples) {
  return {.step = 3,
          .steps = 3,
          .begin_ns = 100 * kMs,
          .end_ns = 200 * kMs,
          .events = {{"step 3", "", "step", 0, 100 * kMs, 200 * kMs},
                     {"forward", "", "step", 0, 100 * kMs, 150 * kMs},
                     {"backward", "", "step", 0, 150 * kMs, 200 * kMs},
                     {"recompute", "", "step", 0, 155 * kMs, 165 * kMs}},
          .samples = std::move(samples)};
}

TEST_CASE("memory picture: the peak, its moment and what was there then") {
  // The activation is there for a thousandth of a pixel.
  const MemoryPicture picture = draw_memory(step_with({{"parameter shard", 1 << 20, 100 * kMs},
                                                       {"activation", 1 << 20, 120 * kMs},
                                                       {"activation", 3 << 20, 160 * kMs},
                                                       {"activation", 0, 160 * kMs + 100},
                                                       {"gradient", 1 << 20, 190 * kMs}}),
                                            1000);
  CHECK(picture.peak_bytes == 4 << 20);
  CHECK(picture.peak_ns == 60 * kMs);
  CHECK(picture.phase == "recompute");
  CAPTURE(picture.svg);
  CHECK(test::contains(picture.svg, ">Memory in step 3: at most 4.00 MiB<"));
  CHECK(test::contains(picture.svg, "60 ms after the step began, in recompute"));
  CHECK(test::contains(picture.svg, ">parameter shard 1.00 MiB<"));
  CHECK(test::contains(picture.svg, ">activation 3.00 MiB<"));
  CHECK(test::contains(picture.svg, ">gradient 0.00 MiB<"));
  // The area of the shard: the whole step (118 to 982), a quarter of 170 pixels above 214.
  CHECK(test::contains(picture.svg, "<polygon points=\"118.0,171.5 "));
  CHECK(test::contains(picture.svg, "982.0,171.5"));
}

TEST_CASE("memory picture: many samples take no more room than the pixels") {
  std::vector<TraceSample> samples;
  for (int64_t i = 0; i < 200'000; ++i)
    samples.push_back({"activation", i % 7 * 1000, 100 * kMs + i * 500});
  CHECK(draw_memory(step_with(samples), 960).svg.size() < 200'000);
}

TEST_CASE("memory picture: categories of another program, and a step without memory") {
  CHECK(test::contains(draw_memory(step_with({{"<b>", 512, 100 * kMs}}), 960).svg, "&lt;b&gt;"));
  CHECK(test::contains(test::error_of([] { draw_memory(step_with({}), 960); }),
                       "the trace has no memory in step 3"));
}

}  // namespace
}  // namespace fsdp::tools
