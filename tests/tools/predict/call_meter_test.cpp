// Times of calls: on which memory, how often, and what is refused.
#include "tools/predict/call_meter.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/meta/meta_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// Calls described on a backend without bytes.
struct Described {
  meta::KernelCall product(int64_t side) {
    const Tensor a = tensor(Shape{side, side}), b = tensor(Shape{side, side});
    Tensor c = tensor(Shape{side, side});
    return meta::kernel_call(MatmulArgs{.a = a, .b = b, .c = c});
  }
  Tensor tensor(Shape shape, DType dtype = DType::kF32) {
    return Tensor::empty(backend, shape, dtype);
  }
  meta::MetaBackend backend;
};

// Notes on which memory the call under it is made.
meta::KernelCall noting(meta::KernelCall call, std::vector<const void*>& near,
                        std::vector<const void*>& far) {
  call.prepare = [&near, &far, inner = call.prepare](meta::CallTensors& tensors) {
    struct Noting final : meta::CallTensors {
      Tensor make(const meta::TensorForm& form) override {
        Tensor made = tensors->make(form);
        if (made.defined()) (form.role.from_memory ? far : near)->push_back(made.data());
        return made;
      }
      meta::CallTensors* tensors;
      std::vector<const void*>*near, *far;
    } noting;
    noting.tensors = &tensors;
    noting.near = &near;
    noting.far = &far;
    return inner(noting);
  };
  return call;
}

TEST_CASE("call meter: a call's weights are never where they were, its activations always") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu, {.cache_bytes = 1 << 16});
  Described described;
  std::vector<const void*> near, far;
  const meta::KernelCall call = noting(described.product(16), near, far);
  for (int i = 0; i < 5; ++i) CHECK(*meter.time_once(call) > 0);
  REQUIRE(far.size() == 5);
  CHECK(std::set<const void*>(far.begin(), far.end()).size() == 5);
  CHECK(near.size() == 10);  // a and c
  CHECK(std::set<const void*>(near.begin(), near.end()).size() == 2);
}

// A clip coefficient's flag was the optimizer's: after a norm that was not finite nothing was
// timed.
TEST_CASE("call meter: what one call writes into a flag is not what the next one reads") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu, {.cache_bytes = 1 << 16});
  std::vector<int32_t> read;
  const meta::KernelCall call = {
      .kernel = "flag", .prepare = [&read](meta::CallTensors& tensors) -> meta::KernelRun {
        Tensor flag = tensors.make({.shape = Shape{}, .dtype = DType::kI32, .role = kIn.zeros()});
        if (!flag.defined()) return {};  // only its size is asked for
        read.push_back(flag.to_host<int32_t>().front());
        const int32_t skip = 1;
        flag.write(&skip);
        return [](Backend&, Stream&) {};
      }};
  for (int i = 0; i < 3; ++i) static_cast<void>(meter.time_once(call));
  CHECK(read.size() >= 3);
  CHECK(std::count(read.begin(), read.end(), 0) == static_cast<int64_t>(read.size()));
}

TEST_CASE("call meter: attention of documents is timed with documents") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu, {.cache_bytes = 1 << 16});
  std::vector<int32_t> read;
  const meta::KernelCall call = {
      .kernel = "documents", .prepare = [&read](meta::CallTensors& tensors) -> meta::KernelRun {
        const Tensor first =
            tensors.make({.shape = Shape{2, 5}, .dtype = DType::kI32, .role = kIn.documents(3)});
        if (first.defined()) read = first.to_host<int32_t>();
        return [](Backend&, Stream&) {};
      }};
  static_cast<void>(meter.time_once(call));
  CHECK(read == std::vector<int32_t>{0, 0, 0, 3, 3, 0, 0, 0, 3, 3});
}

