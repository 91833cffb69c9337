// Inputs that wait on the host: what comes back, in any order and from slow streams; where memory
// is held, as a formula; blocks of the host that are used until the copies are done.
// Requirements: S4.11.
#include "core/host_inputs.h"

#include <cstring>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/support/removed_waits.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp {
namespace {

using SentPtr = std::shared_ptr<HostInputs::Sent>;
using Values = std::vector<double>;

constexpr int64_t kNumel = 384;
constexpr size_t kBytes = 4 * kNumel;  // a multiple of the granularity

size_t activations(Backend& backend) {
  return backend.ledger().usage().current[static_cast<size_t>(MemoryCategory::kActivation)];
}

// Streams with this name are slow.
cpu::CpuOptions slow(const std::string& name, int microseconds) {
  cpu::CpuOptions options;
  options.delay = [=](const std::string& stream, std::string_view) {
    return stream == name ? microseconds : 0;
  };
  return options;
}

Tensor input(Backend& backend, int number) {
  return test::random_tensor(backend, Shape{kNumel}, DType::kF32, static_cast<uint64_t>(number));
}

std::vector<SentPtr> sent(HostInputs& inputs, Backend& device, int count) {
  std::vector<SentPtr> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(inputs.send(input(device, i)));
    input(device, 100 + i);  // takes over memory that was given back
  }
  return all;
}

TEST_CASE("host inputs: come back as they went, in any order, whichever stream is slow") {
  cpu::CpuBackend reference;
  for (const std::string slow_stream : {"compute", "inputs_out", "inputs_in", "inputs", ""}) {
    CAPTURE(slow_stream);
    cpu::CpuBackend device(slow(slow_stream, 1000)), host(slow(slow_stream, 1000));
    HostInputs inputs(device, host);
    for (const std::vector<size_t>& order :
         {std::vector<size_t>{3, 2, 1, 0}, {0, 1, 2, 3}, {2, 0, 3, 1}}) {
      const std::vector<SentPtr> all = sent(inputs, device, 4);
      for (const size_t i : order) {
        const Values expected = input(reference, static_cast<int>(i)).to_doubles();
        const Tensor back = all[i]->take();
        const Tensor other = input(device, 7);
        CHECK(back.to_doubles() == expected);
      }
    }
  }
}

// On the device: the newest until the next one is sent, and when they come back the one that is
// taken and the one before it.
TEST_CASE("host inputs: at most two are on the device, and all that are sent on the host") {
  cpu::CpuBackend device, host;
  HostInputs inputs(device, host);
  std::vector<SentPtr> all;
  for (size_t i = 0; i < 4; ++i) {
    all.push_back(inputs.send(input(device, static_cast<int>(i))));
    CHECK(activations(device) == kBytes);
    CHECK(activations(host) == (i + 1) * kBytes);
  }
  for (size_t i = 4; i-- > 0;) {
    const Tensor back = all[i]->take();
    CHECK(activations(device) == (i > 0 ? 2 : 1) * kBytes);
    CHECK(activations(host) == i * kBytes);
  }
  CHECK(activations(device) == 0);
  CHECK(test::error_of([&] { all[0]->take(); }) ==
        "[host_inputs] take: expected one call, got a second");
}

TEST_CASE("host inputs: without rows, and views of larger memory") {
  cpu::CpuBackend device, host;
  HostInputs inputs(device, host);
  const SentPtr none = inputs.send(Tensor::empty(device, Shape{0, 5}, DType::kBF16));
  const Tensor whole = input(device, 1);
  const SentPtr part = inputs.send(whole.slice(10, Shape{2, 6}));
  const SentPtr last = inputs.send(input(device, 2));
  CHECK(last->take().to_doubles() == input(device, 2).to_doubles());
  CHECK(part->take().to_doubles() == whole.slice(10, Shape{12}).to_doubles());
  CHECK(none->take().shape() == Shape{0, 5});
}

// Blocks that are given back are written over, as those of a pool that others share.
class Blocks {
 public:
  cpu::CpuOptions options() {
    cpu::CpuOptions out;
    out.memory = [this](size_t bytes) {
      all_.push_back(std::make_unique<std::byte[]>(bytes));
      return std::shared_ptr<std::byte>(
          all_.back().get(), [bytes](std::byte* block) { std::memset(block, 0x7f, bytes); });
    };
    return out;
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> all_;
};

// What is left out between the streams, if anything; a block is gone before it was copied from.
Values taken_while(const std::string& slow_stream, const std::string& removed) {
  cpu::CpuBackend device(slow(slow_stream, 20000));
  Blocks blocks;
  cpu::CpuOptions of_host = blocks.options();
  of_host.ignore_wait = [=](const std::string& waiting, const std::string& recorded) {
    return waiting == "inputs" && recorded == removed;
  };
  cpu::CpuBackend host(of_host);
  HostInputs inputs(device, host);
  const std::vector<SentPtr> all = sent(inputs, device, 3);
  device.synchronize(device.compute_stream());
  all[2]->take();
  const Tensor back = all[1]->take();
  return back.to_doubles();
}

TEST_CASE("host inputs: a block of the host is there until it has been copied from") {
  cpu::CpuBackend reference;
  const Values expected = input(reference, 1).to_doubles();
  CHECK(taken_while("inputs_in", "no such stream") == expected);
  if (!test::kThreadSanitizer) CHECK(taken_while("inputs_in", "inputs_in") != expected);
}

TEST_CASE("host inputs: whose backward never comes, and after an error") {
  Blocks blocks;
  cpu::CpuBackend device(slow("inputs_out", 2000)), host(blocks.options());
  HostInputs inputs(device, host);
  sent(inputs, device, 3);  // gone at once
  CHECK(activations(device) == 0);
  CHECK(activations(host) == 0);
  const SentPtr before = inputs.send(input(device, 1));
  device.host_task(device.compute_stream(), "test", 0, [] { fail("on purpose"); });
  {
    const std::vector<SentPtr> lost = sent(inputs, device, 2);
    lost[1]->take();
  }
  CHECK_THROWS_AS(device.synchronize(device.compute_stream()), Error);
  inputs.recover();
  const SentPtr after = inputs.send(input(device, 2));
  const SentPtr last = inputs.send(input(device, 3));
  last->take();
  CHECK(after->take().to_doubles() == input(device, 2).to_doubles());
}

}  // namespace
}  // namespace fsdp
