// The link that is fitted to collectives: one that is known is found again.
#include "tools/bench/link_rate.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

// What collectives of 2 to 4 ranks take by a link, times 1 + `error`, in turns up and down.
std::vector<CommResult> taken_by(const LinkRate& link, double error = 0) {
  std::vector<CommResult> out;
  for (const int64_t bytes :
       {int64_t{1} << 12, int64_t{1} << 16, int64_t{1} << 20, int64_t{1} << 26}) {
    for (const auto collective : {comm::Collective::kAllReduce, comm::Collective::kBroadcast}) {
      for (const int ranks : {2, 4}) {
        CommResult result = {.what = {.collective = collective, .bytes = bytes}, .ranks = ranks};
        const double bus = static_cast<double>(bytes) * bus_factor(collective, ranks);
        const double sign = out.size() % 2 == 0 ? 1 : -1;
        result.seconds.median = link.seconds(bus) * (1 + sign * error);
        out.push_back(result);
      }
    }
  }
  return out;
}

}  // namespace

TEST_CASE("link rate: latency and bandwidth are found again") {
  for (const LinkRate& link : {LinkRate{20, 2e11}, LinkRate{5, 1e9}, LinkRate{0, 3e10}}) {
    CAPTURE(link.latency_us);
    const LinkRate exact = fit_link(taken_by(link));
    CHECK(exact.latency_us == doctest::Approx(link.latency_us).epsilon(1e-6));
    CHECK(exact.bytes_per_s == doctest::Approx(link.bytes_per_s).epsilon(1e-6));
    const LinkRate noisy = fit_link(taken_by(link, 0.1));
    CHECK(noisy.latency_us == doctest::Approx(link.latency_us).epsilon(0.2));
    CHECK(noisy.bytes_per_s == doctest::Approx(link.bytes_per_s).epsilon(0.2));
  }
}

TEST_CASE("link rate: calls from which no link follows") {
  std::vector<CommResult> results = taken_by({20, 2e11});
  results.resize(1);
  CHECK(test::contains(test::error_of([&] { fit_link(results); }), "of several sizes, got 4096"));
  results = taken_by({20, 2e11});
  for (CommResult& result : results) result.seconds.median = 1e-3;
  CHECK(test::contains(test::error_of([&] { fit_link(results); }), "expected larger collectives"));
  CHECK(test::contains(test::error_of([] { fit_link({}); }), "of several sizes, got 0"));
}

TEST_CASE("link rate: what is measured here takes the place of what others measured") {
  Rates rates = machine_rates("H100-EFA");
  CHECK(!rates.measured_bus.empty());
  set_link(rates, {.latency_us = 3, .bytes_per_s = 8e9}, {"a", "a"});
  CHECK(rates.measured_bus.empty());
  CHECK(!rates.sources.contains("measured_bus"));
  CHECK(!rates.sources.contains("inside_node.hop_us"));
  CHECK(rates.sources.at("inside_node") == "measured by bench comm");
  CHECK(rates.sources.contains("between_nodes.hop_us"));
  Rates plain;
  set_link(plain, {.latency_us = 3, .bytes_per_s = 8e9}, {"a", "a"});
  CHECK(plain.sources.empty());
}

TEST_CASE("link rate: a host's ranks share its links") {
  Rates rates = machine_rates(kUsualMachine);
  const LinkRate link = {.latency_us = 3, .bytes_per_s = 8e9};
  CHECK(set_link(rates, link, {"a", "a", "a"}) == "inside_node");
  CHECK(rates.inside_node == link);
  CHECK(rates.between_nodes == machine_rates(kUsualMachine).between_nodes);
  CHECK(set_link(rates, link, {"a", "a", "b", "b"}) == "between_nodes");
  CHECK(rates.between_nodes == LinkRate{3, 4e9});
  // What was measured is what is predicted: 2 nodes of 2 ranks.
  rates.ranks_per_node = 2;
  rates.inside_node.bytes_per_s = 1e12;
  const CallRates predicted(rates);
  const std::vector<int> members = {0, 1, 2, 3};
  CHECK(predicted.collective_seconds(
            {.kind = comm::Collective::kBroadcast, .bytes = 8'000'000, .members = {0, 1, 2, 3}}) ==
        doctest::Approx(3e-6 + 1e-3));
  CHECK(test::contains(test::error_of([&] {
                         set_link(rates, link, {"a", "a", "b"});
                       }),
                       "as many ranks on each, got 2 on a and 1 on b"));
}

}  // namespace fsdp::tools
