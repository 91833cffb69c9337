// The checks; expected values come from scalar loops over what each rank contributes.
#include "tests/support/comm_checks.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tests/support/tensors.h"

namespace fsdp::test {
namespace {

using comm::Collective;
using comm::Communicator;
using comm::ReduceOp;

constexpr DType kAllDTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                                DType::kF64, DType::kI32,  DType::kI64};

template <typename F>
void dispatch_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kI32:
      return f(TypeTag<int32_t>{});
    case DType::kI64:
      return f(TypeTag<int64_t>{});
    default:
      dispatch_floating(dtype, "test", f);
  }
}

// What rank `rank` contributes: reproducible on every rank.
template <typename T>
std::vector<T> contribution(int rank, int64_t numel, uint64_t seed) {
  std::vector<T> out;
  for (const double v : random_values(numel, seed * 131 + static_cast<uint64_t>(rank), -9, 9)) {
    if constexpr (std::is_integral_v<T>) {
      out.push_back(static_cast<T>(std::floor(v * 1000)));
    } else {
      out.push_back(static_cast<T>(static_cast<Accumulate<T>>(v)));
    }
  }
  return out;
}

template <typename T>
std::vector<std::vector<T>> contributions(int ranks, int64_t numel, uint64_t seed) {
  std::vector<std::vector<T>> out;
  for (int r = 0; r < ranks; ++r) out.push_back(contribution<T>(r, numel, seed));
  return out;
}

template <typename T>
T reduced(const std::vector<std::vector<T>>& all, size_t i, ReduceOp op) {
  using Sum = std::conditional_t<std::is_integral_v<T>, T, Accumulate<T>>;
  Sum sum = static_cast<Sum>(all[0][i]);
  for (size_t r = 1; r < all.size(); ++r) {
    const Sum value = static_cast<Sum>(all[r][i]);
    sum = op == ReduceOp::kMax ? std::max(sum, value) : sum + value;
  }
  if (op == ReduceOp::kAverage) sum /= static_cast<Sum>(all.size());
  return static_cast<T>(sum);
}

// Elements whose bits differ.
template <typename T>
int64_t differing(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return -1;
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0;
  return count;
}

std::vector<ReduceOp> ops_of(DType dtype) {
  if (is_floating(dtype)) return {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax};
  return {ReduceOp::kSum, ReduceOp::kMax};
}

template <typename T>
std::vector<T> slot_of(const std::vector<T>& values, int rank, int64_t slot) {
  const auto begin = values.begin() + rank * slot;
  return {begin, begin + slot};
}

template <typename T>
void check_all_gather(Communicator& group, CommRank& rank, int64_t slot, Memory memory) {
  const int64_t numel = slot * group.size();
  const auto all = contributions<T>(group.size(), slot, 1);
  CommTensor buffer = comm_tensor(group, *rank.backend, numel, dtype_of<T>(), memory);
  std::vector<T> start(static_cast<size_t>(numel), T{});
  std::vector<T> expected;
  for (int r = 0; r < group.size(); ++r) {
    const auto& part = all[static_cast<size_t>(r)];
    expected.insert(expected.end(), part.begin(), part.end());
    if (r == group.rank()) std::copy(part.begin(), part.end(), start.begin() + r * slot);
  }
  buffer.tensor.write(start.data());
  after_compute(rank, *rank.first);
  before_compute(rank, group.all_gather(*rank.first, buffer.tensor));
  CHECK(differing(buffer.tensor.to_host<T>(), expected) == 0);
}

