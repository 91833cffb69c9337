// The backend without bytes: what it answers, what it counts, what it notes, when calls begin and
// end.
#include "kernels/meta/meta_backend.h"

#include <set>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "core/ops/linear.h"
#include "core/shard_args.h"
#include "core/tensor.h"
#include "tests/support/tensors.h"

namespace fsdp::meta {
namespace {

TEST_CASE("meta memory: unique addresses, also of memory given back; counted like any") {
  MetaBackend backend;
  std::set<void*> seen;
  for (int i = 0; i < 100; ++i) {
    const Tensor x = Tensor::empty(backend, Shape{300}, DType::kBF16);
    CHECK(seen.insert(x.data()).second);
    CHECK(backend.ledger().usage().total_current == 1024);
  }
  CHECK(backend.ledger().usage().total_current == 0);
  CHECK(backend.ledger().usage().total_peak == 1024);
  CHECK(Tensor::empty(backend, Shape{0}, DType::kF32).storage()->has_data());
  // More than any machine has.
  const Tensor large = Tensor::empty(backend, Shape{int64_t{1} << 45}, DType::kF32);
  const Tensor next = Tensor::empty(backend, Shape{1}, DType::kF32);
  CHECK(static_cast<std::byte*>(next.data()) - static_cast<std::byte*>(large.data()) == int64_t{1}
                                                                                            << 47);
}

TEST_CASE("meta values: zeros, at once") {
  MetaBackend backend;
  CHECK(!backend.holds_values());
  const Tensor x = Tensor::from_host<float>(backend, Shape{3}, {1, 2, 3});
  CHECK(x.to_doubles() == std::vector<double>{0, 0, 0});
  double landed = 7;
  bool arrived = false;
  const EventPtr event = backend.read_later(backend.compute_stream(), &landed, x.data(),
                                            sizeof landed, [&] { arrived = true; });
  CHECK(arrived);
  CHECK(landed == 0);
  CHECK(event->ready());
  event->wait();
  backend.wait(backend.compute_stream(), event);
  bool ran = false;
  backend.host_task(backend.compute_stream(), "task", 0, [&] { ran = true; });
  CHECK(ran);
}

TEST_CASE("meta calls are noted in the order of the host, with stream, scope and bytes") {
  MetaBackend backend;
  std::vector<std::string> calls;
  backend.set_recorder([&](const MetaCall& call) {
    calls.push_back(
        fmt::format("{} {} {} {}", call.stream.name(), call.name, call.bytes, call.scope));
  });
  const auto side = backend.create_stream("side");
  backend.set_scope("blocks.1");
  Tensor x = Tensor::zeros(backend, Shape{4, 8}, DType::kF32);
  Tensor y = Tensor::empty(backend, Shape{4, 8}, DType::kF32);
  backend.copy(*side, y.data(), x.data(), x.bytes());
  backend.copy(*side, y.data(), y.data(), x.bytes());  // onto itself: nothing
  backend.run(*side, AddArgs{x, y, y});
  CHECK(calls == std::vector<std::string>{"compute allocate 128 blocks.1",
                                          "compute fill_zero 128 blocks.1",
                                          "compute allocate 128 blocks.1", "side copy 128 blocks.1",
                                          "side add 0 blocks.1"});
  MetaBackend other;
  CHECK_THROWS_WITH(other.run(*side, AddArgs{x, y, y}),
                    "[add] stream side: belongs to another backend (meta)");
  CHECK_THROWS_WITH(backend.staging_memory(1),
                    "[meta] staging memory: transports reach what is not there as well as any");
}

// ---- Virtual time ----

// A kernel takes as many seconds as its first extent says, a copy from the host one.
class FixedTimes : public CallTimes {
 public:
  explicit FixedTimes(double issue_s = 0) : issue_s_(issue_s) {}
  double kernel_seconds(const KernelCall& call) override { return std::stod(call.shape); }
  double host_kernel_seconds(const KernelCall& call) override { return 10 * kernel_seconds(call); }
  double host_copy_seconds(int64_t) override { return 1; }
  double file_seconds(int64_t bytes, bool writes) override {
    return static_cast<double>(bytes) * (writes ? 8e-3 : 4e-3);
  }
  double issue_seconds() override { return issue_s_; }

