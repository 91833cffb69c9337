// What a checkpoint of GPT-2 124M on two ranks costs: how long training stops for it, how fast the
// copy and the write are beside memcpy and a plain write with fsync, how long a load takes beside
// reading the bytes. Prints what it measures, medians; limits are ratios of one run on one machine.
#include <chrono>
#include <cstring>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/support/checkpoint_run.h"
#include "tools/bench/statistics.h"
#include "tools/checkpoint/run_checkpoints.h"

namespace fsdp::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// As dd conv=fsync with a block size of 1 MiB, of all ranks' bytes into one file each.
double plain_write(const std::filesystem::path& file, size_t bytes) {
  const std::vector<char> block(size_t{1} << 20, 'x');
  return seconds_of([&] {
    const int out = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    for (size_t done = 0; done < bytes; done += block.size()) {
      REQUIRE(::write(out, block.data(), block.size()) == static_cast<ssize_t>(block.size()));
    }
    REQUIRE(::fsync(out) == 0);
    ::close(out);
  });
}

TEST_CASE("checkpoint.async: the stop, the copy and the write of GPT-2 124M on two ranks") {
  const test::TempFolder folder;
  config::TrainConfig config, waits;
  config.checkpoint.async = true;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    const bool speaks = world.rank() == 0;
    Session session = place_session(world, test::gpt2_124m());
    test::initialise_for_checkpoint(session);
    RunCheckpoints checkpoints(session, config, folder.path(), {});
    RunCheckpoints synchronous(session, waits, folder.path(), {});
    StagingMemory memory(session);
    const auto bytes = static_cast<double>(memory.bytes());
    std::vector<std::byte> from(memory.bytes(), std::byte{1}), to(memory.bytes(), std::byte{2});
    std::vector<double> plain, copied, stop, beside, written, direct, whole;
    for (int64_t i = 1; i <= 7; ++i) {  // each beside its measure, because machines are shared
      const auto timed = [&](std::vector<double>& all, const std::function<void()>& work) {
        world.barrier();
        all.push_back(seconds_of([&] {
          work();
          world.barrier();
        }));
      };
      timed(plain, [&] { std::memcpy(to.data(), from.data(), from.size()); });
      timed(copied, [&] { memory.copy(); });
      timed(stop, [&] { checkpoints.start({.steps = i}); });
      timed(written, [&] { checkpoints.finish(); });
      written.back() += stop.back();
      beside.push_back(stop.back() - copied.back());
      timed(direct,
            [&] { plain_write(folder / fmt::format("plain{}", world.rank()), memory.bytes()); });
      timed(whole, [&] { synchronous.write({.steps = 10 + i}); });
      if (!speaks) continue;
      std::filesystem::remove_all(checkpoints.folder_of(i));
      std::filesystem::remove_all(checkpoints.folder_of(10 + i));
    }
    if (!speaks) return;
    const auto median = [](const std::vector<double>& all) { return spread_of(all).median; };
    // Of neighbours: other programs slow both down.
    const auto ratio_of = [&](const std::vector<double>& a, const std::vector<double>& b) {
      std::vector<double> ratios;
      for (size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
      return median(ratios);
    };
    const double ratio = ratio_of(plain, copied), disk = ratio_of(direct, written);
    MESSAGE(fmt::format("{:.0f} MiB a rank: copy {:.1f} GB/s, memcpy {:.1f} GB/s ({:.0f} %)",
                        bytes / (1 << 20), bytes / median(copied) / 1e9,
                        bytes / median(plain) / 1e9, 100 * ratio));
    MESSAGE(
        fmt::format("training stops for {:.1f} ms, {:.1f} ms of it beside the copy; for {:.1f} ms "
                    "when it waits",
                    1e3 * median(stop), 1e3 * median(beside), 1e3 * median(whole)));
    MESSAGE(fmt::format("two ranks write {:.2f} GB/s, as dd conv=fsync {:.2f} GB/s ({:.0f} %)",
                        2 * bytes / median(written) / 1e9, 2 * bytes / median(direct) / 1e9,
                        100 * disk));
    CHECK(ratio >= 0.6);
    CHECK(median(beside) < 0.010);
    CHECK(disk >= 0.8);
  });
}

TEST_CASE("checkpoint: a load of GPT-2 124M on two ranks beside reading its bytes") {
  const test::TempFolder folder;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    Session session = place_session(world, test::gpt2_124m());
    test::initialise_for_checkpoint(session);
    write_checkpoint(session, folder / "step-0", {});
    world.barrier();
    const double plain = seconds_of([&] {
      std::vector<char> block(size_t{1} << 20);
      const Manifest manifest = read_manifest(folder / "step-0");
      const BlockChecksums& mine = manifest.files[static_cast<size_t>(world.rank())];
      const ReadableFile file(folder.path() / "step-0" / mine.name);
      for (size_t at = 0; at < mine.bytes; at += block.size()) {
        file.read_at(at, block.data(), std::min(block.size(), mine.bytes - at));
      }
      world.barrier();
    });
    const double load = seconds_of([&] {
      Checkpoint checkpoint(folder / "step-0");
      restore(session, checkpoint);
      world.barrier();
    });
    if (world.rank() != 0) return;
    MESSAGE(fmt::format("load {:.2f} s, reading the bytes {:.2f} s", load, plain));
    CHECK(load - plain < 3);
  });
}

}  // namespace
}  // namespace fsdp::tools
