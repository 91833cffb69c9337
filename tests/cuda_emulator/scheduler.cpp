// Fibers, barriers and exchanges of one block. See scheduler.h.
#include "tests/cuda_emulator/scheduler.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <set>

#include <fmt/format.h>

#include "core/error.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fiber.h"

namespace fsdp::emulator {
namespace {

constexpr int kPoison = 0xff;  // NaN in every floating type
constexpr int kWarp = 32;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

struct State {
  std::mutex mutex;
  Settings settings;
  std::atomic<int64_t> configurations{0};
  std::set<std::string> places;

  State() {
    const std::string count = variable("CUDA_EMULATOR_MULTIPROCESSORS");
    if (!count.empty()) settings.multiprocessors = std::stoi(count);
    const std::string fault = variable("CUDA_EMULATOR_FAULT");
    if (!fault.empty()) settings.faulty_kernel = std::stoll(fault);
    const std::string mib = variable("CUDA_EMULATOR_NCCL_MIB");
    if (!mib.empty()) settings.nccl_bytes = std::stoull(mib) << 20;
    const std::string memory = variable("CUDA_EMULATOR_MEMORY_MIB");
    if (!memory.empty()) settings.memory = std::stoull(memory) << 20;
    const std::string waits = variable("CUDA_EMULATOR_DRIVER_WAITS");
    if (waits == "own") settings.driver_waits = DriverWaits::kForOwn;
    if (waits == "all") settings.driver_waits = DriverWaits::kForAll;
    FSDP_CHECK(waits.empty() || waits == "own" || waits == "all",
               "CUDA_EMULATOR_DRIVER_WAITS: expected own or all, got \"{}\"", waits);
    const std::string code = variable("CUDA_EMULATOR_KERNEL_CODE");
    if (!code.empty()) settings.kernel_code = std::stoi(code);
  }
  ~State() {
    const std::string file = variable("CUDA_EMULATOR_PLACES");
    if (file.empty()) return;
    std::ofstream out(file);
    for (const std::string& place : places) out << place << "\n";
  }
};
State& state() {
  static State instance;
  return instance;
}

// A fiber that is told to stop waiting because another one failed.
struct Abandoned {};

class Runner;

enum class Phase : uint8_t { kIdle, kReady, kWaiting, kDone };

struct CopyRequest {
  void* destination;
  const void* source;
  size_t bytes;
  const void* code;  // that asked for it
};

// One CUDA thread: a fiber that runs kernel after kernel.
class Thread {
 public:
  Thread(Runner& runner, int linear)
      : runner_(&runner), linear_(linear), fiber_([this] { run_kernel(); }) {}
  void start(uint3 index);  // it can run the kernel from now on
  void resume();            // from the scheduler
  void pause() { fiber_.pause(); }
  const Fiber& fiber() const { return fiber_; }
  int linear() const { return linear_; }
  int warp() const { return linear_ / kWarp; }
  int lane() const { return linear_ % kWarp; }

  bool can_run() const {
    return phase == Phase::kReady || (phase == Phase::kWaiting && *watched != generation);
  }

  Phase phase = Phase::kIdle;
  uint3 index{};
  const char* waits_for = "";        // while it waits:
  const int64_t* watched = nullptr;  // until this differs from
  int64_t generation = 0;
  std::deque<std::vector<CopyRequest>> groups;  // committed, oldest first
  std::vector<CopyRequest> open_group;

 private:
  void run_kernel();

  Runner* runner_;
  int linear_;
  Fiber fiber_;
};

// Threads that meet: generation g is over when everyone expected has arrived.
struct Meeting {
  int arrived = 0;
  int64_t generation = 0;
  int count = 0;        // of block_count
  int counted[2] = {};  // by parity of the generation
};

struct Exchange {
  uint32_t mask = 0;
  uint32_t arrived = 0;
  int64_t generation = 0;
  alignas(16) std::byte values[2][kWarp * kExchangeBytes];
};

struct Shared {
  const void* identity;
  std::byte* data;
  size_t bytes;
};

// Runs grids on one OS thread.
class Runner {
 public:
  ~Runner() { forget_shared(); }
  void run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel,
           size_t shared_limit, const void* function);
  size_t static_bytes() const { return static_bytes_; }

