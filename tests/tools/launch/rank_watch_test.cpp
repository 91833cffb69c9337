// The watch hears signals and the end of processes, and is silent otherwise.
#include "tools/launch/rank_watch.h"

#include <chrono>
#include <csignal>
#include <future>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace fsdp::tools {
namespace {

// In a process of its own: another thread of this one would be killed by the signal.
bool hears_signals() {
  RankWatch::block_signal();
  std::promise<WatchRequest> first, second;
  int heard = 0;
  const RankWatch watch(
      {},
      {[&](WatchRequest request) { (heard++ == 0 ? first : second).set_value(request); }, nullptr});
  const auto is = [](std::promise<WatchRequest>& promise, WatchRequest expected) {
    auto answer = promise.get_future();
    return answer.wait_for(std::chrono::seconds(10)) == std::future_status::ready &&
           answer.get() == expected;
  };
  ::kill(::getpid(), SIGUSR2);
  if (!is(first, WatchRequest::kPerson)) return false;
  send_request(::getpid(), WatchRequest::kCollect);
  return is(second, WatchRequest::kCollect);
}

TEST_CASE("rank watch: a person's signal and a peer's request are told apart") {
  const pid_t process = ::fork();
  if (process == 0) ::_exit(hears_signals() ? 0 : 1);
  int status = -1;
  ::waitpid(process, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("rank watch: a process that ends is named once; one that lives is not") {
  RankWatch::block_signal();
  const auto child = [] {
    const pid_t process = ::fork();
    if (process == 0) {
      ::pause();
      ::_exit(0);
    }
    return process;
  };
  const pid_t alive = child(), dies = child();
  std::promise<size_t> gone;
  {
    const RankWatch watch({alive, dies, 999999999},
                          {nullptr, [&](size_t i) { gone.set_value(i); }});
    ::kill(dies, SIGKILL);
    auto who = gone.get_future();
    REQUIRE(who.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(who.get() == 1);
  }
  {
    // Ended before the grace time is over: nothing is said (set_value twice would throw).
    const RankWatch watch({alive}, {nullptr, [&](size_t i) { gone.set_value(i); }});
    ::kill(alive, SIGKILL);
  }
  ::waitpid(dies, nullptr, 0);
  ::waitpid(alive, nullptr, 0);
}

}  // namespace
}  // namespace fsdp::tools
