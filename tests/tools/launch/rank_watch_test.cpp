// The watch hears signals, the end of processes, descriptors and timers, and is silent otherwise.
#include "tools/launch/rank_watch.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <new>
#include <thread>

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
  RankWatch watch;
  watch.on_request(
      [&](WatchRequest request) { (heard++ == 0 ? first : second).set_value(request); });
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
  std::promise<pid_t> gone;
  {
    RankWatch watch;
    for (const pid_t process : {alive, dies, 999999999}) {
      watch.on_end(process, [&gone, process] { gone.set_value(process); });
    }
    ::kill(dies, SIGKILL);
    auto who = gone.get_future();
    REQUIRE(who.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(who.get() == dies);
  }
  {
    // Ended before the grace time is over: nothing is said (set_value twice would throw).
    RankWatch watch;
    watch.on_end(alive, [&] { gone.set_value(alive); });
    ::kill(alive, SIGKILL);
  }
  ::waitpid(dies, nullptr, 0);
  ::waitpid(alive, nullptr, 0);
}

TEST_CASE("rank watch: a timer goes on while an action takes long, until it is removed") {
  RankWatch watch;
  std::atomic<int> beats = 0;
  std::promise<void> asked, release;
  const int timer = watch.every(std::chrono::milliseconds(5), [&] {
    if (++beats == 1) {
      watch.apart([&, wait = release.get_future().share()] {
        asked.set_value();
        wait.wait();
      });
    }
  });
  asked.get_future().wait();
  while (beats < 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  release.set_value();
  watch.remove(timer);
  const int at_end = beats;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(beats == at_end);
}

TEST_CASE("rank watch: a descriptor that can be read; an action that throws ends nothing") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::promise<char> read;
  RankWatch watch;
  const int timer = watch.every(std::chrono::milliseconds(1), [] { throw std::bad_alloc(); });
  watch.add(ends[0], [&] {
    char byte = 0;
    if (::read(ends[0], &byte, 1) == 1) read.set_value(byte);
  });
  REQUIRE(::write(ends[1], "x", 1) == 1);
  CHECK(read.get_future().get() == 'x');
  watch.remove(timer);
  watch.stop();
  CHECK(::close(ends[0]) != 0);  // the watch has closed it
  ::close(ends[1]);
}

}  // namespace
}  // namespace fsdp::tools