  void call_kernel() { (*kernel_)(); }
  void failed(std::exception_ptr error) {
    if (!error_) error_ = std::move(error);
  }
  bool abandoned() const { return error_ != nullptr; }
  bool running() const { return current_ != nullptr; }
  Thread& current() { return *current_; }
  void set_current(Thread* thread) { current_ = thread; }
  int threads() const { return static_cast<int>(extent_.x * extent_.y * extent_.z); }

  void wait_while(const int64_t& watched, int64_t generation, const char* what);
  int64_t meet(Meeting& meeting, int expected, const char* what, int predicate);
  Exchange& exchange_of(int warp, uint32_t mask);
  void* shared(const void* identity, size_t bytes);
  void* dynamic() { return dynamic_; }

  dim3 extent_, grid_;
  uint3 block_{};
  Meeting block_meeting_;

 private:
  void run_block(uint3 index);
  void begin_block();
  void finish_threads();
  bool pass(const std::vector<int>& order);
  std::vector<int> thread_order();
  void forget_shared();
  std::string deadlock() const;

  std::vector<std::unique_ptr<Thread>> pool_;
  std::vector<std::vector<std::unique_ptr<Exchange>>> exchanges_;  // by warp
  std::vector<Shared> shared_;
  std::byte* dynamic_ = nullptr;
  size_t dynamic_bytes_ = 0, static_bytes_ = 0, shared_limit_ = 0;
  const std::function<void()>* kernel_ = nullptr;
  std::exception_ptr error_;
  Thread* current_ = nullptr;
  Settings settings_;
  std::mt19937_64 random_;
};

thread_local Runner* running = nullptr;
Watcher* watcher = nullptr;

Runner& runner() {
  if (!running) fail("[emulator] device code was called outside a kernel");
  return *running;
}

std::byte* poisoned(size_t bytes) {
  void* data = nullptr;
  if (::posix_memalign(&data, 128, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
  std::memset(data, kPoison, bytes);
  return static_cast<std::byte*>(data);
}

// ---- Thread ----

void Thread::run_kernel() {
  try {
    runner_->call_kernel();
  } catch (const Abandoned&) {
  } catch (...) {
    runner_->failed(std::current_exception());
  }
  phase = Phase::kDone;
}

void Thread::start(uint3 at) {
  index = at;
  phase = Phase::kReady;
  groups.clear();
  open_group.clear();
}

void Thread::resume() {
  runner_->set_current(this);
  fiber_.resume();
  runner_->set_current(nullptr);
}

// ---- Runner ----

void Runner::wait_while(const int64_t& watched, int64_t generation, const char* what) {
  Thread& self = current();
  self.waits_for = what;
  self.watched = &watched;
  self.generation = generation;
  self.phase = Phase::kWaiting;
  self.pause();
  if (abandoned()) throw Abandoned();
  self.phase = Phase::kReady;
}

// Returns the generation that ended.
int64_t Runner::meet(Meeting& meeting, int expected, const char* what, int predicate) {
  if (watcher) watcher->meet(&meeting, expected);
  const int64_t generation = meeting.generation;
  meeting.count += predicate != 0;
  if (++meeting.arrived == expected) {
    meeting.counted[generation % 2] = std::exchange(meeting.count, 0);
    meeting.arrived = 0;
    ++meeting.generation;
  } else {
    wait_while(meeting.generation, generation, what);
  }
  return generation;
}

Exchange& Runner::exchange_of(int warp, uint32_t mask) {
  auto& of_warp = exchanges_[static_cast<size_t>(warp)];
  for (const auto& exchange : of_warp) {
    if (exchange->mask == mask) return *exchange;
  }
  of_warp.push_back(std::make_unique<Exchange>());
  of_warp.back()->mask = mask;
  return *of_warp.back();
}

void* Runner::shared(const void* identity, size_t bytes) {
  for (const Shared& variable : shared_) {
    if (variable.identity == identity) return variable.data;
  }
  static_bytes_ += (bytes + 15) / 16 * 16;
  FSDP_CHECK(static_bytes_ + dynamic_bytes_ <= shared_limit_,
             "[emulator] shared memory: a block has {} bytes by name and {} by the launch, which "
             "may have {} together",
             static_bytes_, dynamic_bytes_, shared_limit_);
  shared_.push_back({identity, poisoned(bytes), bytes});
  if (watcher) watcher->shared_memory(shared_.back().data, bytes);
  return shared_.back().data;
}

void Runner::forget_shared() {
  for (const Shared& variable : shared_) std::free(variable.data);
  shared_.clear();
  static_bytes_ = 0;
  std::free(dynamic_);
  dynamic_ = nullptr;
}

std::vector<int> Runner::thread_order() {
  std::vector<int> order(static_cast<size_t>(threads()));
  std::iota(order.begin(), order.end(), 0);
  if (settings_.order == ThreadOrder::kReverse) std::reverse(order.begin(), order.end());
  if (settings_.order == ThreadOrder::kRandom) {  // warps, and the lanes within each
    const int warps = (threads() + kWarp - 1) / kWarp;
    std::vector<uint64_t> of_warp(static_cast<size_t>(warps)), of_thread(order.size());
    for (uint64_t& key : of_warp) key = random_();
    for (uint64_t& key : of_thread) key = random_();
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      const auto key = [&](int t) {
        return std::pair(of_warp[static_cast<size_t>(t / kWarp)],
                         of_thread[static_cast<size_t>(t)]);
      };
      return key(a) < key(b);
    });
  }
  return order;
}

// One look at every warp; false when none could run. In random order its threads take one turn,
// else a warp goes on for as long as any of them can: it gets far ahead of the others.
bool Runner::pass(const std::vector<int>& order) {
  bool progress = false;
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    const int warp = order[begin] / kWarp;
    while (end < order.size() && order[end] / kWarp == warp) ++end;
    bool any = true;
    for (bool again = true; any && again; again = settings_.order != ThreadOrder::kRandom) {
      any = false;
      for (size_t i = begin; i < end; ++i) {
        Thread& thread = *pool_[static_cast<size_t>(order[i])];
        if (!thread.can_run()) continue;
        thread.resume();
        any = progress = true;
      }
    }
  }
  return progress;
}

