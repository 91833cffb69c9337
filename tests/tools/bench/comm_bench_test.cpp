// Collectives' bandwidth and data, on ranks as threads; transports that are slow or wrong; what is
// measured, and what is demanded of it.
// Requirements: S1.20, S3.16.
#include "tools/bench/comm_bench.h"

#include <chrono>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"
#include "tools/bench/comm_gate.h"
#include "tools/predict/machines.h"

namespace fsdp::tools {
namespace {

using comm::Collective;
using comm::Communicator;
using comm::ReduceOp;

// Passes calls on, after a while; a lying one does not pass on `lie`.
class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(Communicator& real, int delay_us, Collective lie, bool lies)
      : Communicator(real.rank(), "faulty", std::vector<int>(static_cast<size_t>(real.size())),
                     real.rings()),
        real_(real),
        delay_us_(delay_us),
        lie_(lie),
        lies_(lies) {}

  std::shared_ptr<comm::CommBuffer> allocate(Backend& backend, size_t bytes,
                                             MemoryCategory category) override {
    return real_.allocate(backend, bytes, category);
  }
  std::unique_ptr<Communicator> split(const comm::SplitRule& rule,
                                      const std::string& name) override {
    return real_.split(rule, name);
  }
  bool abort(const std::string& reason) override { return real_.abort(reason); }

 private:
  bool passes_on(Collective collective, Stream& stream) {
    if (delay_us_ > 0) {
      stream.backend().host_task(stream, "delay", 0, [us = delay_us_] {
        std::this_thread::sleep_for(std::chrono::microseconds(us));
      });
    }
    return !(lies_ && collective == lie_);
  }
  std::vector<std::string> do_exchange(const std::string& mine) override {
    return real_.exchange(mine);
  }
  void do_all_gather(Stream& stream, const Tensor& buffer) override {
    if (passes_on(Collective::kAllGather, stream)) real_.all_gather(stream, buffer);
  }
  void do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                         ReduceOp op) override {
    if (passes_on(Collective::kReduceScatter, stream)) {
      real_.reduce_scatter(stream, input, output, op);
    }
  }
  void do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) override {
    if (passes_on(Collective::kAllReduce, stream)) real_.all_reduce(stream, buffer, op);
  }
  void do_broadcast(Stream& stream, const Tensor& buffer, int root) override {
    if (passes_on(Collective::kBroadcast, stream)) real_.broadcast(stream, buffer, root);
  }

  Communicator& real_;
  int delay_us_;
  Collective lie_;
  bool lies_;
};

constexpr CommTiming kShort = {.rounds = 2, .calls = 1};

CommResult result_of(Collective collective, int ranks, int64_t bytes, double seconds) {
  return {
      {.collective = collective, .bytes = bytes}, {seconds, seconds, seconds, seconds}, 0, ranks};
}

}  // namespace

