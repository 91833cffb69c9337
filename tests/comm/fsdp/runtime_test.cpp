// The streams of a rank.
#include "comm/fsdp/runtime.h"

#include <atomic>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"

using namespace fsdp;
using namespace fsdp::comm;

TEST_CASE("reductions have a stream of their own, or that of the gathers") {
  cpu::CpuBackend backend;
  const CommStreams two(backend, true), one(backend, false);
  CHECK(&two.reduce() != &two.gather());
  CHECK(&one.reduce() == &one.gather());
}

TEST_CASE("drained streams have nothing left to do, and no error") {
  cpu::CpuBackend backend;
  const CommStreams streams(backend, true);
  std::atomic<int> done = 0;
  backend.host_task(streams.gather(), "task", 0, [] { fail("no gather"); });
  backend.wait(streams.replicas(), backend.record(streams.gather()));  // passes the error on
  for (Stream* stream : {&streams.reduce(), &backend.compute_stream()}) {
    backend.host_task(*stream, "task", 0, [&done] { ++done; });
  }
  drain(streams.all());
  CHECK(done == 2);
  for (Stream* stream : streams.all()) backend.synchronize(*stream);
}