TEST_CASE(
    "call meter: tensors of a call that share memory share it again; flags have their values") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu);
  Described described;
  Tensor x = described.tensor(Shape{8});
  std::vector<const void*> near, far;
  const meta::KernelCall in_place =
      noting(meta::kernel_call(AddArgs{x, described.tensor(Shape{8}), x}), near, far);
  meter.time_once(in_place);
  REQUIRE(far.size() == 3);
  CHECK(far[0] == far[2]);
  CHECK(far[0] != far[1]);
  // Ids within the table, though it is all that the table has.
  const Tensor ids = described.tensor(Shape{2, 3}, DType::kI32),
               table = described.tensor(Shape{1, 4});
  Tensor y = described.tensor(Shape{2, 3, 4});
  CHECK(meter.time_once(meta::kernel_call(EmbeddingForwardArgs{ids, table, nullptr, 0, y})));
}

TEST_CASE("call meter: what takes too much memory or time is not measured") {
  cpu::CpuBackend cpu;
  Described described;
  CallMeter small(cpu, {.cache_bytes = 1 << 12, .most_bytes = 3 * 64 * 64 * 4});
  CHECK(small.measure(described.product(64)));
  CHECK(!small.measure(described.product(65)));
  CallMeter brief(cpu, {.cache_bytes = 1 << 12, .seconds_each = 0, .seconds_all = 1e-4});
  CHECK(!brief.measure(described.product(4096)));  // known beforehand
  int measured = 0;
  while (brief.measure(described.product(64)) && measured < 100000) ++measured;
  CHECK(measured > 0);
  CHECK(measured < 100000);
}

// A call that takes as many milliseconds as `next` says.
meta::KernelCall sleeping(std::function<int()> next) {
  return {.kernel = "sleep", .prepare = [next](meta::CallTensors&) -> meta::KernelRun {
            return [next](Backend& backend, Stream& stream) {
              const std::chrono::milliseconds pause(next());
              backend.host_task(stream, "sleep", 0, [=] { std::this_thread::sleep_for(pause); });
            };
          }};
}

TEST_CASE("call meter: repetitions until three are alike; else something disturbs them") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu, {.cache_bytes = 1 << 12, .seconds_each = 0.2});
  int calls = 0, slower = 0;
  CHECK(*meter.measure(sleeping([&] { return ++calls, 10; })) >= 0.01);
  CHECK(calls >= 1 + 3);  // one to begin with, three that are alike
  calls = 0;
  const double least = *meter.measure(sleeping([&] { return ++calls, slower += 2; }));
  CHECK(least >= 0.004);
  CHECK(calls > 4);              // 4, 6, 8, 10 ms and more, for a second
  CHECK(meter.was_disturbed());  // by one of two calls
}

TEST_CASE("call meter: the first call takes another time at the end than at first") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu, {.cache_bytes = 1 << 12, .seconds_each = 0.02});
  CHECK(!meter.was_disturbed());  // nothing was measured
  int ms = 20;
  meter.measure(sleeping([&] { return ms; }));
  ms = 10;
  CHECK(meter.was_disturbed());
}

TEST_CASE("call meter: this machine") {
  cpu::CpuBackend cpu;
  CallMeter meter(cpu, {.cache_bytes = 1 << 20, .seconds_each = 0});
  const Rates rates = measured_machine(meter, "a name");
  CHECK(rates.machine == "a name");
  CHECK(rates.flops_per_s.size() == 4);
  for (const auto& [dtype, flops_per_s] : rates.flops_per_s) {
    CHECK(flops_per_s > 1e6);
    CHECK(flops_per_s < 1e15);
  }
  CHECK(rates.memory_bytes_per_s > 1e7);
  CHECK(rates.memory_bytes_per_s < 1e13);
  CHECK(rates.host_memory_bytes_per_s == 0);  // the host is this machine
}

}  // namespace

TEST_CASE("disk meter: rates of a folder, and nothing is left in it") {
  const test::TempFolder folder;
  const DiskRates rates = measure_disk(folder.path(), (size_t{3} << 20) + 5);
  for (const LinkRate& rate : {rates.read, rates.write}) {
    CHECK(rate.bytes_per_s > 1e5);
    CHECK(rate.bytes_per_s < 1e12);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("disk meter: a folder that is missing is named") {
  CHECK(
      test::contains(test::error_of([] { measure_disk("no such folder", 1); }), "no such folder"));
}

}  // namespace fsdp::tools
