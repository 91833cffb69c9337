// Memory and order of the CUDA backend: streams, events (also those of the CPU backend and towards
// it), host tasks and their errors, read_later, the ledger, out of memory, traces.
#include <atomic>
#include <chrono>
#include <thread>

#include <cuda_runtime_api.h>

#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void pause(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST_CASE("host tasks run in the order of the stream, before and after its kernels") {
  on_gpu([](cuda::CudaBackend& gpu) {
    Stream& stream = gpu.compute_stream();
    Tensor x = Tensor::zeros(gpu, {3}, DType::kF32);
    std::vector<float> seen(3, -1.0f), values = {1, 2, 3};
    std::atomic<bool> arrived = false;
    const EventPtr early = gpu.read_later(stream, seen.data(), x.data(), x.bytes(), [&] {
      CHECK(seen == std::vector<float>(3, 0.0f));
      arrived = true;
    });
    std::atomic<bool> ran = false;
    gpu.host_task(stream, "slow", 0, [&] {
      pause(5);
      ran = true;
    });
    x.write(values.data());
    std::vector<float> later(3);
    const EventPtr late = gpu.read_later(stream, later.data(), x.data(), x.bytes(), nullptr);
    early->wait();
    CHECK(arrived);
    CHECK(seen == std::vector<float>(3, 0.0f));
    late->wait();
    CHECK(late->ready());
    CHECK(ran);
    CHECK(later == values);
  });
}

TEST_CASE("to ask for an event that is not ready leaves no error behind") {
  on_gpu([](cuda::CudaBackend& gpu) {
    Stream& stream = gpu.compute_stream();
    std::atomic<bool> asked = false;
    gpu.host_task(stream, "slow", 0, [&] {
      while (!asked) pause(1);
    });
    Tensor::zeros(gpu, {3}, DType::kF32);  // behind the task, on the GPU
    const EventPtr event = gpu.record(stream);
    CHECK_FALSE(event->ready());
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    asked = true;
    event->wait();
  });
}

TEST_CASE("events order streams of the GPU and of the CPU, in both directions") {
  on_gpu([](cuda::CudaBackend& gpu) {
    cpu::CpuBackend cpu;
    const auto side = gpu.create_stream("side");
    Stream& compute = gpu.compute_stream();
    Tensor x = Tensor::zeros(gpu, {1}, DType::kF32), y = Tensor::zeros(gpu, {1}, DType::kF32);
    gpu.wait(*side, gpu.record(compute));
    std::atomic<int> stage = 0;
    cpu.host_task(cpu.compute_stream(), "slow", 0, [&] {
      pause(5);
      stage = 1;
    });
    gpu.wait(compute, cpu.record(cpu.compute_stream()));  // the GPU waits for the CPU
    gpu.run(compute, FillNormalArgs{x, 3, 0, 0, 0, 0});
    std::atomic<int> seen = -1;
    gpu.host_task(compute, "look", 0, [&] { seen = stage.load(); });
    gpu.wait(*side, gpu.record(compute));  // one stream for the other
    gpu.copy(*side, y.data(), x.data(), y.bytes());
    cpu.wait(cpu.compute_stream(), gpu.record(*side));  // the CPU for the GPU
    std::atomic<int> after = 0;
    cpu.host_task(cpu.compute_stream(), "after", 0, [&] { after = seen.load() + 1; });
    cpu.synchronize(cpu.compute_stream());
    CHECK(seen == 1);
    CHECK(after == 2);
    gpu.wait(compute, gpu.record(*side));
    CHECK(y.item() == 3);
    gpu.wait(compute, nullptr);  // nothing
  });
}

TEST_CASE("a copy of the GPU waits for a stream of the CPU") {
  on_gpu([](cuda::CudaBackend& gpu) {
    cpu::CpuBackend cpu;
    const std::shared_ptr<std::byte> pinned = gpu.staging_memory(sizeof(float));
    auto* const value = reinterpret_cast<float*>(pinned.get());
    *value = 1;
    Tensor x = Tensor::zeros(gpu, {1}, DType::kF32);
    cpu.host_task(cpu.compute_stream(), "slow", 0, [value] {
      pause(10);
      *value = 2;
    });
    gpu.wait(gpu.compute_stream(), cpu.record(cpu.compute_stream()));
    gpu.copy(gpu.compute_stream(), x.data(), value, x.bytes());
    CHECK(x.item() == 2);
  });
}

TEST_CASE("in synchronous mode an operation is done when its call returns") {
  on_gpu(
      [](cuda::CudaBackend& gpu) {
        const std::shared_ptr<std::byte> pinned = gpu.staging_memory(sizeof(float));
        auto* const value = reinterpret_cast<float*>(pinned.get());
        *value = 1;
        Tensor x = Tensor::zeros(gpu, {1}, DType::kF32);
        gpu.host_task(gpu.compute_stream(), "slow", 0, [] { pause(10); });
        gpu.copy(gpu.compute_stream(), value, x.data(), x.bytes());
        CHECK(*value == 0);
      },
      {.synchronous = true});
}

