// What -fsanitize=thread calls for every load, store and atomic of the kernels, with these
// functions in place of its library: each access of a running kernel goes to the watcher. Names and
// arguments are those of GCC and Clang (LLVM's compiler-rt/lib/tsan/rtl/tsan_interface.h).
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "tests/cuda_emulator/races/race_watcher.h"

namespace fsdp::emulator {
namespace {

// A grid runs on one OS thread, and several run at once.
thread_local RaceWatcher races;
thread_local bool in_grid = false;

class Races : public Watcher {
 public:
  Races() { set_watcher(this); }
  void begin_grid(int threads, const void* function) override {
    races.begin_grid(threads, function);
    in_grid = true;
  }
  void begin_block() override { races.begin_block(); }
  void shared_memory(const void* begin, size_t bytes) override {
    races.shared_memory(begin, bytes);
  }
  void meet(const void* where, int expected) override {
    races.meet(running_thread(), where, expected);
  }
  void fence() override { races.fence(running_thread()); }
  void read(const void* address, size_t bytes, const void* code) override {
    races.touch(running_thread(), address, bytes, false, code);
  }
  void write(const void* address, size_t bytes, const void* code) override {
    races.touch(running_thread(), address, bytes, true, code);
  }
  void end_grid() override {
    in_grid = false;
    const std::string found = races.report();
    if (!found.empty()) throw Error(found);
  }
};
Races watcher;

void touch(const void* address, size_t bytes, bool writes, const void* code) {
  const int thread = in_grid ? running_thread() : -1;
  if (thread < 0 || on_running_stack(address)) return;
  races.touch(thread, address, bytes, writes, code);
}

void touch_atomic(const volatile void* address, size_t bytes, const void* code) {
  const int thread = in_grid ? running_thread() : -1;
  const void* at = const_cast<const void*>(address);
  if (thread >= 0 && !on_running_stack(at)) races.atomic(thread, at, bytes, code);
}

}  // namespace
}  // namespace fsdp::emulator

#define CODE __builtin_return_address(0)
#define TOUCH(name, bytes)                              \
  void __tsan_##name##read##bytes(void* address) {      \
    fsdp::emulator::touch(address, bytes, false, CODE); \
  }                                                     \
  void __tsan_##name##write##bytes(void* address) {     \
    fsdp::emulator::touch(address, bytes, true, CODE);  \
  }
#define TOUCHES(name) TOUCH(name, 1) TOUCH(name, 2) TOUCH(name, 4) TOUCH(name, 8) TOUCH(name, 16)

#define MODIFY(T, bits, name)                                    \
  T __tsan_atomic##bits##_##name(volatile T* at, T value, int) { \
    fsdp::emulator::touch_atomic(at, sizeof(T), CODE);           \
    return __atomic_##name(at, value, __ATOMIC_SEQ_CST);         \
  }
#define EXCHANGE(T, bits, kind)                                                                   \
  bool __tsan_atomic##bits##_compare_exchange_##kind(volatile T* at, T* expected, T desired, int, \
                                                     int) {                                       \
    fsdp::emulator::touch_atomic(at, sizeof(T), CODE);                                            \
    return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_SEQ_CST,            \
                                       __ATOMIC_SEQ_CST);                                         \
  }
#define ATOMICS(T, bits)                                           \
  T __tsan_atomic##bits##_load(const volatile T* at, int) {        \
    fsdp::emulator::touch_atomic(at, sizeof(T), CODE);             \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                  \
  }                                                                \
  void __tsan_atomic##bits##_store(volatile T* at, T value, int) { \
    fsdp::emulator::touch_atomic(at, sizeof(T), CODE);             \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                 \
  }                                                                \
  T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) { \
    fsdp::emulator::touch_atomic(at, sizeof(T), CODE);             \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);       \
  }                                                                \
  MODIFY(T, bits, fetch_add)                                       \
  MODIFY(T, bits, fetch_sub)                                       \
  MODIFY(T, bits, fetch_and)                                       \
  MODIFY(T, bits, fetch_or)                                        \
  MODIFY(T, bits, fetch_xor) EXCHANGE(T, bits, strong) EXCHANGE(T, bits, weak)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
TOUCHES()
TOUCHES(unaligned_)
TOUCHES(volatile_)
TOUCHES(unaligned_volatile_)
void __tsan_read_range(void* address, size_t bytes) {
  fsdp::emulator::touch(address, bytes, false, CODE);
}
void __tsan_write_range(void* address, size_t bytes) {
  fsdp::emulator::touch(address, bytes, true, CODE);
}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
ATOMICS(uint8_t, 8)
ATOMICS(uint16_t, 16)
ATOMICS(uint32_t, 32)
ATOMICS(uint64_t, 64)
void __tsan_atomic_thread_fence(int) { std::atomic_thread_fence(std::memory_order_seq_cst); }
void __tsan_atomic_signal_fence(int) {}

}  // extern "C"
