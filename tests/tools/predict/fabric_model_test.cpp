// Collectives by group and bytes. Numbers with a comment "study": computed by the program with
// which the constants were chosen, another implementation of the same formulas.
#include "tools/predict/fabric_model.h"

#include <doctest/doctest.h>

#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

using enum comm::Collective;

constexpr double kBytes = 404e6;  // of a block of 202 M parameters, in bf16

double us(const Rates& rates, comm::Collective kind, double bytes, GroupPlace place,
          double percentile = 50) {
  return 1e6 * collective_seconds(rates, kind, bytes, place, percentile);
}

auto study(double us) { return doctest::Approx(us).epsilon(1e-5); }

TEST_CASE("fabric model: nodes of a group") {
  CHECK(place_of({0, 1, 2, 3}, 4).nodes == 1);
  CHECK(place_of({0, 1, 2, 3, 4}, 4).nodes == 2);
  CHECK(place_of({3, 11, 19}, 8).nodes == 3);
  CHECK(place_of({5}, 4).ranks == 1);
}

TEST_CASE("fabric model: a ring's steps inside a node and between nodes, then the bytes") {
  const Rates h100 = machine_rates("H100");
  CHECK(us(h100, kAllGather, kBytes, {8, 1}) == study(999.205));                       // study
  CHECK(us(h100, kReduceScatter, kBytes, {8, 1}) == study(999.205));                   // study
  CHECK(us(h100, kAllReduce, kBytes, {8, 1}) == study(1978.41));                       // study
  CHECK(us(h100, kAllGather, kBytes, {16, 2}) == study(1105.25));                      // study
  CHECK(us(h100, kAllGather, kBytes, {512, 64}) == study(3514.96));                    // study
  CHECK(us(h100, kAllGather, 4, {512, 64}) == study(2425.2));                          // study
  CHECK(us(h100, kAllReduce, 4, {8, 1}) == study(67.6));                               // study
  CHECK(us(machine_rates("A100-40"), kAllGather, kBytes, {64, 8}) == study(2379.69));  // study
  CHECK(us(h100, kAllGather, kBytes, {1, 1}) == 0);
}

// 7 hops down the chain of a node and 6 between 64 nodes, up and down again; the study has a ring,
// which would take 4.8 ms for four bytes.
TEST_CASE("fabric model: an all-reduce between nodes takes a tree where that has fewer steps") {
  const Rates h100 = machine_rates("H100");
  CHECK(us(h100, kAllReduce, 4, {512, 64}) == study(20 + 2 * (7 * 3.4 + 6 * 14)));
  Rates far = h100;
  far.inside_node.hop_us = 0;
  CHECK(us(far, kAllReduce, 4, {4, 2}) == study(20 + 2 * 14));
}

TEST_CASE("fabric model: the ranks of a group on a node share its links, no faster than inside") {
  const Rates h100 = machine_rates("H100");
  // A rank of each node, as of replicas: one link of 46.25 GB/s.
  CHECK(us(h100, kAllGather, kBytes, {2, 2}) == study(20 + 14 + 202e6 / 46.25e3));
  Rates quick = h100;
  quick.between_nodes.bytes_per_s = 1e12;
  CHECK(us(quick, kAllGather, kBytes, {2, 2}) == study(20 + 14 + 202e6 / 370e3));
}

TEST_CASE("fabric model: measured busbw, on lines of the logarithms") {
  const Rates efa = machine_rates("H100-EFA");
  CHECK(us(efa, kAllGather, kBytes, {8, 1}) == study(1458.93));  // study
  CHECK(us(efa, kAllGather, kBytes, {24, 3}) == study(2830.9));  // study: between 2 and 4 nodes
  CHECK(us(efa, kReduceScatter, kBytes, {24, 3}) == study(2893.28));  // study
  CHECK(us(efa, kAllGather, kBytes, {512, 64}) == study(39080.7));    // study
  // The study's ring and the tree differ by their steps alone.
  CHECK(us(efa, kAllReduce, kBytes, {64, 8}) ==
        study(8582.49 - 2 * (56 * 3.4 + 7 * 14) + 2 * (7 * 3.4 + 3 * 14)));
  // Fewer than were measured: as the fewest. More: as the most.
  CHECK(us(efa, kAllGather, kBytes, {2, 1}) == study(20 + 3.4 + 202e6 / 249.8e3));
  CHECK(us(efa, kAllGather, kBytes, {1024, 128}) ==
        study(20 + 896 * 3.4 + 127 * 14 + kBytes * 1023 / 1024 / 11e3));
  // A rank of each of two nodes has an eighth of the links that were measured.
  CHECK(us(efa, kAllGather, kBytes, {2, 2}) == study(20 + 14 + 202e6 / (184.6e3 / 8)));
  // What was not measured goes by the links.
  CHECK(us(efa, kBroadcast, kBytes, {8, 1}) == study(20 + 7 * 3.4 + kBytes / 370e3));
}

TEST_CASE("fabric model: a percentile of the time is the other one of the bandwidth") {
  const Rates efa = machine_rates("H100-EFA");
  const double steps = 20 + 7 * 3.4, bytes = kBytes * 7 / 8;
  CHECK(us(efa, kAllGather, kBytes, {8, 1}, 95) == study(steps + bytes / 239.552e3));
  CHECK(us(efa, kAllGather, kBytes, {8, 1}, 5) == study(steps + bytes / 264.93e3));
  const double between = us(efa, kAllGather, kBytes, {8, 1}, 72.5);
  CHECK(between == study(steps + bytes / std::sqrt(249.8e3 * 239.552e3)));
  CHECK(us(machine_rates("H100"), kAllGather, kBytes, {8, 1}, 95) == study(999.205));
}

}  // namespace
}  // namespace fsdp::tools
