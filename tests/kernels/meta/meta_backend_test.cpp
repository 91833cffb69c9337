// The backend without bytes: what it answers, what it counts, what it notes.
#include "kernels/meta/meta_backend.h"

#include <set>

#include <doctest/doctest.h>

#include "core/ops/linear.h"
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
  backend.add(*side, x, y, y);
  CHECK(calls == std::vector<std::string>{"compute allocate 128 blocks.1",
                                          "compute fill_zero 128 blocks.1",
                                          "compute allocate 128 blocks.1", "side copy 128 blocks.1",
                                          "side add 0 blocks.1"});
  MetaBackend other;
  CHECK_THROWS_WITH(other.add(*side, x, y, y),
                    "[add] stream side: belongs to another backend (meta)");
  CHECK_THROWS_WITH(backend.staging_memory(1),
                    "[meta] staging memory: transports reach what is not there as well as any");
}

}  // namespace
}  // namespace fsdp::meta
