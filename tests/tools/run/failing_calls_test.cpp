// One call of a file system fails once while a run is set up, goes on, saves or makes tokens: the
// start is right all the same, or ends with 1 and the next one is right. Never is it a person's
// mistake (78), which nothing starts again, and never do the weights differ. Every error at more
// places: failing_calls_slow_test.cpp; of the whole program: tests/e2e/failing_calls_slow.sh.
// Requirements: S2.10.
#include "tests/support/failing_calls.h"

#include <cerrno>

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;
using test::IoFault;

TEST_CASE("failing calls: a call that fails once ends no job for good, wherever it is") {
  const std::string expected = test::hash_without_faults();
  // A sample, another one in each place; the others: failing_calls_slow_test.cpp.
  const std::vector<int> errors = {EINTR, ENOTCONN, EIO, EPROTO, EBADF, EKEYEXPIRED, EUCLEAN};
  for (const bool goes_on : {false, true}) {
    int64_t at = 0;
    constexpr int64_t kEvery = 61;
    while (test::fail_call(goes_on,
                           {.fault = IoFault::kError,
                            .at = at * kEvery,
                            .error = errors[static_cast<size_t>(at) % errors.size()]},
                           expected)) {
      ++at;
    }
    CHECK(at > 2);
  }
}

TEST_CASE("failing calls: reads and writes that do half of what was asked for change nothing") {
  const std::string expected = test::hash_without_faults();
  int64_t at = 0;
  while (test::fail_call(false, {.fault = IoFault::kShort, .at = at}, expected)) at += 37;
  CHECK(at > 20);
}

// A first start has nothing that says that the names were right.
TEST_CASE(
    "failing calls: a name that is missing is a mistake at first, and never of a run that goes "
    "on") {
  for (const bool goes_on : {false, true}) {
    for (const int error : {ENOENT, EACCES, EROFS}) {
      const test::SmallJob job(goes_on);
      const fs::path text = job.folder() / "text.txt";
      CAPTURE(error);
      const test::IoFaults faults(text,
                                  {.fault = IoFault::kError, .from_then_on = true, .error = error});
      const test::Start end = job.begin(0);
      CAPTURE(end.error);
      CHECK(end.status == (goes_on ? status::kFailed : status::kMistake));
    }
  }
}

// The disk was right once, and may have room later.
TEST_CASE("failing calls: a full disk is a mistake at first, and never of a job started again") {
  for (const int restarts : {0, 1}) {
    const test::TempFolder folder;
    ResumeRequest request = {.from = "auto", .overrides = test::tiny_run(folder, folder / "run")};
    request.overrides.insert(
        request.overrides.end(),
        {"train.steps=1000000000", "checkpoint.every=1", "checkpoint.keep=1000000000"});
    const test::Start end = test::start(request, restarts);
    CHECK(test::contains(end.error, "are free; 1000000000 checkpoints"));
    CHECK(end.status == (restarts > 0 ? status::kFailed : status::kMistake));
  }
}

}  // namespace
}  // namespace fsdp::tools