std::string Runner::deadlock() const {
  std::map<std::string, int> states;
  for (int i = 0; i < threads(); ++i) {
    const Thread& thread = *pool_[static_cast<size_t>(i)];
    ++states[thread.phase == Phase::kDone ? "have returned"
                                          : std::string("wait at ") + thread.waits_for];
  }
  std::string out =
      fmt::format("[emulator] block ({}, {}, {}) of {} threads cannot go on:", block_.x, block_.y,
                  block_.z, threads());
  for (const auto& [what, count] : states) out += fmt::format(" {} {};", count, what);
  return out;
}

void Runner::begin_block() {
  for (const Shared& variable : shared_) std::memset(variable.data, kPoison, variable.bytes);
  if (dynamic_) std::memset(dynamic_, kPoison, dynamic_bytes_);
  block_meeting_ = {};
  for (auto& of_warp : exchanges_) of_warp.clear();
  if (watcher) {
    watcher->begin_block();
    for (const Shared& variable : shared_) watcher->shared_memory(variable.data, variable.bytes);
    if (dynamic_) watcher->shared_memory(dynamic_, dynamic_bytes_);
  }
  const auto [x, y, z] = extent_;
  for (unsigned i = 0; i < x * y * z; ++i) {
    pool_[i]->start({i % x, i / x % y, i / (x * y)});
  }
}

