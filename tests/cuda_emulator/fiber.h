// A function with a stack of its own that can stop in the middle and go on later, on the thread of
// the operating system that resumes it. Who runs when: scheduler.cpp.
#pragma once

#include <cstddef>
#include <functional>

#include <boost/context/fiber.hpp>

namespace fsdp::emulator {

class Fiber {
 public:
  // `turn` is called whenever resume() finds the last call ended. It must not throw.
  explicit Fiber(std::function<void()> turn) : turn_(std::move(turn)) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void resume();  // from outside: until it pauses or its turn ends
  void pause();   // from inside: back to who resumed it
  bool has_on_stack(const void* address) const;

 private:
  boost::context::fiber body(boost::context::fiber outside);

  std::function<void()> turn_;
  bool quit_ = false;
  boost::context::fiber fiber_;    // while it is not running
  boost::context::fiber outside_;  // while it is
  const void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
  const void* outside_bottom_ = nullptr;
  size_t outside_bytes_ = 0;
};

}  // namespace fsdp::emulator