template <typename T>
void check_reduce_scatter(Communicator& group, CommRank& rank, int64_t slot, Memory memory,
                          ReduceOp op, bool in_own_slot) {
  const int64_t numel = slot * group.size();
  const auto all = contributions<T>(group.size(), numel, 2);
  std::vector<T> expected;
  for (int64_t i = group.rank() * slot; i < (group.rank() + 1) * slot; ++i) {
    expected.push_back(reduced(all, static_cast<size_t>(i), op));
  }
  CommTensor input = comm_tensor(group, *rank.backend, numel, dtype_of<T>(), memory);
  input.tensor.write(all[static_cast<size_t>(group.rank())].data());
  const Tensor output = in_own_slot ? input.tensor.slice(group.rank() * slot, Shape{slot})
                                    : Tensor::empty(*rank.backend, Shape{slot}, dtype_of<T>());
  after_compute(rank, *rank.first);
  before_compute(rank, group.reduce_scatter(*rank.first, input.tensor, output, op));
  CHECK(differing(output.to_host<T>(), expected) == 0);
}

// Links of one chain, by a scalar loop: the first one of all ranks, the next one of all but the
// last rank, then none at all.
template <typename T>
void check_sum_in_order(Communicator& group, CommRank& rank, int64_t slot, Memory memory,
                        int columns, bool in_own_slot) {
  using Sum = Accumulate<T>;
  const int ranks = group.size();
  const int64_t numel = slot * ranks;
  const int own = group.rank() % columns * (ranks / columns) + group.rank() / columns;
  std::vector<Sum> expected(static_cast<size_t>(slot));
  CommTensor input = comm_tensor(group, *rank.backend, numel, dtype_of<T>(), memory);
  const Tensor apart = Tensor::empty(*rank.backend, Shape{slot}, dtype_of<Sum>());
  comm::OrderedSum sum = {.columns = columns};
  for (int link = 0; link < 3; ++link) {
    sum.terms = link == 0 ? ranks : link == 1 ? ranks - 1 : 0;
    const auto all = contributions<T>(ranks, numel, 30 + static_cast<uint64_t>(link));
    for (int r = 0; r < sum.terms; ++r) {
      for (size_t i = 0; i < expected.size(); ++i) {
        const size_t at = static_cast<size_t>(own * slot) + i;
        const Sum value = static_cast<Sum>(all[static_cast<size_t>(r)][at]);
        expected[i] = link == 0 && r == 0 ? value : expected[i] + value;
      }
    }
    input.tensor.write(all[static_cast<size_t>(group.rank())].data());
    const bool inside = in_own_slot && std::is_same_v<T, Sum>;
    Tensor output = inside ? input.tensor.slice(own * slot, Shape{slot}) : apart;
    after_compute(rank, *rank.first);
    before_compute(rank, group.sum_in_order(*rank.first, input.tensor, output, sum));
    CHECK(differing(output.to_host<Sum>(), expected) == 0);
    if (inside)
      rank.backend->copy(rank.backend->compute_stream(), apart.data(), output.data(),
                         apart.bytes());
    sum.start = apart;
  }
}

template <typename T>
void check_all_reduce(Communicator& group, CommRank& rank, int64_t numel, Memory memory,
                      ReduceOp op) {
  const auto all = contributions<T>(group.size(), numel, 3);
  std::vector<T> expected;
  for (size_t i = 0; i < static_cast<size_t>(numel); ++i) expected.push_back(reduced(all, i, op));
  CommTensor buffer = comm_tensor(group, *rank.backend, numel, dtype_of<T>(), memory);
  buffer.tensor.write(all[static_cast<size_t>(group.rank())].data());
  after_compute(rank, *rank.first);
  before_compute(rank, group.all_reduce(*rank.first, buffer.tensor, op));
  CHECK(differing(buffer.tensor.to_host<T>(), expected) == 0);
}

template <typename T>
void check_broadcast(Communicator& group, CommRank& rank, int64_t numel, Memory memory, int root) {
  const auto all = contributions<T>(group.size(), numel, 4);
  CommTensor buffer = comm_tensor(group, *rank.backend, numel, dtype_of<T>(), memory);
  buffer.tensor.write(all[static_cast<size_t>(group.rank())].data());
  after_compute(rank, *rank.first);
  before_compute(rank, group.broadcast(*rank.first, buffer.tensor, root));
  CHECK(differing(buffer.tensor.to_host<T>(), all[static_cast<size_t>(root)]) == 0);
}