// After an error: those that wait are told to give up, so that their stacks are empty again.
void Runner::finish_threads() {
  for (int i = 0; i < threads(); ++i) {
    Thread& thread = *pool_[static_cast<size_t>(i)];
    if (thread.phase == Phase::kReady) thread.phase = Phase::kDone;  // has not begun
    while (thread.phase != Phase::kDone) thread.resume();
  }
}

void Runner::run_block(uint3 index) {
  block_ = index;
  begin_block();
  std::vector<int> order = thread_order();
  for (;;) {
    const bool progress = pass(order);
    const auto first = pool_.begin();
    if (!error_ && std::all_of(first, first + threads(),
                               [](const auto& thread) { return thread->phase == Phase::kDone; })) {
      return;
    }
    if (!error_ && !progress) error_ = std::make_exception_ptr(Error(deadlock()));
    if (error_) {
      finish_threads();
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
    if (settings_.order == ThreadOrder::kRandom) order = thread_order();
  }
}

void Runner::run(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel,
                 size_t shared_limit, const void* function) {
  settings_ = settings();
  random_.seed(settings_.seed);
  grid_ = grid;
  extent_ = block;
  kernel_ = &kernel;
  forget_shared();
  dynamic_bytes_ = shared_bytes;
  shared_limit_ = shared_limit;
  if (shared_bytes > 0) dynamic_ = poisoned(shared_bytes);
  while (static_cast<int>(pool_.size()) < threads()) {
    pool_.push_back(std::make_unique<Thread>(*this, static_cast<int>(pool_.size())));
  }
  exchanges_.resize(static_cast<size_t>((threads() + kWarp - 1) / kWarp));
  std::vector<uint64_t> blocks(uint64_t{grid.x} * grid.y * grid.z);
  std::iota(blocks.begin(), blocks.end(), 0);
  if (settings_.order == ThreadOrder::kReverse) std::reverse(blocks.begin(), blocks.end());
  if (settings_.order == ThreadOrder::kRandom) std::shuffle(blocks.begin(), blocks.end(), random_);
  if (watcher) watcher->begin_grid(threads(), function);
  for (const uint64_t b : blocks) {
    run_block({static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
               static_cast<unsigned>(b / grid.x / grid.y)});
  }
  if (watcher) watcher->end_grid();
}

int checked_lane(uint32_t mask, const char* what) {
  const int lane = runner().current().lane();
  FSDP_CHECK(mask >> lane & 1, "[emulator] {}: lane {} is not in its own mask {:08x}", what, lane,
             mask);
  return lane;
}

}  // namespace

// ---- settings ----

void configure(const Settings& settings) {
  const std::lock_guard lock(state().mutex);
  state().settings = settings;
  ++state().configurations;
}

int64_t configurations() { return state().configurations; }

const Settings& settings() { return state().settings; }

std::vector<std::string> places() {
  const std::lock_guard lock(state().mutex);
  return {state().places.begin(), state().places.end()};
}

bool left_out(const Place& place) {
  static const std::string skip = variable("CUDA_EMULATOR_SKIP");
  thread_local std::map<std::pair<const char*, int>, std::string> names;  // of places seen here
  const auto [known, first] = names.try_emplace({place.file, place.line});
  std::string& name = known->second;
  if (first) {
    std::string_view file = place.file;
    for (const std::string_view root : {"/kernels/cuda/", "/comm/"}) {
      const size_t at = file.rfind(root);
      if (at != std::string_view::npos) file.remove_prefix(at + 1);
    }
    name = fmt::format("{}:{} {}", file, place.line, place.what);
    const std::lock_guard lock(state().mutex);
    state().places.insert(name);
  }
  return name == skip || (settings().leave_out && settings().leave_out(name));
}

// ---- what kernels reach ----

const uint3& thread_index() { return runner().current().index; }
const uint3& block_index() { return runner().block_; }
const dim3& block_extent() { return runner().extent_; }
const dim3& grid_extent() { return runner().grid_; }
int lane() { return runner().current().lane(); }

