// Stacks by Boost.Context, and what AddressSanitizer is told when they change.
#include "tests/cuda_emulator/fiber.h"

#include <boost/context/protected_fixedsize_stack.hpp>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
// Without AddressSanitizer nobody wants to know that the stack changes.
static void __sanitizer_start_switch_fiber(void**, const void*, size_t) {}
static void __sanitizer_finish_switch_fiber(void*, const void**, size_t*) {}
static void __asan_unpoison_memory_region(const volatile void*, size_t) {}
#endif

namespace fsdp::emulator {
namespace {

constexpr size_t kStackBytes = 256 << 10;  // address space; pages come when touched

}  // namespace

Fiber::~Fiber() {
  quit_ = true;
  if (!fiber_) return;
  resume();
  // Its stack is unmapped now; what comes to lie there is not a stack.
  __asan_unpoison_memory_region(stack_bottom_, stack_bytes_);
}

boost::context::fiber Fiber::body(boost::context::fiber outside) {
  __sanitizer_finish_switch_fiber(nullptr, &outside_bottom_, &outside_bytes_);
  outside_ = std::move(outside);
  while (!quit_) {
    turn_();
    pause();
  }
  __sanitizer_start_switch_fiber(nullptr, outside_bottom_, outside_bytes_);
  return std::move(outside_);
}

void Fiber::resume() {
  if (!fiber_) {
    boost::context::protected_fixedsize_stack allocator(kStackBytes);
    const boost::context::stack_context stack = allocator.allocate();
    stack_bytes_ = stack.size;
    stack_bottom_ = static_cast<const std::byte*>(stack.sp) - stack.size;
    fiber_ = boost::context::fiber(
        std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack), allocator,
        [this](boost::context::fiber&& outside) { return body(std::move(outside)); });
  }
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack_bottom_, stack_bytes_);
  fiber_ = std::move(fiber_).resume();
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
}

void Fiber::pause() {
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, outside_bottom_, outside_bytes_);
  outside_ = std::move(outside_).resume();
  __sanitizer_finish_switch_fiber(fake_stack, &outside_bottom_, &outside_bytes_);
}

bool Fiber::has_on_stack(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const auto* bottom = static_cast<const std::byte*>(stack_bottom_);
  return at >= bottom && at < bottom + stack_bytes_;
}

}  // namespace fsdp::emulator
