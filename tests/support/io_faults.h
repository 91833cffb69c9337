// Lets calls of the system fail that core/io/file.cpp makes for files below a folder: the Nth one
// once, or from then on; or shows them to a witness (power_loss.h). The linker puts these functions
// in the place of the system's (tools/cmake/Tests.cmake: test_tools), so the product knows nothing
// of it. Not here: disks that are really full (tests/e2e/resume.sh).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace fsdp::test {

enum class IoFault : uint8_t {
  kNone,
  kError,  // EIO; of write: ENOSPC
  kShort,  // read and write do half of what was asked for
};

struct IoFaultPlan {
  IoFault fault = IoFault::kNone;
  int64_t at = 0;             // the call, from 0, of those that can have this fault
  bool from_then_on = false;  // else once
  int error = 0;              // other than the usual one
  std::string only = {};      // this call alone: "flock"; "": all
};

// A call that went well. What a call does not have is empty.
struct IoCall {
  std::string name = {};
  std::string path = {};
  int file = -1;
  const void* data = nullptr;
  size_t bytes = 0;  // that were written
  int64_t offset = 0;
};

// Sees the calls that change something, in their order: meanwhile other threads wait.
class IoWitness {
 public:
  virtual ~IoWitness() = default;
  virtual void before_call() = 0;
  virtual void after_call(const IoCall& call) = 0;
};

// One at a time; for all threads.
class IoFaults {
 public:
  IoFaults(const std::filesystem::path& folder, const IoFaultPlan& plan,
           IoWitness* witness = nullptr);
  ~IoFaults();
  IoFaults(const IoFaults&) = delete;
  IoFaults& operator=(const IoFaults&) = delete;

  std::map<std::string, int64_t> calls() const;  // by name, that could have had the fault
  int64_t failed() const;
  std::string last_failed() const;  // the call
};

}  // namespace fsdp::test