int pseudo_random_delay(int rank, const std::string& stream, std::string_view task, uint32_t count,
                        int longest) {
  const auto h = static_cast<uint32_t>(std::hash<std::string>()(stream + std::string(task)));
  const Philox4x32 words = philox4x32({count, h, 0, 0}, {static_cast<uint32_t>(rank), 99});
  return static_cast<int>(words[0] % static_cast<uint32_t>(longest + 1));
}

}  // namespace

CommRank::CommRank(int rank, int longest_delay_us) {
  cpu::CpuOptions options;
  if (longest_delay_us > 0) {
    const auto count = std::make_shared<std::atomic<uint32_t>>(0);
    options.delay = [=](const std::string& stream, std::string_view task) {
      return pseudo_random_delay(rank, stream, task, (*count)++, longest_delay_us);
    };
  }
  backend = std::make_unique<cpu::CpuBackend>(options);
  first = backend->create_stream("gather");
  second = backend->create_stream("reduce");
}

CommRank::CommRank(std::unique_ptr<Backend> any) : backend(std::move(any)) {
  first = backend->create_stream("gather");
  second = backend->create_stream("reduce");
}

void after_compute(CommRank& rank, Stream& stream) {
  rank.backend->wait(stream, rank.backend->record(rank.backend->compute_stream()));
}

void before_compute(CommRank& rank, const EventPtr& event) {
  rank.backend->wait(rank.backend->compute_stream(), event);
}

Tensor finished_zeros(CommRank& rank, int64_t numel) {
  const Tensor zeros = Tensor::zeros(*rank.backend, Shape{numel}, DType::kF32);
  rank.backend->synchronize(rank.backend->compute_stream());
  return zeros;
}

CommTensor comm_tensor(Communicator& group, Backend& backend, int64_t numel, DType dtype,
                       Memory memory) {
  if (memory == Memory::kPlain) return {nullptr, Tensor::empty(backend, Shape{numel}, dtype)};
  const size_t bytes = static_cast<size_t>(numel) * size_of(dtype);
  CommTensor out;
  out.memory = group.allocate(backend, bytes, MemoryCategory::kCommunication);
  auto storage = Storage::unbound(backend, bytes, MemoryCategory::kCommunication);
  storage->bind(out.memory->data());
  out.tensor = Tensor(storage, 0, Shape{numel}, dtype);
  return out;
}

void check_collectives(Communicator& group, CommRank& rank, DType dtype, int64_t slot,
                       Memory memory) {
  INFO("rank ", group.rank(), " of ", group.size(), ", slots of ", slot, " ",
       std::string(name_of(dtype)));
  dispatch_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    check_all_gather<T>(group, rank, slot, memory);
    for (const ReduceOp op : ops_of(dtype)) {
      CAPTURE(static_cast<int>(op));
      check_reduce_scatter<T>(group, rank, slot, memory, op, false);
      check_reduce_scatter<T>(group, rank, slot, memory, op, true);
      check_all_reduce<T>(group, rank, slot, memory, op);  // mostly not a multiple of the ranks
      check_all_reduce<T>(group, rank, slot * group.size() + 1, memory, op);
    }
    if constexpr (!std::is_integral_v<T>) {
      for (int columns = 1; columns <= group.size(); ++columns) {
        if (group.size() % columns != 0 || !group.sums_in_rank_order()) continue;
        CAPTURE(columns);
        check_sum_in_order<T>(group, rank, slot, memory, columns, false);
        check_sum_in_order<T>(group, rank, slot, memory, columns, true);
      }
    }
    for (int root = 0; root < group.size(); ++root) {
      check_broadcast<T>(group, rank, slot, memory, root);
    }
  });
}

void check_dtypes_and_sizes(Communicator& group, Memory memory) {
  CommRank rank(group.rank());
  for (const DType dtype : kAllDTypes) {
    for (const int64_t slot : {1, 3, 7, 64, 515}) {
      check_collectives(group, rank, dtype, slot, memory);
    }
  }
  check_collectives(group, rank, DType::kF32, 0, memory);
  check_collectives(group, rank, DType::kBF16, 5003, memory);  // several blocks of the sum
}

