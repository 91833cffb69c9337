// Finds races between the barriers of a kernel, whatever the order in which its threads ran: two
// threads of a grid touch one word, one of them writes, and nothing orders the two. What orders:
// __syncthreads and __syncwarp among those who meet there; between blocks a fence,
// an atomic, an atomic of the other block, a fence (CUDA C++ Programming Guide, "Memory Fence
// Functions"). Shuffles, votes, ldmatrix and mma exchange registers and order no memory. Finds also
// reads of shared memory that the block has not written.
// Clocks as in Flanagan, Freund: FastTrack (PLDI 2009): vectors of clocks between two barriers of
// the whole block, and one number for all that lies before the last.
// Words are two bytes; of the readers of a word since its last write the last four are kept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/cuda_emulator/scheduler.h"

namespace fsdp::emulator {

// Of one grid at a time.
class RaceWatcher {
 public:
  void begin_grid(int threads_of_block, const void* function);
  void begin_block();
  void shared_memory(const void* begin, size_t bytes);
  void meet(int thread, const void* where, int expected);
  void fence(int thread);
  void touch(int thread, const void* address, size_t bytes, bool writes, const void* code);
  // A read and a write at once, which race with no other atomic.
  void atomic(int thread, const void* address, size_t bytes, const void* code);
  // What was found since the grid began, a line each: "race: KERNEL FILE:LINE against FILE:LINE".
  std::string report() const;

 private:
  using Clocks = std::vector<uint32_t>;  // by thread
  struct Access {
    uint32_t block = 0;  // counted over all grids; 0: none
    uint32_t epoch = 0;  // barriers of the whole block before it
    uint32_t clock = 0;  // the thread's own
    uint16_t thread = 0;
    bool atomic = false;
    const void* code = nullptr;
  };
  struct Word {
    Access write;
    std::array<Access, 4> reads;
  };
  static constexpr uintptr_t kWordBytes = 2, kPageBytes = 4096;
  using Page = std::array<Word, kPageBytes / kWordBytes>;
  // What of a block has happened before: epochs below `epoch`, and in it what `clocks` say.
  struct Known {
    uint32_t epoch = 0;
    Clocks clocks;
  };
  using Knowledge = std::map<uint32_t, Known>;  // by block
  struct Thread {
    uint32_t clock = 1, epoch = 0;
    Clocks seen;          // of others in `epoch`
    Knowledge others;     // of other blocks
    Knowledge released;   // at the last fence: what the next atomic tells
    Knowledge collected;  // by atomics: what the next fence makes known
  };

  Word& word(uintptr_t address);
  bool is_shared(uintptr_t address) const;
  void forget_other_blocks(Word& at) const;
  Clocks& clocks_of(int thread);
  bool ordered(const Access& before, int thread);
  void check(const Access& before, int thread, bool atomic, const void* code);
  void touch_word(Word& at, int thread, bool reads, bool writes, bool atomic, const void* code);
  static void merge(Knowledge& into, const Knowledge& from);

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::pair<uintptr_t, uintptr_t>> shared_;  // begin, end
  std::map<const void*, std::vector<int>> meetings_;     // who has arrived
  std::map<uintptr_t, Knowledge> told_;                  // by the atomic's address
  std::vector<Thread> threads_;
  const void* function_ = nullptr;  // the kernel
  uint32_t block_ = 0, first_block_ = 0, epoch_ = 0;
  std::set<std::pair<const void*, const void*>> races_;
  std::set<const void*> unwritten_;
};

}  // namespace fsdp::emulator
