// A stopped process of the same program and parent is named; too long a start is said.
#include "tools/launch/start_watch.h"

#include <algorithm>
#include <csignal>
#include <future>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"
#include "tools/launch/backend_choice.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/network_cards.h"

namespace fsdp::tools {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a child that watches says of its sibling, which is stopped or not.
std::string said_of_sibling(bool stopped, milliseconds start) {
  const pid_t sibling = ::fork();
  if (sibling == 0) {
    ::pause();
    ::_exit(0);
  }
  if (stopped) {
    ::kill(sibling, SIGSTOP);
    ::waitpid(sibling, nullptr, WUNTRACED);
  }
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t watcher = ::fork();
  if (watcher == 0) {
    std::promise<std::string> reason;
    auto said = reason.get_future();
    std::string text;
    {
      RankWatch thread;
      const StartWatch watch(thread, {.silence = milliseconds(800), .start = start},
                             [&](const std::string& why) { reason.set_value(why); });
      if (said.wait_for(seconds(3)) == std::future_status::ready) text = said.get();
    }
    static_cast<void>(!::write(ends[1], text.data(), text.size()));
    ::_exit(0);
  }
  ::close(ends[1]);
  char text[512];
  const ssize_t bytes = ::read(ends[0], text, sizeof text);
  ::close(ends[0]);
  ::waitpid(watcher, nullptr, 0);
  ::kill(sibling, SIGKILL);
  ::waitpid(sibling, nullptr, 0);
  std::string out(text, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  if (out.find(std::to_string(sibling)) != std::string::npos) out += " [named]";
  return out;
}

TEST_CASE("start watch: a signal that waits for ranks that do not come ends the process") {
  const pid_t watcher = ::fork();
  if (watcher == 0) {
    const SignalsWait wait;
    RankWatch thread;
    const StartWatch watch(
        thread, {.silence = milliseconds(800), .start = seconds(60), .signal = milliseconds(100)},
        [](const std::string&) {});
    ::kill(::getpid(), SIGTERM);
    for (int i = 0; i < 50; ++i) ::usleep(100'000);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(watcher, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGTERM);
}

TEST_CASE("start watch: a stopped process is named, one that runs is not") {
  const std::string said = said_of_sibling(true, seconds(60));
  CHECK(test::contains(said, "no sign of life for 0.8 s: its process is stopped"));
  CHECK(test::contains(said, "[named]"));
  CHECK(said_of_sibling(false, seconds(60)).empty());
}

TEST_CASE("start watch: a start that takes too long") {
  const std::string said = said_of_sibling(false, seconds(1));
  CHECK(test::contains(said, "not found each other within 1 s"));
  CHECK(test::contains(said, "(" + host_name() + ") on " + describe(reaching(network_cards()))));
  CHECK(test::contains(said, "MPI_Init waits for all"));
}

}  // namespace
}  // namespace fsdp::tools