// The summary of nccl-tests' doc/PERFORMANCE.md.
TEST_CASE("bench comm: bus bandwidth as nccl-tests defines it") {
  CHECK(bus_factor(Collective::kAllReduce, 8) == doctest::Approx(1.75));
  CHECK(bus_factor(Collective::kReduceScatter, 8) == doctest::Approx(0.875));
  CHECK(bus_factor(Collective::kAllGather, 8) == doctest::Approx(0.875));
  CHECK(bus_factor(Collective::kBroadcast, 8) == 1);
  CHECK(bus_factor(Collective::kAllReduce, 2) == 1);
  // 4 GB in half a second
  const CommResult reduce = result_of(Collective::kAllReduce, 4, 4'000'000'000, 0.5);
  CHECK(reduce.algbw() == doctest::Approx(8e9));
  CHECK(reduce.busbw() == doctest::Approx(12e9));
  const CommResult gather = result_of(Collective::kAllGather, 4, 4'000'000'000, 0.5);
  CHECK(gather.busbw() == doctest::Approx(6e9));
  CHECK(mean_busbw({reduce, gather}) == doctest::Approx(9e9));
  CHECK(mean_busbw({}) == 0);
}

TEST_CASE("bench comm: every collective gives the right data, of any dtype, op and buffer") {
  const CommCases all = {.ops = {"sum", "average", "max"},
                         .dtypes = {"f32", "bf16", "f16", "f64"},
                         .buffers = {"communicator", "plain"},
                         .least_bytes = 5000,
                         .most_bytes = 100'000,
                         .factor = 20};
  CommCases integers = all;
  integers.ops = {"sum", "max"};
  integers.dtypes = {"i32", "i64"};
  for (const int ranks : {2, 3}) {
    comm::run_local_ranks(ranks, [&](Communicator& world) {
      cpu::CpuBackend backend;
      std::vector<CommCase> cases = expand(all);
      for (const CommCase& what : expand(integers)) cases.push_back(what);
      for (const CommCase& what : cases) {
        const CommResult result = bench_collective(world, backend, what, kShort);
        INFO(comm::name_of(what.collective), " ", name_of(what.dtype), " ", op_name(what));
        CHECK(result.wrong == 0);
        CHECK(result.ranks == ranks);
        CHECK(result.what.bytes % (ranks * static_cast<int64_t>(size_of(what.dtype))) == 0);
        CHECK(result.what.bytes <= what.bytes);
        CHECK(result.seconds.median > 0);
      }
    });
  }
}

TEST_CASE("bench comm: a transport that does nothing is found out, whatever the collective") {
  for (const auto lie : {Collective::kAllGather, Collective::kReduceScatter, Collective::kAllReduce,
                         Collective::kBroadcast}) {
    comm::run_local_ranks(2, [&](Communicator& world) {
      cpu::CpuBackend backend;
      FaultyCommunicator faulty(world, 0, lie, /*lies=*/true);
      std::vector<CommResult> results;
      for (const CommCase& what :
           expand({.dtypes = {"f32"}, .least_bytes = 8000, .most_bytes = 8000})) {
        results.push_back(bench_collective(faulty, backend, what, kShort));
        CHECK((results.back().wrong > 100) == (what.collective == lie));
      }
      const GateVerdict verdict = check_results({}, results);
      CHECK(verdict.status == 44);
      CHECK(verdict.reason.starts_with(fmt::format("{} of 8000 bytes of f32", comm::name_of(lie))));
    });
  }
}

TEST_CASE("bench comm: a slow link does not pass the gate, a working one does") {
  for (const int delay_us : {0, 20'000}) {
    comm::run_local_ranks(2, [&](Communicator& world) {
      cpu::CpuBackend backend;
      FaultyCommunicator link(world, delay_us, Collective::kAllGather, /*lies=*/false);
      const CommResult result =
          bench_collective(link, backend, {.bytes = 1 << 20}, {.rounds = 3, .calls = 1});
      CHECK(result.wrong == 0);
      // At most 1 MiB in 20 ms: 0.052 GB/s. Without a bar both pass.
      if (delay_us > 0) CHECK(result.busbw() < 0.053e9);
      const int expected = delay_us > 0 ? 46 : 0;
      if (delay_us > 0) CHECK(check_results({.least_gb_per_s = 0.06}, {result}).status == expected);
      CHECK(check_results({}, {result}).status == 0);
    });
  }
}

TEST_CASE("bench comm: ranks that are not those expected, and one alone") {
  CHECK(check_ranks({}, 2).status == 0);
  CHECK(check_ranks({.expected_ranks = 4}, 4).status == 0);
  const GateVerdict few = check_ranks({.expected_ranks = 4}, 3);
  CHECK(few.status == 44);
  CHECK(few.reason == "expected 4 ranks, got 3");
  CHECK(check_ranks({}, 1).status == 44);
  CHECK(check_ranks({.expected_ranks = 1}, 1).status == 44);
}

TEST_CASE("bench comm: what carries the data, and that another transport was asked for") {
  comm::run_local_ranks(2, [&](Communicator& world) {
    RankContext rank{.world = world, .local_ranks = 2};
    CHECK(check_transport(rank, {.local_ranks = 2}, "auto") == "threads");
    CHECK(check_transport(rank, {.local_ranks = 2}, "threads") == "threads");
    const auto error = test::error_of([&] { check_transport(rank, {.local_ranks = 2}, "mpi"); });
    CHECK(test::contains(error, "--transport mpi: these ranks communicate by threads"));
    rank.under_launcher = true;  // threads of one process nevertheless
    CHECK(check_transport(rank, {.local_ranks = 2}, "auto") == "threads");
    CHECK(check_transport(rank, {}, "auto") == "shared");  // both are on this host
    CHECK(check_transport(rank, {.shared_memory = false}, "auto") == "mpi");
  });
}

TEST_CASE("bench comm: every case once, each result as soon as it is there") {
  const std::vector<CommCase> cases =
      expand({.dtypes = {"f32"}, .least_bytes = 800, .most_bytes = 800});
  comm::run_local_ranks(2, [&](Communicator& world) {
    cpu::CpuBackend backend;
    size_t heard = 0;
    const auto results =
        bench_collectives(world, backend, cases, kShort, [&](const CommResult& result) {
          CHECK(result.what.collective == cases[heard++].collective);
        });
    CHECK(heard == cases.size());
    CHECK(results.size() == cases.size());
  });
}

TEST_CASE("bench comm: the bar is one of the mean bus bandwidth") {
  const std::vector<CommResult> results = {result_of(Collective::kBroadcast, 2, 1000, 1e-6),
                                           result_of(Collective::kBroadcast, 2, 3000, 1e-6)};
  CHECK(check_results({.least_gb_per_s = 2}, results).status == 0);
  const GateVerdict slow = check_results({.least_gb_per_s = 2.1}, results);
  CHECK(slow.status == 46);
  CHECK(slow.reason == "mean busbw: expected at least 2.1 GB/s, got 2.000");
}

TEST_CASE("bench comm: combinations and sizes") {
  const std::vector<CommCase> cases = expand({.collectives = {"broadcast", "all_reduce"},
                                              .ops = {"average", "max"},
                                              .dtypes = {"f32", "bf16"},
                                              .least_bytes = 10,
                                              .most_bytes = 100,
                                              .factor = 3});
  CHECK(cases.size() == (1 + 2) * 2 * 3);
  CHECK(cases[0].collective == Collective::kBroadcast);
  CHECK(cases[0].bytes == 10);
  CHECK(cases[1].bytes == 30);
  CHECK(cases[2].bytes == 90);
  CHECK(cases[6].op == ReduceOp::kAverage);
  CHECK(op_name(cases[6]) == "average");
  CHECK(op_name(cases[0]).empty());
  CHECK(test::contains(test::error_of([] { expand({.least_bytes = 8, .most_bytes = 4}); }),
                       "--min-bytes: expected at most --max-bytes 4, got 8"));
  CHECK(test::contains(test::error_of([] { expand({.ops = {"average"}, .dtypes = {"i32"}}); }),
                       "--ops average: expected floating dtypes, got i32"));
}
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
