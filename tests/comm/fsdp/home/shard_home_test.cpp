// Homes of all kinds keep the same values through the same calls, with every stream slow at times.
#include "comm/fsdp/home/shard_home.h"

#include <doctest/doctest.h>

#include "comm/fsdp/home/file_home.h"
#include "comm/local_transport.h"
#include "core/layer_args.h"
#include "core/shard_args.h"
#include "kernels/cpu/file_backend.h"
#include "tests/support/sharded_run.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;

namespace {

constexpr int64_t kCount = 1500;

enum class Kind : uint8_t { kDevice, kHost, kHostAll, kFile };

// The homes of a rank that has three units.
struct Rig {
  Rig(Communicator& world, Kind kind, uint64_t seed)
      : device(test::random_delays(seed, 300)),
        host(test::random_delays(seed + 1, 300)),
        file(folder.path(), "rank 0", test::random_delays(seed + 2, 300)),
        gather(device.create_stream("gather")),
        reduce(device.create_stream("reduce")),
        homes(
            make(kind, {device, *gather, *reduce, world, BufferPool::Lifetime::kUntilGivenBack})) {}

  std::unique_ptr<ShardHomes> make(Kind kind, const HomeRank& rank) {
    if (kind == Kind::kFile) return std::make_unique<FileHomes>(rank, host, file);
    if (kind == Kind::kDevice) return std::make_unique<ShardHomes>(rank);
    const bool keeps = kind == Kind::kHost;
    return std::make_unique<HostHomes>(rank, host, DeviceKeeps{keeps, keeps});
  }
  ~Rig() { synchronize(); }
  void synchronize() {
    for (Stream* stream : homes->streams()) stream->backend().synchronize(*stream);
    for (Stream* stream : {gather.get(), reduce.get(), &device.compute_stream()}) {
      device.synchronize(*stream);
    }
  }

  test::TempFolder folder;
  cpu::CpuBackend device, host;
  cpu::FileBackend file;
  std::unique_ptr<Stream> gather, reduce;
  std::unique_ptr<ShardHomes> homes;
};

struct Shard {
  Shard(Rig& rig, DType dtype, bool resident)
      : slot(Tensor::zeros(rig.device, Shape{kCount}, dtype)),
        gradient(Storage::unbound(rig.device, kCount * sizeof(float), MemoryCategory::kGradient), 0,
                 Shape{kCount}, DType::kF32),
        home(rig.homes->keep({.unit = "unit",
                              .numel = kCount,
                              .dtype = dtype,
                              .slot = slot,
                              .resident = resident})) {
    home->keep_gradient(gradient, false);
  }
  Tensor slot, gradient;
  std::shared_ptr<ShardHome> home;
};

struct Model {
  Model(Rig& rig, DType dtype, bool resident)
      : ones(Tensor::from_host(rig.device, Shape{kCount}, std::vector<float>(kCount, 1))) {
    for (int i = 0; i < 3; ++i) shards.emplace_back(rig, dtype, resident);
    rig.homes->keep_flags(Tensor::zeros(rig.device, Shape{3}, DType::kI32));
    rig.homes->allocate();
    rig.homes->allocate_pages();
  }
  Tensor ones;
  std::vector<Shard> shards;
};

// Masters of 0, 100, 200.
void write_masters(Rig& rig, Model& model) {
  rig.homes->before_masters_are_written();
  float value = 0;
  for (Shard& shard : model.shards) {
    shard.home->stored().master.write(std::vector<float>(kCount, value).data());
    value += 100;
  }
  rig.homes->masters_written();
  for (Shard& shard : model.shards) shard.home->written();
  rig.homes->updated();
}

// Two reductions: gradient = 1, then gradient += 2.
void reduce(Rig& rig, Model& model) {
  Backend& device = rig.device;
  Stream& stream = *rig.reduce;
  for (const bool adds : {false, true}) {
    for (Shard& shard : model.shards) {
      Tensor& gradient = shard.gradient;
      shard.home->allocate_gradient();
      shard.home->lend_gradient(adds);
      device.wait(stream, device.record(device.compute_stream()));
      if (!adds) device.fill_zero(stream, gradient.data(), gradient.bytes());
      for (int i = 0; i <= static_cast<int>(adds); ++i) {
        device.run(stream, AddArgs{gradient, model.ones, gradient});
      }
      const EventPtr reduced = device.record(stream);
      shard.home->store_gradient(reduced, adds);
      device.wait(device.compute_stream(), reduced);
    }
  }
  rig.homes->hand_over();
}

// master += gradient, as an optimizer does.
void update(Rig& rig, Model& model) {
  for (Shard& shard : model.shards) {
    shard.home->begin(ShardAccess::Use::kUpdate);
    ShardHome::Tensors tensors = shard.home->for_optimizer();
    Backend& backend = tensors.master.backend();
    backend.run(backend.compute_stream(),
                AddArgs{tensors.master, tensors.gradient, tensors.master});
    if (tensors.copy.defined())
      backend.run(backend.compute_stream(), CastArgs{tensors.master, tensors.copy});
    shard.home->end(ShardAccess::Use::kUpdate);
    shard.home->clear_gradient();
  }
  rig.homes->set_updates(rig.homes->updates() + 1);
  rig.homes->updated();
}

// What each of the slots has after a fetch. The slots had zeros before, unless they are resident.
std::vector<double> fetch(Rig& rig, Model& model, bool resident) {
  Backend& device = rig.device;
  std::vector<double> results;
  for (Shard& shard : model.shards) {
    const Tensor& slot = shard.slot;
    if (!resident) device.fill_zero(device.compute_stream(), slot.data(), slot.bytes());
    const EventPtr free = device.record(device.compute_stream());
    device.wait(*rig.gather, shard.home->fetch(free));
    device.wait(device.compute_stream(), device.record(*rig.gather));
    const std::vector<double> values = slot.to_doubles();
    CHECK(values == std::vector<double>(kCount, values[0]));
    results.push_back(values[0]);
  }
  return results;
}

}  // namespace

