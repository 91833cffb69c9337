// Windows between "processes" that are threads here: the same pages under several addresses.
#include "comm/shared_window.h"

#include <cstdio>
#include <cstring>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

SharedWindow::Result make(Communicator& world, size_t bytes, PeerAccess access,
                          const std::string& refusal = "") {
  return SharedWindow::create([&](const std::string& mine) { return world.exchange(mine); },
                              {world.rank(), world.size(), bytes, access, refusal});
}

}  // namespace

TEST_CASE("what a rank writes in its region, its peers read") {
  run_local_ranks(3, [](Communicator& world) {
    for (const size_t bytes : {size_t{1}, size_t{4097}, size_t{1} << 20}) {
      const auto [window, problem] = make(world, bytes, PeerAccess::kRead);
      REQUIRE(window);
      CHECK(problem.empty());
      CHECK(window->bytes() == bytes);
      std::memset(window->data(world.rank()), 65 + world.rank(), bytes);
      world.barrier();
      for (int r = 0; r < world.size(); ++r) {
        CHECK(static_cast<int>(window->data(r)[0]) == 65 + r);
        CHECK(static_cast<int>(window->data(r)[bytes - 1]) == 65 + r);
        if (r != world.rank()) CHECK(window->data(r) != window->data(world.rank()));
      }
      world.barrier();
    }
  });
}

TEST_CASE("a region outlives its owner's window while a peer has it mapped") {
  run_local_ranks(2, [](Communicator& world) {
    auto [window, problem] = make(world, 100, PeerAccess::kReadWrite);
    REQUIRE(window);
    std::memset(window->data(world.rank()), 7, 100);
    world.barrier();
    if (world.rank() == 0) window.reset();
    world.barrier();
    if (world.rank() == 1) CHECK(static_cast<int>(window->data(0)[99]) == 7);
  });
}

TEST_CASE("without memory or with a refusal no rank gets a window, and all know why") {
  run_local_ranks(3, [](Communicator& world) {
    const auto refused = make(world, 64, PeerAccess::kRead, world.rank() == 1 ? "not today" : "");
    CHECK(!refused.window);
    CHECK(refused.problem == "rank 1: not today");
    // A size that the kernel refuses as well: if our own look failed, a smaller one would make it
    // kill processes of the whole machine.
    const auto huge = make(world, size_t{1} << 63, PeerAccess::kRead);
    CHECK(!huge.window);
    CHECK(contains(huge.problem, "rank 0: 3 ranks need 9223372036854775808 bytes each, "));
    CHECK(make(world, 64, PeerAccess::kRead).window);
  });
}

TEST_CASE("ranks that ask for different sizes are told") {
  run_local_ranks(2, [](Communicator& world) {
    const size_t bytes = world.rank() == 0 ? 64 : 128;
    CHECK(contains(error_of([&] { make(world, bytes, PeerAccess::kRead); }),
                   "expected the same on all ranks, got 64 on rank 0 and 128"));
  });
}

TEST_CASE("an offer that names another file, as in another pid namespace, is refused") {
  run_local_ranks(2, [](Communicator& world) {
    const auto result = SharedWindow::create(
        [&](std::string mine) {
          // rank 1 lies about its inode, so that its numbers lead elsewhere
          if (world.rank() == 1 && !mine.empty()) {
            long pid = 0;
            int fd = 0, used = 0;
            unsigned long long device = 0, inode = 0;
            std::sscanf(mine.c_str(), "%ld %d %llu %llu%n", &pid, &fd, &device, &inode, &used);
            mine = fmt::format("{} {} {} {}{}", pid, fd, device, inode + 1,
                               mine.substr(static_cast<size_t>(used)));
          }
          return world.exchange(mine);
        },
        {world.rank(), world.size(), 64, PeerAccess::kRead, ""});
    CHECK(!result.window);
    CHECK(contains(result.problem, "the ranks do not share a pid namespace"));
  });
}
