// Calls that fail for a moment are made again, others are not; how long the pauses are.
#include "core/io/patience.h"

#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include <doctest/doctest.h>

#include "core/machine_error.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using std::chrono::milliseconds;

// Fails so many times with the error; returns how often it was called in all.
int calls_until_done(const IoPatience& patience, int failures, int error) {
  int calls = 0;
  patiently(patience, [&] {
    if (calls++ < failures) throw SystemError("x: cannot read", error);
  });
  return calls;
}

TEST_CASE("patience: an error that may pass is tried again, so often") {
  const IoPatience three = {.retries = 3, .over = milliseconds(0)};
  for (const int error : {EIO, ESTALE, ETIMEDOUT}) CHECK(calls_until_done(three, 3, error) == 4);
  CHECK(calls_until_done(three, 0, EIO) == 1);
  CHECK(test::error_of([&] { calls_until_done(three, 4, EIO); }) == "x: cannot read (4 times)");
  CHECK(test::error_of([&] { calls_until_done({.retries = 0}, 1, EIO); }) ==
        "x: cannot read (1 times)");
}

TEST_CASE("patience: a missing file, a full disk and another Error are no matter of time") {
  const IoPatience three = {.retries = 3, .over = milliseconds(0)};
  for (const int error : {ENOENT, EACCES, ENOSPC}) {
    CHECK(test::error_of([&] { calls_until_done(three, 1, error); }) == "x: cannot read");
  }
  int calls = 0;
  CHECK_THROWS_AS(patiently(three,
                            [&] {
                              ++calls;
                              fail("damaged");
                            }),
                  Error);
  CHECK(calls == 1);
  CHECK(is_of_machine(ENOSPC));
  CHECK(is_of_machine(EIO));
  CHECK(!is_of_machine(ENOENT));
  CHECK(!is_of_machine(EACCES));
}

TEST_CASE("patience: a run that goes on looks again for a name that is missing") {
  const IoPatience goes_on = {.retries = 3, .over = milliseconds(0), .goes_on = true};
  CHECK(calls_until_done(goes_on, 3, ENOENT) == 4);
  CHECK(test::error_of([&] { calls_until_done(goes_on, 1, EACCES); }) == "x: cannot read");
  int calls = 0;
  patiently(goes_on, [&] {
    if (calls++ > 0) return;
    throw std::filesystem::filesystem_error("rename", std::make_error_code(std::errc::io_error));
  });
  CHECK(calls == 2);
}

TEST_CASE("an error with other words has the same cause") {
  const auto cause = [](const std::exception& error) {
    try {
      fail_like(error, "text.txt: " + std::string(error.what()));
    } catch (const Error& other) {
      CHECK(std::string(other.what()).starts_with("text.txt: "));
      return cause_of(other);
    }
  };
  CHECK(cause(SystemError("x", EIO)) == Cause::kMachine);
  CHECK(cause(SystemError("x", ENOENT)) == Cause::kName);
  CHECK(cause(MachineError("x")) == Cause::kMachine);
  CHECK(cause(Error("x")) == Cause::kPerson);
}

TEST_CASE("what a name, a place or a right cannot cause is the machine's") {
  for (const int error : {EINTR, ENOTCONN, ENODEV, ENXIO, EKEYEXPIRED, EUCLEAN, EPROTO, EBADF}) {
    CAPTURE(error);
    CHECK(cause_of(error) == Cause::kMachine);
  }
  for (const int error : {ENOENT, EACCES, EROFS, ENOTDIR, ENAMETOOLONG}) {
    CHECK(cause_of(error) == Cause::kName);
  }
}

TEST_CASE("errors of the machine and mistakes of a person are told apart by their types") {
  CHECK(is_of_machine(SystemError("the disk is full", ENOSPC)));
  CHECK(!is_of_machine(SystemError("there is no such file", ENOENT)));
  CHECK(is_of_machine(std::system_error(EAGAIN, std::generic_category())));
  CHECK(!is_of_machine(std::system_error(EACCES, std::generic_category())));
  CHECK(is_of_machine(std::bad_alloc()));
  CHECK(is_of_machine(MachineError("the bus is gone")));
  CHECK(!is_of_machine(Error("an option is wrong")));
}

TEST_CASE("patience: pauses double, and are as long together as was said") {
  const IoPatience patience = {.retries = 3, .over = milliseconds(7000)};
  CHECK(pause_before_retry(patience, 0) == milliseconds(1000));
  CHECK(pause_before_retry(patience, 1) == milliseconds(2000));
  CHECK(pause_before_retry(patience, 2) == milliseconds(4000));
}

TEST_CASE("patience: what the work returns is returned") {
  CHECK(patiently({}, [] { return std::string("done"); }) == "done");
}

}  // namespace
}  // namespace fsdp