TEST_CASE("a home of any kind: values for gathers, gradients added up, updates by the optimizer") {
  run_local_ranks(1, [&](Communicator& world) {
    for (const Kind kind : {Kind::kDevice, Kind::kHost, Kind::kHostAll, Kind::kFile}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const bool resident : {false, true}) {
          CAPTURE(static_cast<int>(kind));
          CAPTURE(name_of(dtype));
          CAPTURE(resident);
          Rig rig(world, kind, 1);
          Model model(rig, dtype, resident);
          write_masters(rig, model);
          for (double sum = 3; sum <= 9; sum += 3) {
            reduce(rig, model);
            update(rig, model);
            CHECK(fetch(rig, model, resident) == std::vector<double>{sum, 100 + sum, 200 + sum});
            rig.homes->give_back();
          }
        }
      }
    }
  });
}

TEST_CASE("a home of any kind: what is frozen stays, what was dropped is not there") {
  run_local_ranks(1, [&](Communicator& world) {
    for (const Kind kind : {Kind::kDevice, Kind::kHost, Kind::kHostAll, Kind::kFile}) {
      CAPTURE(static_cast<int>(kind));
      Rig rig(world, kind, 1);
      const Tensor slot = Tensor::zeros(rig.device, Shape{kCount}, DType::kF32);
      const auto home = rig.homes->keep(
          {.unit = "unit", .numel = kCount, .trainable = false, .slot = slot, .resident = false});
      rig.homes->allocate();
      rig.homes->allocate_pages();
      home->stored().master.write(std::vector<float>(kCount, 7).data());
      rig.homes->masters_written();
      home->written();
      rig.homes->updated();
      rig.homes->drop_gradients();
      rig.synchronize();
      rig.homes->forget_events();
      home->forget_events();
      CHECK(!home->for_optimizer().gradient.defined());
      rig.device.wait(*rig.gather, home->fetch(nullptr));
      rig.device.wait(rig.device.compute_stream(), rig.device.record(*rig.gather));
      CHECK(slot.to_doubles() == std::vector<double>(kCount, 7));
    }
  });
}
