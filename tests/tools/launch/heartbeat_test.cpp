// Silence of peers, over sockets and before they exist.
#include "tools/launch/heartbeat.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
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

TEST_CASE("heartbeat: silent after the limit; who was stopped itself says nothing of others") {
  auto now = SilenceWatch::Clock::time_point(seconds(1000));
  SilenceWatch watch(seconds(10), 2, now);
  CHECK(watch.beat() == seconds(1));
  for (int i = 0; i < 10; ++i) {
    watch.tick(now += seconds(1));
    watch.heard(1, now);
  }
  CHECK(watch.silence(0, now) == doctest::Approx(1.0));
  CHECK(watch.silence(1, now) == doctest::Approx(0.0));
  watch.tick(now += seconds(60));  // the whole job was suspended
  CHECK(watch.silence(0, now) == doctest::Approx(0.0));
  CHECK(SilenceWatch(seconds(2), 0, now).beat() == milliseconds(250));
}

// A job of two "ranks" of this process: rank 1 is far, so that nobody looks into /proc for it.
struct Rank {
  explicit Rank(int number) : rank(number) {}
  void start(uint64_t key, const std::vector<std::string>& cards, milliseconds limit,
             bool near = false) {
    const int other = 1 - rank;
    heartbeat->start({.key = key,
                      .rank = rank,
                      .peers = {{.rank = other,
                                 .host = near ? "here" : "far",
                                 .process = ::getpid(),
                                 .reachable = near}},
                      .cards = cards,
                      .limit = limit},
                     {.at = [this] { return "step " + std::to_string(rank); },
                      .silent = [this](const std::vector<int>& ranks) { silent.set_value(ranks); },
                      .told = [this](const std::string& reason) { told.set_value(reason); },
                      .note = [this](const std::string& text) { note.set_value(text); }});
  }
  bool hears_of(int other) const {
    for (int i = 0; i < 500; ++i) {
      if (heartbeat->last_of(other) == "step " + std::to_string(other)) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }
  ~Rank() { watch.stop(); }  // before the promises go
  int rank;
  RankWatch watch;
  std::unique_ptr<Heartbeat> heartbeat =
      std::make_unique<Heartbeat>(watch, reaching(network_cards()));
  std::promise<std::vector<int>> silent;
  std::promise<std::string> told, note;
};

template <typename T>
bool comes(std::future<T>& future, seconds limit = seconds(10)) {
  return future.wait_for(limit) == std::future_status::ready;
}

std::vector<std::string> cards_of(const Rank& a, const Rank& b) {
  return {a.heartbeat->card(), b.heartbeat->card()};
}

bool has_network(const Rank& rank) {
  const bool has = test::contains(rank.heartbeat->card(), " ");
  if (!has) std::printf("[SKIP] heartbeat: no network but the loopback\n");
  return has;
}

TEST_CASE("heartbeat: ranks hear what the others are at, and of one that falls silent") {
  Rank a(0), b(1);
  const auto cards = cards_of(a, b);
  a.start(42, cards, milliseconds(800), true);
  b.start(42, cards, milliseconds(800), true);
  CHECK(a.hears_of(1));
  CHECK(b.hears_of(0));
  auto silent = a.silent.get_future();
  CHECK(silent.wait_for(milliseconds(1200)) == std::future_status::timeout);
  b.heartbeat.reset();  // its process (this one) runs: twice the limit
  REQUIRE(comes(silent));
  CHECK(silent.get() == std::vector<int>{1});
  CHECK(a.heartbeat->last_of(1) == "step 1");
}

TEST_CASE("heartbeat: the reason reaches the others") {
  Rank a(0), b(1);
  const auto cards = cards_of(a, b);
  a.start(42, cards, seconds(30), true);
  b.start(42, cards, seconds(30), true);
  auto told = b.told.get_future();
  a.heartbeat->tell("rank 7 is gone");
  REQUIRE(comes(told));
  CHECK(told.get() == "rank 7 is gone");
}

TEST_CASE(
    "heartbeat: another job's beats are none; a rank never heard of is not silent, but noted") {
  Rank a(0), b(1);
  if (!has_network(a)) return;
  const auto cards = cards_of(a, b);
  auto silent = a.silent.get_future();
  auto note = a.note.get_future();
  a.start(42, cards, milliseconds(400));
  b.start(43, cards, milliseconds(400));
  REQUIRE(comes(note));
  CHECK(test::contains(note.get(), "no heartbeat from rank 1"));
  CHECK(silent.wait_for(seconds(0)) == std::future_status::timeout);
  CHECK(a.heartbeat->last_of(1).empty());
}

TEST_CASE("heartbeat: a far rank that was heard is silent after the limit; nobody is at the end") {
  Rank a(0), b(1), c(0), d(1);
  if (!has_network(a)) return;
  auto silent = a.silent.get_future(), at_end = c.silent.get_future();
  a.start(42, cards_of(a, b), milliseconds(400));
  b.start(42, cards_of(a, b), milliseconds(400));
  c.start(42, cards_of(c, d), milliseconds(400));
  d.start(42, cards_of(c, d), milliseconds(400));
  CHECK(a.hears_of(1));
  CHECK(c.hears_of(1));
  c.heartbeat->stop_watching();
  b.heartbeat.reset();
  d.heartbeat.reset();
  REQUIRE(comes(silent));
  CHECK(silent.get() == std::vector<int>{1});
  CHECK(at_end.wait_for(milliseconds(500)) == std::future_status::timeout);
}

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
