// Calls of core/io of a run fail once, with every error, each error in another eleventh of the
// places: see failing_calls_test.cpp.
// Requirements: S2.10.
#include <cerrno>

#include "tests/support/failing_calls.h"

namespace fsdp::tools {
namespace {

TEST_CASE("failing calls: each error in many places") {
  const std::string expected = test::hash_without_faults();
  for (const bool goes_on : {false, true}) {
    std::vector<int> errors = {EINTR,       ENOTCONN, EIO,    EPROTO,    EBADF,
                               EKEYEXPIRED, EUCLEAN,  ESTALE, EAGAIN,    EBUSY,
                               ETIMEDOUT,   ENODEV,   ENXIO,  ESHUTDOWN, ENOSPC,
                               EDQUOT,      ENOMEM,   EMFILE, EHOSTDOWN};
    if (goes_on) errors.insert(errors.end(), {ENOENT, EACCES, EROFS, EPERM});
    int64_t first = 0;
    for (const int error : errors) {
      constexpr int64_t kEvery = 11;
      int64_t at = first++ % kEvery;
      while (test::fail_call(goes_on, {.fault = test::IoFault::kError, .at = at, .error = error},
                             expected)) {
        at += kEvery;
      }
      CHECK(at > 10 * kEvery);
    }
  }
}

}  // namespace
}  // namespace fsdp::tools