void check_same_bits(Communicator& group, Memory memory) {
  CommRank rank(group.rank(), 200);
  constexpr int64_t kSlot = 5000;
  const int64_t numel = kSlot * group.size();
  std::vector<float> values = contribution<float>(group.rank(), numel, 11);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= std::pow(10.f, i % 7);
  std::vector<float> first_sum;
  for (int run = 0; run < 4; ++run) {
    CommTensor buffer = comm_tensor(group, *rank.backend, numel, DType::kF32, memory);
    buffer.tensor.write(values.data());
    after_compute(rank, *rank.first);
    before_compute(rank, group.all_reduce(*rank.first, buffer.tensor, ReduceOp::kAverage));
    const std::vector<float> sum = buffer.tensor.to_host<float>();
    if (run == 0) first_sum = sum;
    CHECK(differing(sum, first_sum) == 0);
  }
  const std::string bytes(reinterpret_cast<const char*>(first_sum.data()),
                          first_sum.size() * sizeof(float));
  for (const std::string& other : group.exchange(bytes)) CHECK((other == bytes));
}

void check_two_streams(Communicator& group, Memory memory) {
  CommRank rank(group.rank(), 300);
  const auto gather = group.duplicate("gather");
  const auto reduce = group.duplicate("reduce");
  constexpr int64_t kSlot = 1003;
  const int64_t numel = kSlot * group.size();
  CommTensor gathered = comm_tensor(*gather, *rank.backend, numel, DType::kF32, memory);
  CommTensor input = comm_tensor(*reduce, *rank.backend, numel, DType::kF32, memory);
  const Tensor output = Tensor::empty(*rank.backend, Shape{kSlot}, DType::kF32);
  for (uint64_t round = 0; round < 12; ++round) {
    const auto shards = contributions<float>(group.size(), kSlot, 50 + round);
    const auto gradients = contributions<float>(group.size(), numel, 80 + round);
    const auto me = static_cast<size_t>(group.rank());
    gathered.tensor.slice(group.rank() * kSlot, Shape{kSlot}).write(shards[me].data());
    input.tensor.write(gradients[me].data());
    after_compute(rank, *rank.first);
    after_compute(rank, *rank.second);
    EventPtr gather_done, reduce_done;
    const auto issue_gather = [&] {
      gather_done = gather->all_gather(*rank.first, gathered.tensor);
    };
    const auto issue_reduce = [&] {
      reduce_done = reduce->reduce_scatter(*rank.second, input.tensor, output, ReduceOp::kSum);
    };
    if (group.rank() % 2 == 0) issue_gather();
    issue_reduce();
    if (group.rank() % 2 == 1) issue_gather();
    before_compute(rank, gather_done);
    before_compute(rank, reduce_done);
    std::vector<float> full, sums;
    for (const auto& shard : shards) full.insert(full.end(), shard.begin(), shard.end());
    for (int64_t i = 0; i < kSlot; ++i) {
      sums.push_back(
          reduced(gradients, static_cast<size_t>(group.rank() * kSlot + i), ReduceOp::kSum));
    }
    CHECK(differing(gathered.tensor.to_host<float>(), full) == 0);
    CHECK(differing(output.to_host<float>(), sums) == 0);
  }
}

void check_one_communicator_on_two_streams(Communicator& group) {
  CommRank rank(group.rank(), 300);
  const Tensor value = Tensor::from_host<float>(*rank.backend, Shape{3}, {1, 2, 3});
  EventPtr done;
  for (int round = 0; round < 6; ++round) {
    Stream& stream = round % 2 == 0 ? *rank.first : *rank.second;
    after_compute(rank, stream);
    done = group.all_reduce(stream, value, round % 3 == 0 ? ReduceOp::kSum : ReduceOp::kAverage);
  }
  before_compute(rank, done);
  const auto n = static_cast<float>(group.size());  // two of the six are sums of equal values
  CHECK(differing(value.to_host<float>(), {n * n, 2 * n * n, 3 * n * n}) == 0);
}

