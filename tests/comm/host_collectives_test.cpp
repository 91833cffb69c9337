// The staged path, for buffers that peers cannot read, between threads: what MPI ranks of one host
// use for plain tensors, here where ThreadSanitizer sees it. The direct path:
// communicator_test.cpp.
#include "comm/host_collectives.h"

#include <numeric>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/tensors.h"

using namespace fsdp;
using namespace fsdp::comm;
using namespace fsdp::test;

namespace {

// One engine per rank, with `half_bytes` of staging in ordinary memory.
std::vector<std::unique_ptr<DirectEngine>> make_engines(int ranks, size_t half_bytes) {
  auto memory = std::make_shared<std::vector<std::vector<std::byte>>>(
      static_cast<size_t>(ranks), std::vector<std::byte>(2 * half_bytes));
  const auto window = std::make_shared<PeerWindow>();
  for (auto& region : *memory) window->bases.push_back(reinterpret_cast<uintptr_t>(region.data()));
  window->mapped = memory;
  constexpr std::align_val_t kAlign{64};
  std::shared_ptr<GroupState> state(
      HostGroup::create_state(::operator new(HostGroup::state_bytes(ranks), kAlign), ranks),
      [](GroupState* s) { ::operator delete (static_cast<void*>(s), std::align_val_t{64}); });
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<DirectEngine>> engines;
  for (int r = 0; r < ranks; ++r) {
    engines.push_back(std::make_unique<DirectEngine>(
        HostGroup(state, r, members, "test", kDefaultTimeout), Staging{window, half_bytes}));
  }
  return engines;
}

void on_all_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> values(int rank, int64_t numel) {
  std::vector<float> out;
  for (const double v : random_values(numel, static_cast<uint64_t>(rank))) {
    out.push_back(static_cast<float>(v));
  }
  return out;
}

}  // namespace

TEST_CASE("staged collectives: any number of turns, one after the other") {
  for (const int ranks : {2, 3, 5}) {
    const auto engines = make_engines(ranks, 640);
    CHECK(engines[0]->staging_bytes() == 1280);
    for (const int64_t slot : {1, 31, 32, 33, 160, 161, 1000}) {
      const int64_t numel = slot * ranks;
      std::vector<float> sums(static_cast<size_t>(numel), 0.f);
      for (int r = 0; r < ranks; ++r) {
        const std::vector<float> theirs = values(r, numel);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += theirs[i];
      }
      std::vector<std::vector<float>> reduced(static_cast<size_t>(ranks)), broadcast(reduced);
      on_all_ranks(ranks, [&](int rank) {
        const auto r = static_cast<size_t>(rank);
        HostCall call;
        call.numel = numel;
        // reduce_scatter into the own slot and all_gather of the slots: an all_reduce in two
        reduced[r] = values(rank, numel);
        call.data = reinterpret_cast<std::byte*>(reduced[r].data());
        call.output = call.data + static_cast<int64_t>(sizeof(float)) * slot * rank;
        call.collective = Collective::kReduceScatter;
        engines[r]->run(call);
        call.collective = Collective::kAllGather;
        engines[r]->run(call);
        broadcast[r] = values(rank, numel);
        call.data = reinterpret_cast<std::byte*>(broadcast[r].data());
        call.collective = Collective::kBroadcast;
        call.root = ranks - 1;
        engines[r]->run(call);
      });
      for (int r = 0; r < ranks; ++r) {
        CHECK((reduced[static_cast<size_t>(r)] == sums));
        CHECK((broadcast[static_cast<size_t>(r)] == values(ranks - 1, numel)));
      }
    }
  }
}

TEST_CASE("staged all_reduce of sizes that do not divide") {
  const int ranks = 3;
  const auto engines = make_engines(ranks, 256);
  for (const int64_t numel : {1, 2, 4, 100, 1001}) {
    std::vector<std::vector<float>> all(ranks);
    on_all_ranks(ranks, [&](int rank) {
      const auto r = static_cast<size_t>(rank);
      all[r].assign(static_cast<size_t>(numel), static_cast<float>(rank + 1));
      HostCall call;
      call.collective = Collective::kAllReduce;
      call.op = ReduceOp::kAverage;
      call.numel = numel;
      call.data = reinterpret_cast<std::byte*>(all[r].data());
      engines[r]->run(call);
    });
    for (const auto& got : all) {
      CHECK((got == std::vector<float>(static_cast<size_t>(numel), 2.f)));
    }
  }
}

TEST_CASE("slots cover every element once") {
  for (const int64_t numel : {0, 1, 5, 8, 9}) {
    for (const int ranks : {1, 2, 3, 8}) {
      const Slots slots(numel, ranks);
      int64_t covered = 0;
      for (int r = 0; r < ranks; ++r) {
        CHECK(slots.begin(r) == covered);
        covered += slots.count(r);
      }
      CHECK(covered == numel);
    }
  }
}