void block_barrier(const Place& place) {
  if (left_out(place)) return;
  runner().meet(runner().block_meeting_, runner().threads(), place.what, 0);
}

int block_count(const Place& place, int predicate) {
  if (left_out(place)) return predicate;
  Runner& at = runner();
  const int64_t generation = at.meet(at.block_meeting_, at.threads(), place.what, predicate);
  return at.block_meeting_.counted[generation % 2];
}

const std::byte* exchange(uint32_t mask, const void* value, size_t bytes, const char* what) {
  const int lane = checked_lane(mask, what);
  FSDP_CHECK(bytes <= kExchangeBytes, "[emulator] {}: {} bytes a lane", what, bytes);
  Exchange& with = runner().exchange_of(runner().current().warp(), mask);
  const int64_t generation = with.generation;
  std::byte* values = with.values[generation % 2];
  if (bytes > 0) std::memcpy(values + static_cast<size_t>(lane) * kExchangeBytes, value, bytes);
  with.arrived |= 1u << lane;
  if (with.arrived == mask) {
    with.arrived = 0;
    ++with.generation;
  } else {
    runner().wait_while(with.generation, generation, what);
  }
  return values;
}

void warp_barrier(const Place& place, uint32_t mask) {
  if (left_out(place)) return;
  if (watcher) {
    watcher->meet(&runner().exchange_of(runner().current().warp(), mask), std::popcount(mask));
  }
  exchange(mask, nullptr, 0, place.what);
}

void fence() {
  if (watcher) watcher->fence();
}

void set_watcher(Watcher* to) { watcher = to; }

int running_thread() { return running && running->running() ? running->current().linear() : -1; }

bool on_running_stack(const void* address) {
  return running->current().fiber().has_on_stack(address);
}

void check_aligned(const void* address, size_t bytes, const char* what) {
  FSDP_CHECK(reinterpret_cast<uintptr_t>(address) % bytes == 0,
             "[emulator] {}: address {}: expected a multiple of {}", what, address, bytes);
}

void* shared_variable(const void* identity, size_t bytes) {
  return runner().shared(identity, bytes);
}

void* dynamic_shared_memory() {
  FSDP_CHECK(runner().dynamic(), "[emulator] the launch asked for no dynamic shared memory");
  return runner().dynamic();
}

namespace {

void run_copy(const CopyRequest& copy) {
  if (watcher) watcher->write(copy.destination, copy.bytes, copy.code);
  if (copy.source) {
    std::memcpy(copy.destination, copy.source, copy.bytes);
  } else {
    std::memset(copy.destination, 0, copy.bytes);
  }
}

}  // namespace

void copy_async(void* destination, const void* source, size_t bytes) {
  check_aligned(destination, bytes, "cp.async");
  check_aligned(source, bytes, "cp.async");
  const CopyRequest copy{destination, source, bytes, __builtin_return_address(0)};
  if (watcher) {  // the copy may be done at any time from here to where it is awaited
    if (source) watcher->read(source, bytes, copy.code);
    watcher->write(destination, bytes, copy.code);
  }
  if (settings().early_copies) return run_copy(copy);
  runner().current().open_group.push_back(copy);
}

void commit_copies() {
  Thread& self = runner().current();
  self.groups.push_back(std::exchange(self.open_group, {}));
}

void wait_copies(const Place& place, int pending_groups) {
  if (left_out(place)) return;
  auto& groups = runner().current().groups;
  for (; static_cast<int>(groups.size()) > pending_groups; groups.pop_front()) {
    for (const CopyRequest& copy : groups.front()) run_copy(copy);
  }
}

size_t run_grid(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()>& kernel,
                size_t shared_limit, const void* function) {
  thread_local Runner own;
  Runner* before = std::exchange(running, &own);
  try {
    own.run(grid, block, shared_bytes, kernel, shared_limit, function);
  } catch (...) {
    running = before;
    throw;
  }
  running = before;
  return own.static_bytes();
}

}  // namespace fsdp::emulator
