// The order between streams: random delays never change a bit, and ThreadSanitizer reports each
// edge that is left out. That results are wrong without a wait: removed_waits_test.cpp.
#include <cstdlib>
#include <filesystem>

#include <doctest/doctest.h>

#include "tests/support/removed_waits.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

TEST_CASE("random delays on all streams of all ranks: the same bits") {
  for (const OrderSetting& setting : order_settings()) {
    RunSpec s = spec_of(setting);
    s.steps = 3;
    const RunResult expected = train(s);
    for (const uint64_t seed : {1, 2, 3}) {
      CAPTURE(setting.what);
      CAPTURE(seed);
      s.cpu = [&](int rank) {
        return random_delays(seed * 100 + static_cast<uint64_t>(rank), 300);
      };
      CHECK((train(s) == expected));
    }
  }
}

TEST_CASE("random delays under other schedules: the same bits") {
  for (const FsdpOptions& options :
       {FsdpOptions{.forward_prefetch = 3, .units_in_flight = 3},
        FsdpOptions{.backward_prefetch = BackwardPrefetch::kPost, .units_in_flight = 1},
        FsdpOptions{.param_dtype = DType::kBF16, .reduce_dtype = DType::kBF16},
        FsdpOptions{.accumulation = Accumulation::kReduceLast, .micro_steps = 2}}) {
    RunSpec s;
    s.subject = causal_lm(small_llama(), RecomputeMode::kFull);
    s.training = true;
    s.ranks = 3;
    s.fsdp = options;
    const RunResult expected = train(s);
    s.cpu = [](int rank) { return random_delays(static_cast<uint64_t>(rank), 300); };
    CHECK((train(s) == expected));
  }
}

// ---------------------------------------------------------------------------- ThreadSanitizer

namespace {

constexpr const char* kSettingVariable = "FSDP_TEST_SETTING";    // its number
constexpr const char* kEdgeVariable = "FSDP_TEST_REMOVED_EDGE";  // "gather compute"
constexpr const char* kAttemptVariable = "FSDP_TEST_ATTEMPT";

// The exit status of this program running the case below, with this edge removed. Files do not
// order threads: what a stream writes into a file, another one reads without a wait.
int status_without(size_t setting, const std::string& edge, int attempt = 0) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = fmt::format(
      "{}={} {}='{}' {}={} TSAN_OPTIONS=halt_on_error=1:exitcode=66:io_sync=0 '{}' --no-skip "
      "--test-case='child: one step without an edge' >/dev/null 2>&1",
      kSettingVariable, setting, kEdgeVariable, edge, kAttemptVariable, attempt, program);
  return std::system(command.c_str()) >> 8;
}

// Locks of the streams may order two threads by chance.
bool is_reported(size_t setting, const std::string& edge) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    if (status_without(setting, edge, attempt) == 66) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("child: one step without an edge" * doctest::skip()) {
  const char* setting = std::getenv(kSettingVariable);
  const char* edge = std::getenv(kEdgeVariable);
  REQUIRE(setting != nullptr);
  REQUIRE(edge != nullptr);
  const char* attempt = std::getenv(kAttemptVariable);
  REQUIRE(attempt != nullptr);
  const std::string streams = edge;
  const size_t space = streams.find(' ');
  train_without(spec_of(order_settings().at(std::stoul(setting))),
                {{streams.substr(0, space), streams.substr(space + 1)}}, std::stoi(attempt));
}

TEST_CASE("ThreadSanitizer reports a removed edge, under every setting" *
          doctest::skip(!kThreadSanitizer)) {
  const std::vector<OrderSetting> settings = order_settings();
  for (size_t i = 0; i < settings.size(); ++i) {
    CAPTURE(settings[i].what);
    CHECK(status_without(i, "no such edge") == 0);
    for (const Edge& edge : settings[i].edges) {
      if (settings[i].in_vain.contains(edge) || settings[i].unreported.contains(edge)) continue;
      CAPTURE(edge.first);
      CAPTURE(edge.second);
      CHECK(is_reported(i, edge.first + " " + edge.second));
    }
  }
}
