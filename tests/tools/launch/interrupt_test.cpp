// What ranks do together that received different signals. The handlers: tests/e2e/interrupt.sh.
#include "tools/launch/interrupt.h"

#include <csignal>

#include <doctest/doctest.h>

namespace fsdp::tools {

TEST_CASE("interrupt: ranks agree on a signal, and to be started again wins") {
  CHECK(agreed_signal({0, 0}) == 0);
  CHECK(agreed_signal({0, SIGINT, 0}) == SIGINT);
  CHECK(agreed_signal({SIGTERM, SIGUSR1, 0}) == SIGUSR1);
  CHECK(agreed_signal({SIGUSR1, SIGTERM}) == SIGUSR1);
}

}  // namespace fsdp::tools
