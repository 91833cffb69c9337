// Storage: bytes that are dropped, refilled or borrowed while views of it stay valid.
#include <doctest/doctest.h>

#include "core/tensor.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using test::error_of;

size_t in_use(Backend& backend, MemoryCategory category) {
  return backend.ledger().usage().current[static_cast<size_t>(category)];
}

TEST_CASE("drop gives the bytes back, refill takes new ones, views live through both") {
  cpu::CpuBackend backend;
  auto storage = std::make_shared<Storage>(backend, 4000, MemoryCategory::kCommunication);
  const Tensor all(storage, 0, Shape{1000}, DType::kF32);
  const Tensor tail = all.slice(990, Shape{2, 5});
  CHECK(in_use(backend, MemoryCategory::kCommunication) == 4096);
  storage->drop();
  CHECK(in_use(backend, MemoryCategory::kCommunication) == 0);
  CHECK_FALSE(storage->has_data());
  CHECK(error_of([&] { all.data(); }) ==
        "[storage] tensor: 4000 bytes were dropped; expected to be unsharded here");
  storage->drop();  // nothing left: no double release
  storage->refill();
  storage->refill();  // has bytes: keeps them
  CHECK(in_use(backend, MemoryCategory::kCommunication) == 4096);
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  tail.write(values.data());
  CHECK(all.slice(992, Shape{3}).to_host<float>() == std::vector<float>{3, 4, 5});
}

TEST_CASE("a bound storage borrows: views see the memory, nothing is counted or freed") {
  cpu::CpuBackend backend;
  auto storage = Storage::unbound(backend, 64, MemoryCategory::kUnshardedParameter);
  const Tensor view(storage, 32, Shape{8}, DType::kF32);
  storage->set_label("parameters of unit blocks.1");
  CHECK(error_of([&] { view.data(); }) ==
        "[storage] parameters of unit blocks.1: 64 bytes were dropped; expected to be unsharded "
        "here");
  std::vector<float> memory(16);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  storage->bind(memory.data());
  CHECK(view.data() == memory.data() + 8);
  CHECK(view.to_host<float>() == std::vector<float>{8, 9, 10, 11, 12, 13, 14, 15});
  storage->unbind();
  CHECK_FALSE(storage->has_data());
  std::vector<float> other(16, 3.0f);
  storage->bind(other.data());  // the same view, other memory
  CHECK(view.to_host<float>() == std::vector<float>(8, 3.0f));
  storage->drop();  // of borrowed memory: lets go of it
  CHECK_FALSE(storage->has_data());
  CHECK(backend.ledger().usage().total_peak == 0);
}

TEST_CASE("binding an owner gives its own bytes back first; unbinding them is an error") {
  cpu::CpuBackend backend;
  Storage storage(backend, 100, MemoryCategory::kGradient);
  CHECK(error_of([&] { storage.unbind(); }) == "[storage] : unbind of owned bytes; drop() them");
  std::vector<std::byte> memory(100);
  storage.bind(memory.data());
  CHECK(in_use(backend, MemoryCategory::kGradient) == 0);
  CHECK(storage.data() == memory.data());
}

TEST_CASE("a storage without bytes always has its data") {
  cpu::CpuBackend backend;
  Storage storage(backend, 0, MemoryCategory::kActivation);
  CHECK(storage.has_data());
  CHECK(storage.data() == nullptr);
  storage.drop();
  storage.refill();
  CHECK(storage.has_data());
}

TEST_CASE("the last owner of a storage releases it in its category") {
  cpu::CpuBackend backend;
  {
    const Tensor a = Tensor::empty(backend, Shape{3}, DType::kF64, MemoryCategory::kWorkspace);
    const Tensor b = a.view(Shape{1, 3});
    CHECK(in_use(backend, MemoryCategory::kWorkspace) == 512);
  }
  CHECK(in_use(backend, MemoryCategory::kWorkspace) == 0);
}

}  // namespace
}  // namespace fsdp