void check_exchange_and_split(Communicator& group) {
  const std::string mine(static_cast<size_t>(group.rank()) * 1000, static_cast<char>('a'));
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::string> all = group.exchange(mine + std::to_string(round));
    REQUIRE(all.size() == static_cast<size_t>(group.size()));
    for (size_t r = 0; r < all.size(); ++r) {
      CHECK((all[r] == std::string(r * 1000, 'a') + std::to_string(round)));
    }
  }
  group.barrier();
  // Halves, in reverse order of rank.
  const int half = group.rank() % 2;
  const auto part =
      group.split([](int r) { return comm::SplitPlace{.color = r % 2, .key = -r}; }, "half");
  CHECK(part->name() == "half");
  CHECK(part->size() == (group.size() + 1 - half) / 2);
  const std::vector<std::string> members = part->exchange(std::to_string(group.rank()));
  for (size_t i = 0; i < members.size(); ++i) {
    CHECK(std::stoi(members[i]) % 2 == half);
    if (i > 0) CHECK(std::stoi(members[i]) < std::stoi(members[i - 1]));
  }
  CHECK(members[static_cast<size_t>(part->rank())] == std::to_string(group.rank()));
  CommRank rank(group.rank());
  check_collectives(*part, rank, DType::kF32, 5, Memory::kFromCommunicator);
  // Both parts split again: groups of one.
  const auto alone = part->split([](int r) { return comm::SplitPlace{.color = r}; }, "alone");
  CHECK(alone->size() == 1);
  CHECK((alone->exchange("x") == std::vector<std::string>{"x"}));
  check_collectives(*alone, rank, DType::kF32, 5, Memory::kFromCommunicator);
  CHECK(alone->count(Collective::kAllGather).calls == 0);
}

void check_counts_and_ledger(Communicator& group) {
  CommRank rank(group.rank());
  const auto copy = group.duplicate("counted");
  const int64_t numel = 6 * group.size();
  {
    CommTensor buffer =
        comm_tensor(*copy, *rank.backend, numel, DType::kF32, Memory::kFromCommunicator);
    const auto used = [&](MemoryCategory category) {
      return rank.backend->ledger().usage().current[static_cast<size_t>(category)];
    };
    CHECK(used(MemoryCategory::kCommunication) == rounded_bytes(buffer.tensor.bytes()));
    after_compute(rank, *rank.first);
    copy->all_gather(*rank.first, buffer.tensor);
    copy->all_gather(*rank.first, buffer.tensor);
    copy->all_reduce(*rank.first, buffer.tensor, ReduceOp::kSum)->wait();
    const bool counts = group.size() > 1;
    CHECK(copy->count(Collective::kAllGather).calls == (counts ? 2 : 0));
    CHECK(copy->count(Collective::kAllGather).bytes == (counts ? 2 * numel * 4 : 0));
    CHECK(copy->count(Collective::kAllReduce).bytes == (counts ? numel * 4 : 0));
    CHECK(copy->count(Collective::kReduceScatter).calls == 0);
  }
  CHECK(
      rank.backend->ledger().usage().current[static_cast<size_t>(MemoryCategory::kCommunication)] ==
      0);
}

void check_mismatch(Communicator& group) {
  if (group.size() == 1) return;
  CommRank rank(group.rank());
  const Tensor value = finished_zeros(rank, 12 * group.size());
  const bool last = group.rank() == group.size() - 1;
  const std::string message = error_of([&] {
    const EventPtr done = last ? group.all_reduce(*rank.first, value, ReduceOp::kMax)
                               : group.all_gather(*rank.first, value);
    done->wait();
  });
  CAPTURE(message);
  CHECK(contains(message, "all_gather of"));
  CHECK(contains(message, "all_reduce of"));
  CHECK(contains(message, "(max) on rank " + std::to_string(group.size() - 1)));
  const std::string later = error_of([&] { group.all_gather(*rank.second, value)->wait(); });
  CHECK(later != "");
}

}  // namespace fsdp::test
