// Batches made ahead are those that are made when they are asked for; errors come where their batch
// is asked for; a run that stops early leaves no thread.
// Requirements: S3.8.
#include "tools/train/prefetch.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

BatchSource numbered(int64_t batches, std::function<void(int64_t)> also = nullptr) {
  return {.batches = batches, .get = [also](int64_t index) {
            if (also) also(index);
            return Batch{.rows = 1, .length = 1, .tokens = {static_cast<int32_t>(index)}};
          }};
}

TEST_CASE("prefetch: the same batches in the same order, from any first one") {
  for (const int64_t ahead : {0, 1, 2, 5}) {
    for (const int64_t first : {0, 7}) {
      std::vector<int64_t> made;  // by one thread
      {
        Prefetch prefetch(numbered(20, [&](int64_t index) { made.push_back(index); }), ahead);
        const BatchSource source = prefetch.source();
        CHECK(source.batches == 20);
        for (int64_t i = first; i < 20; ++i) {
          CHECK(source.get(i).tokens == std::vector<int32_t>{static_cast<int32_t>(i)});
        }
      }
      REQUIRE(made.size() == static_cast<size_t>(20 - first));
      for (size_t i = 0; i < made.size(); ++i) CHECK(made[i] == first + static_cast<int64_t>(i));
    }
  }
}

TEST_CASE("prefetch: no more are made than may wait, and none after the end") {
  std::atomic<int64_t> made = 0;
  {
    Prefetch prefetch(numbered(1000, [&](int64_t) { ++made; }), 3);
    for (int64_t i = 0; i < 4; ++i) prefetch.source().get(i);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK(made <= 4 + 3 + 1);  // one is being made while three wait
  }
  const int64_t at_end = made;
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(made == at_end);
}

TEST_CASE("prefetch: an error comes where its batch is asked for") {
  for (const int64_t ahead : {0, 4}) {
    Prefetch prefetch(numbered(10, [](int64_t index) { FSDP_CHECK(index != 3, "damaged"); }),
                      ahead);
    const BatchSource source = prefetch.source();
    for (int64_t i = 0; i < 3; ++i) CHECK(source.get(i).rows == 1);
    CHECK(test::error_of([&] { source.get(3); }) == "damaged");
  }
  Prefetch prefetch(numbered(10), 2);
  prefetch.source().get(4);
  CHECK(test::error_of([&] { prefetch.source().get(9); }) ==
        "[prefetch] batch: expected number 5, got 9");
}

// Sleeping takes no core: what is made beside a step that takes longer is not waited for.
TEST_CASE("prefetch: what steps hide is not waited for") {
  const auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  for (const int64_t ahead : {0, 2}) {
    Prefetch prefetch(numbered(12, [&](int64_t) { sleep(10); }), ahead);
    for (int64_t i = 0; i < 12; ++i) {
      prefetch.source().get(i);
      sleep(20);
    }
    const Prefetch::Times times = prefetch.times();
    CHECK(times.made_s >= 0.11);  // without the first one
    if (ahead == 0) CHECK(times.waited_s == times.made_s);
    if (ahead > 0) CHECK(times.waited_s < 0.5 * times.made_s);  // a busy machine
  }
}

}  // namespace
}  // namespace fsdp::tools