 private:
  double issue_s_;
};

struct Clocks {
  explicit Clocks(double issue_s = 0) {
    backend.set_times(std::make_shared<FixedTimes>(issue_s));
    backend.set_recorder([this](const MetaCall& call) {
      if (call.name == "allocate") return;
      spans.push_back(fmt::format("{} {} to {}", call.stream.name(), call.begin_s, call.end_s));
    });
  }
  // A kernel of so many seconds.
  void kernel(Stream& stream, int64_t seconds) {
    Tensor x = Tensor::empty(backend, Shape{seconds}, DType::kF32);
    backend.run(stream, DivideArgs{x, 2});
  }

  MetaBackend backend;
  std::vector<std::string> spans;
};

TEST_CASE("meta time: calls of one stream follow each other") {
  Clocks clocks;
  for (const int64_t seconds : {3, 1, 5}) clocks.kernel(clocks.backend.compute_stream(), seconds);
  CHECK(clocks.spans ==
        std::vector<std::string>{"compute 0 to 3", "compute 3 to 4", "compute 4 to 9"});
  CHECK(clocks.backend.host_seconds() == 0);  // it has waited for nothing
  CHECK(clocks.backend.finish_all() == 9);
  CHECK(clocks.backend.host_seconds() == 9);
  clocks.kernel(clocks.backend.compute_stream(), 2);  // issued after the wait
  CHECK(clocks.spans.back() == "compute 9 to 11");
}

TEST_CASE("meta time: streams run at the same time, and events order them") {
  Clocks clocks;
  MetaBackend& backend = clocks.backend;
  Stream& compute = backend.compute_stream();
  const auto gather = backend.create_stream("gather");
  backend.occupy(*gather, "all_gather", 8, 4);
  const EventPtr first = backend.record(*gather);
  backend.occupy(*gather, "all_gather", 8, 4);  // while the first is computed with
  const EventPtr second = backend.record(*gather);
  backend.wait(compute, first);
  clocks.kernel(compute, 3);
  backend.wait(compute, second);
  clocks.kernel(compute, 3);
  backend.wait(compute, nullptr);
  CHECK(clocks.spans == std::vector<std::string>{"gather 0 to 4", "gather 4 to 8", "compute 4 to 7",
                                                 "compute 8 to 11"});
  backend.synchronize(*gather);
  CHECK(backend.host_seconds() == 8);
  backend.synchronize(compute);
  CHECK(backend.host_seconds() == 11);
}

TEST_CASE("meta time: the host's reads wait, and it issues calls in its own time") {
  Clocks clocks(0.5);
  MetaBackend& backend = clocks.backend;
  Stream& compute = backend.compute_stream();
  clocks.kernel(compute, 2);  // 0.5 to 2.5
  float value = 0;
  const EventPtr later =
      backend.read_later(compute, &value, compute.native_handle(), sizeof value, nullptr);
  CHECK(backend.host_seconds() == 1);
  later->wait();
  CHECK(backend.host_seconds() == 3.5);
  clocks.kernel(compute, 1);
  backend.copy_to_host(compute, &value, nullptr, sizeof value);
  CHECK(backend.host_seconds() == 6);
  CHECK(clocks.spans == std::vector<std::string>{"compute 0.5 to 2.5", "compute 2.5 to 3.5",
                                                 "compute 4 to 5", "compute 5 to 6"});
  backend.set_times(nullptr);
  clocks.kernel(compute, 7);
  CHECK(clocks.spans.back() == "compute 6 to 6");
}

TEST_CASE(
    "meta time: a host beside the device has other addresses, the same clock and its own rate") {
  Clocks device;
  const std::unique_ptr<MetaBackend> host = device.backend.make_host();
  host->set_times(std::make_shared<FixedTimes>());
  Stream& updates = host->compute_stream();
  CHECK(updates.name() == "host");
  const Tensor there = Tensor::empty(*host, Shape{2}, DType::kF32);
  const Tensor here = Tensor::empty(device.backend, Shape{2}, DType::kF32);
  CHECK(there.data() != here.data());
  CHECK(device.backend.ledger().usage().total_current == kAllocationGranularity);
  device.kernel(device.backend.compute_stream(), 3);
  host->wait(updates, device.backend.record(device.backend.compute_stream()));
  Tensor written = there;
  host->run(updates, DivideArgs{written, 2});  // 10 x 2 seconds, from 3 on
  device.backend.wait(device.backend.compute_stream(), host->record(updates));
  device.backend.copy(device.backend.compute_stream(), here.data(), there.data(), there.bytes());
  CHECK(device.spans.back() == "compute 23 to 24");
  CHECK(device.backend.finish_all() == 24);
  CHECK(host->finish_all() == 24);
}

TEST_CASE("meta time: one machine that computes for host and device does one kernel at a time") {
  struct OneMachine final : FixedTimes {
    bool host_is_device() const override { return true; }
  };
  Clocks device;
  const auto times = std::make_shared<OneMachine>();
  const std::unique_ptr<MetaBackend> host = device.backend.make_host();
  for (MetaBackend* each : {&device.backend, host.get()}) each->set_times(times);
  Tensor x = Tensor::empty(*host, Shape{2}, DType::kF32);
  device.kernel(device.backend.compute_stream(), 3);
  host->run(host->compute_stream(), DivideArgs{x, 2});  // though no event says so
  const auto copies = device.backend.create_stream("copies");
  device.kernel(*copies, 1);  // not a stream that computes
  device.kernel(device.backend.compute_stream(), 4);
  CHECK(device.spans ==
        std::vector<std::string>{"compute 0 to 3", "copies 0 to 1", "compute 23 to 27"});
}

TEST_CASE("meta time: collectives of two streams share one link, one after the other") {
  Clocks clocks;
  MetaBackend& backend = clocks.backend;
  const auto gather = backend.create_stream("gather"), reduce = backend.create_stream("reduce");
  backend.occupy(*gather, "all_gather", 8, 4);
  backend.occupy(*reduce, "reduce_scatter", 8, 3);
  clocks.kernel(backend.compute_stream(), 2);  // needs no link
  backend.wait(*gather, backend.record(*reduce));
  backend.occupy(*gather, "all_gather", 8, 1);
  CHECK(clocks.spans == std::vector<std::string>{"gather 0 to 4", "reduce 4 to 7", "compute 0 to 2",
                                                 "gather 7 to 8"});
}

struct HalfSpeed final : FixedTimes {
  double interference() const override { return 0.5; }
};

TEST_CASE("meta time: kernels go slower beside a collective, and only while it runs") {
  Clocks clocks;
  MetaBackend& backend = clocks.backend;
  backend.set_times(std::make_shared<HalfSpeed>());
  Stream& compute = backend.compute_stream();
  const auto gather = backend.create_stream("gather"), copies = backend.create_stream("copies");
  backend.occupy(*gather, "all_gather", 8, 4);
  clocks.kernel(compute, 1);  // all of it beside the gather: twice as long
  clocks.kernel(compute, 3);  // 1 done when the gather ends at 4, then 2
  clocks.kernel(compute, 5);
  clocks.kernel(*copies, 3);  // not of the compute stream
  CHECK(clocks.spans == std::vector<std::string>{"gather 0 to 4", "compute 0 to 2",
                                                 "compute 2 to 6", "compute 6 to 11",
                                                 "copies 0 to 3"});
}

TEST_CASE("meta time: a kernel across two collectives; the host's kernels lose nothing") {
  Clocks clocks;
  MetaBackend& backend = clocks.backend;
  const std::unique_ptr<MetaBackend> host = backend.make_host();
  for (MetaBackend* each : {&backend, host.get()}) each->set_times(std::make_shared<HalfSpeed>());
  const auto gather = backend.create_stream("gather"), side = backend.create_stream("side");
  clocks.kernel(*side, 2);
  backend.wait(*gather, backend.record(*side));
  backend.occupy(*gather, "all_gather", 8, 4);  // 2 to 6
  clocks.kernel(*side, 7);
  backend.wait(*gather, backend.record(*side));
  backend.occupy(*gather, "all_gather", 8, 1);  // 9 to 10
  // 2 before, 2 beside the first, 3 between them, 0.5 beside the second, 2.5 after it.
  clocks.kernel(backend.compute_stream(), 10);
  CHECK(clocks.spans.back() == "compute 0 to 12.5");
  Tensor x = Tensor::empty(*host, Shape{1}, DType::kF32);
  host->run(host->compute_stream(), DivideArgs{x, 2});
  CHECK(host->finish_all() == 12.5);  // the host's 10 seconds
}

}  // namespace
}  // namespace fsdp::meta