TEST_CASE("an error of a host task travels along events until synchronize rethrows it") {
  on_gpu([](cuda::CudaBackend& gpu) {
    const auto side = gpu.create_stream("side");
    std::atomic<int> ran = 0;
    gpu.set_scope("h.3");
    gpu.host_task(*side, "boom", 0, [] { fail("it broke"); });
    gpu.set_scope("");
    gpu.host_task(*side, "later", 0, [&] { ++ran; });
    const EventPtr event = gpu.record(*side);
    CHECK(message_of([&] { event->wait(); }) == "[h.3] boom: it broke");
    gpu.wait(gpu.compute_stream(), event);
    gpu.host_task(gpu.compute_stream(), "later", 0, [&] { ++ran; });
    CHECK(message_of([&] { gpu.synchronize(gpu.compute_stream()); }) == "[h.3] boom: it broke");
    CHECK(message_of([&] { gpu.synchronize(*side); }) == "[h.3] boom: it broke");
    CHECK(ran == 0);
    gpu.host_task(gpu.compute_stream(), "again", 0, [&] { ++ran; });
    gpu.synchronize(gpu.compute_stream());
    CHECK(ran == 1);
  });
}

TEST_CASE("the ledger counts by category, and out of memory prints it") {
  on_gpu([](cuda::CudaBackend& gpu) {
    {
      const Storage storage(gpu, 1000, MemoryCategory::kGradient);
      CHECK(gpu.ledger().usage().current[static_cast<size_t>(MemoryCategory::kGradient)] == 1024);
    }
    CHECK(gpu.ledger().usage().total_current == 0);
    const std::string message =
        message_of([&] { Storage(gpu, size_t{1} << 50, MemoryCategory::kOptimizerState); });
    CHECK(
        message.starts_with("[allocate] 1125899906842624 bytes of optimizer state on stream "
                            "compute: out of memory ("));
    CHECK(message.find("free outside the pool") != std::string::npos);
    CHECK(message.find("optimizer state") != std::string::npos);
    Tensor x = Tensor::zeros(gpu, {4}, DType::kF32);  // it goes on
    CHECK(x.to_doubles() == Values(4, 0.0));
  });
}

TEST_CASE("a trace has kernels, copies and host tasks in the order of their stream") {
  on_gpu([](cuda::CudaBackend& gpu) {
    Trace trace;
    gpu.set_trace(&trace);
    gpu.set_scope("h.1");
    Tensor x = Tensor::zeros(gpu, {1000}, DType::kF32);
    gpu.run(gpu.compute_stream(), DivideArgs{x, 2});
    gpu.host_task(gpu.compute_stream(), "all_gather", 64, [] { pause(2); });
    gpu.run(gpu.compute_stream(), DivideArgs{x, 3});
    gpu.set_scope("");
    gpu.synchronize(gpu.compute_stream());
    gpu.set_trace(nullptr);
    std::vector<std::string> names;
    const std::vector<TraceEvent> events = trace.events();
    for (const TraceEvent& event : events) {
      names.push_back(event.name);
      CHECK(event.lane == "compute");
      CHECK(event.scope == "h.1");
      CHECK(event.begin_ns <= event.end_ns);
    }
    CHECK(names == std::vector<std::string>{"fill_zero", "divide", "all_gather", "divide"});
    CHECK(events.back().begin_ns + 100000 >= events[2].end_ns);
    CHECK(events[2].bytes == 64);
  });
}

TEST_CASE("a trace that begins behind slow work tells when its operations ran") {
  on_gpu([](cuda::CudaBackend& gpu) {
    Trace trace;
    const int64_t begin = trace_clock_ns();
    gpu.host_task(gpu.compute_stream(), "slow", 0, [] { pause(20); });
    gpu.set_trace(&trace);
    Tensor x = Tensor::zeros(gpu, {1000}, DType::kF32);
    gpu.synchronize(gpu.compute_stream());
    gpu.set_trace(nullptr);
    REQUIRE(trace.events().size() == 1);
    CHECK(trace.events()[0].begin_ns + 100000 >= begin + 20000000);
  });
}

TEST_CASE("a stream of another backend is refused") {
  on_gpu([](cuda::CudaBackend& gpu) {
    cpu::CpuBackend cpu;
    CHECK(message_of([&] { gpu.record(cpu.compute_stream()); }) ==
          "[record] stream compute: belongs to another backend (cpu)");
  });
}

}  // namespace
}  // namespace fsdp::test
