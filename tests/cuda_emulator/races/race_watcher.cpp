// Which accesses nothing orders.
#include "tests/cuda_emulator/races/race_watcher.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/cuda_emulator/races/source_lines.h"

namespace fsdp::emulator {
namespace {

constexpr size_t kMostPages = 2000;  // that are kept from grid to grid: 512 MiB

}  // namespace

void RaceWatcher::begin_grid(int threads_of_block, const void* function) {
  if (pages_.size() > kMostPages) pages_.clear();
  threads_.assign(static_cast<size_t>(threads_of_block), {});
  function_ = function;
  first_block_ = block_ + 1;
  shared_.clear();
  told_.clear();
  races_.clear();
  unwritten_.clear();
}

void RaceWatcher::begin_block() {
  ++block_;
  epoch_ = 1;
  shared_.clear();
  meetings_.clear();
  std::fill(threads_.begin(), threads_.end(), Thread());
}

void RaceWatcher::shared_memory(const void* begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  shared_.emplace_back(at, at + bytes);
}

bool RaceWatcher::is_shared(uintptr_t address) const {
  return std::any_of(shared_.begin(), shared_.end(), [&](const auto& range) {
    return address >= range.first && address < range.second;
  });
}

// ---- what is ordered ----

RaceWatcher::Clocks& RaceWatcher::clocks_of(int thread) {
  Thread& self = threads_[static_cast<size_t>(thread)];
  if (self.epoch != epoch_) {
    self.epoch = epoch_;
    self.seen.assign(threads_.size(), 0);
  }
  self.seen[static_cast<size_t>(thread)] = self.clock;
  return self.seen;
}

void RaceWatcher::merge(Knowledge& into, const Knowledge& from) {
  for (const auto& [block, known] : from) {
    Known& mine = into[block];
    if (known.epoch > mine.epoch) mine = known;
    if (known.epoch < mine.epoch) continue;
    for (size_t i = 0; i < known.clocks.size(); ++i) {
      mine.clocks[i] = std::max(mine.clocks[i], known.clocks[i]);
    }
  }
}

// The call of the last one who comes orders them all: the others have not gone on yet.
void RaceWatcher::meet(int thread, const void* where, int expected) {
  std::vector<int>& arrived = meetings_[where];
  arrived.push_back(thread);
  if (static_cast<int>(arrived.size()) < expected) return;
  Knowledge others;
  for (const int each : arrived) merge(others, threads_[static_cast<size_t>(each)].others);
  if (arrived.size() == threads_.size()) {
    ++epoch_;
  } else {
    Clocks latest(threads_.size(), 0);
    for (const int each : arrived) {
      const Clocks& seen = clocks_of(each);
      for (size_t i = 0; i < seen.size(); ++i) latest[i] = std::max(latest[i], seen[i]);
    }
    for (const int each : arrived) clocks_of(each) = latest;
  }
  for (const int each : arrived) {
    Thread& self = threads_[static_cast<size_t>(each)];
    ++self.clock;
    if (!others.empty()) self.others = others;
  }
  arrived.clear();
}

void RaceWatcher::fence(int thread) {
  Thread& self = threads_[static_cast<size_t>(thread)];
  merge(self.others, self.collected);
  self.released = self.others;
  self.released[block_] = {epoch_, clocks_of(thread)};
  ++self.clock;
}

bool RaceWatcher::ordered(const Access& before, int thread) {
  if (before.block == block_) {
    return before.thread == thread || before.epoch < epoch_ ||
           clocks_of(thread)[before.thread] >= before.clock;
  }
  const Knowledge& others = threads_[static_cast<size_t>(thread)].others;
  const auto known = others.find(before.block);
  if (known == others.end()) return false;
  const auto& [epoch, clocks] = known->second;
  return before.epoch < epoch || (before.epoch == epoch && clocks[before.thread] >= before.clock);
}

// ---- accesses ----

RaceWatcher::Word& RaceWatcher::word(uintptr_t address) {
  std::unique_ptr<Page>& page = pages_[address / kPageBytes];
  if (!page) page = std::make_unique<Page>();
  return (*page)[address % kPageBytes / kWordBytes];
}

void RaceWatcher::check(const Access& before, int thread, bool atomic, const void* code) {
  const bool of_this_grid = before.block >= first_block_;
  if (!of_this_grid || (atomic && before.atomic) || ordered(before, thread)) return;
  races_.insert(std::minmax(before.code, code));
}

void RaceWatcher::touch_word(Word& at, int thread, bool reads, bool writes, bool atomic,
                             const void* code) {
  const Access now = {.block = block_,
                      .epoch = epoch_,
                      .clock = threads_[static_cast<size_t>(thread)].clock,
                      .thread = static_cast<uint16_t>(thread),
                      .atomic = atomic,
                      .code = code};
  check(at.write, thread, atomic, code);
  if (writes) {
    for (const Access& read : at.reads) check(read, thread, atomic, code);
    at = {.write = now, .reads = {}};
  }
  if (!reads) return;
  // One that comes before this read needs no place of its own: what races with it races with this.
  Access* place = nullptr;
  for (Access& read : at.reads) {
    const bool stale = read.block < first_block_ || ordered(read, thread);
    if (stale && (!place || read.block == block_)) place = &read;
  }
  *(place ? place : &at.reads[static_cast<size_t>(thread) % at.reads.size()]) = now;
}

// Blocks have their own shared memory, at one address here.
void RaceWatcher::forget_other_blocks(Word& at) const {
  if (at.write.block != block_) at.write = {};
  for (Access& read : at.reads) {
    if (read.block != block_) read = {};
  }
}

void RaceWatcher::touch(int thread, const void* address, size_t bytes, bool writes,
                        const void* code) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const bool shared = is_shared(begin);
  for (uintptr_t at = begin / kWordBytes * kWordBytes; at < begin + bytes; at += kWordBytes) {
    Word& touched = word(at);
    if (shared) forget_other_blocks(touched);
    if (shared && !writes && touched.write.block == 0) unwritten_.insert(code);
    touch_word(touched, thread, !writes, writes, false, code);
  }
}

void RaceWatcher::atomic(int thread, const void* address, size_t bytes, const void* code) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  for (uintptr_t at = begin / kWordBytes * kWordBytes; at < begin + bytes; at += kWordBytes) {
    touch_word(word(at), thread, false, true, true, code);
  }
  Thread& self = threads_[static_cast<size_t>(thread)];
  Knowledge& told = told_[begin];
  merge(self.collected, told);
  merge(told, self.released);
}

std::string RaceWatcher::report() const {
  if (races_.empty() && unwritten_.empty()) return "";
  const std::string kernel = function_ ? function_name(function_) : "kernel";
  std::string out;
  for (const auto& [a, b] : races_) {
    out += fmt::format("race: {} {} against {}\n", kernel, source_line(b), source_line(a));
  }
  for (const void* code : unwritten_) {
    out += fmt::format("unwritten: {} {} reads shared memory that its block has not written\n",
                       kernel, source_line(code));
  }
  return out;
}

}  // namespace fsdp::emulator
