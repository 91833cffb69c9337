// Tensors that come from a file and go back: the bits of tensors that stay, whatever overtakes
// what, two buffers for any number of shards. Requirements: S2.16.
#include "comm/fsdp/home/paged_tensors.h"

#include <doctest/doctest.h>

#include "core/layer_args.h"
#include "kernels/cpu/file_backend.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using test::contains;
using test::error_of;
using What = PagedTensors::What;

namespace {

struct Rig {
  explicit Rig(uint64_t seed = 0)
      : host(test::random_delays(seed, 500)),
        file(folder.path(), "rank 0", test::random_delays(seed + 1, 500)),
        in(file.create_stream("in")),
        out(file.create_stream("out")),
        buffers(host, file, *in, *out) {}

  test::TempFolder folder;
  cpu::CpuBackend host;
  cpu::FileBackend file;
  std::unique_ptr<Stream> in, out;
  PageBuffers buffers;
};

}  // namespace

TEST_CASE("paged tensors: what the host changes is in the file, what it is given is not") {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Rig rig(seed);
    struct Shard {
      explicit Shard(PageBuffers& buffers, int64_t n)
          : paged(buffers),
            state(paged.add(Shape{n}, DType::kF32, MemoryCategory::kOptimizerState)),
            given(paged.add(Shape{n}, DType::kF32, MemoryCategory::kGradient,
                            PagedTensors::Kind::kGiven)) {}
      PagedTensors paged;
      PagedTensors::Paged state, given;
    };
    std::list<Shard> shards;
    for (const int64_t n : {5, 3000, 1024, 1, 77}) shards.emplace_back(rig.buffers, n);
    rig.buffers.allocate();
    for (Shard& shard : shards) {
      const std::vector<float> ones(static_cast<size_t>(shard.given.home.numel()), 1);
      shard.given.home.write(ones.data());
    }
    Tensor sum = Tensor::zeros(rig.host, Shape{}, DType::kF32);
    Backend& host = rig.host;
    for (int step = 0; step < 4; ++step) {
      for (Shard& shard : shards) {  // read alone
        shard.paged.bring_in(What::kGiven);
        host.run(host.compute_stream(), AddArgs{sum, shard.given.here.slice(0, Shape{}), sum});
        shard.paged.give_back();
      }
      for (Shard& shard : shards) {
        shard.paged.bring_in(What::kAll);
        Tensor state = shard.state.here, given = shard.given.here;
        host.run(host.compute_stream(), AddArgs{state, given, state});
        host.fill_zero(host.compute_stream(), given.data(), given.bytes());  // not written back
        shard.paged.give_back();
        CHECK(!shard.state.here.storage()->has_data());
      }
    }
    for (Shard& shard : shards) {
      const auto n = static_cast<size_t>(shard.state.home.numel());
      CHECK(shard.state.home.to_host<float>() == std::vector<float>(n, 4));
      CHECK(shard.given.home.to_host<float>() == std::vector<float>(n, 1));
    }
    CHECK(sum.item() == 20);
  }
}

TEST_CASE("paged tensors: memory is two buffers of the largest, the file has whole pages") {
  Rig rig;
  PagedTensors a(rig.buffers), b(rig.buffers);
  a.add(Shape{1500}, DType::kF32, MemoryCategory::kOptimizerState);
  a.add(Shape{3}, DType::kBF16, MemoryCategory::kParameterShard);
  b.add(Shape{9}, DType::kF64, MemoryCategory::kOptimizerState);
  rig.buffers.allocate();
  const auto state = static_cast<size_t>(MemoryCategory::kOptimizerState);
  // Pages of the tensors, and one to begin at a page.
  CHECK(rig.host.ledger().usage().current[state] == 2 * (3 + 1) * kFileBlock);
  CHECK(rig.file.ledger().usage().current[state] == 3 * kFileBlock);
  CHECK(rig.file.ledger().usage().total_current == 4 * kFileBlock);
  for (int i = 0; i < 3; ++i) {
    a.bring_in(What::kAll);
    a.give_back();
  }
  CHECK(rig.host.ledger().usage().total_peak == 2 * (3 + 1) * kFileBlock);
}

TEST_CASE("paged tensors: out of order") {
  Rig rig;
  PagedTensors a(rig.buffers);
  const auto paged = a.add(Shape{4}, DType::kF32, MemoryCategory::kOptimizerState);
  rig.buffers.allocate();
  CHECK(contains(error_of([&] { a.give_back(); }), "expected tensors that were brought in"));
  CHECK(contains(error_of([&] { static_cast<void>(paged.here.data()); }),
                 "a shard that is in its file"));
  a.bring_in(What::kAll);
  CHECK(contains(error_of([&] { a.bring_in(What::kAll); }), "expected tensors that are at home"));
  a.give_back();
  CHECK(contains(error_of([&] { a.add(Shape{4}, DType::kF32, MemoryCategory::kOptimizerState); }),
                 "expected before the buffers are made"));
}
