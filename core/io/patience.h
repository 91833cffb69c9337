// Patience with a file system that refuses a call for a moment: a server that restarts (ESTALE,
// ETIMEDOUT), a path of the storage that fails over (EIO). Such a call is made again; what a file
// holds is never tried again. And the one rule that says whether a person or the machine has made
// an error. Not here: files (core/io/file.h), which make a call again that a signal ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

#include "core/io/file.h"

namespace fsdp {

struct IoPatience {
  int64_t retries = 3;
  std::chrono::milliseconds over{5000};  // all pauses together; each is twice the one before
  // The run has found its files before: a name that is missing now may come back.
  bool goes_on = false;
};

// Who may have made an error.
enum class Cause : uint8_t {
  kPerson,   // what was given is wrong
  kName,     // the system refused a call as for a wrong name or a missing permission
  kMachine,  // a disk, a server, the network, a lack of memory: no person's mistake is like it
};
Cause cause_of(int error);
Cause cause_of(const std::exception& error);

// Whether the same call may succeed later: errors of a disk, a server or the network between.
bool is_transient(int error);
inline bool is_of_machine(int error) { return cause_of(error) == Cause::kMachine; }
inline bool is_of_machine(const std::exception& error) {
  return cause_of(error) == Cause::kMachine;
}
std::chrono::milliseconds pause_before_retry(const IoPatience& patience, int64_t retry);

// Throws an error with another message that has the cause of `error`.
[[noreturn]] void fail_like(const std::exception& error, const std::string& message);
// For what is looked for by its name and is not there.
[[noreturn]] void fail_missing(const std::string& message);

// Whether work that has failed so is done again at all; the pause before, or the last error.
bool may_pass(const IoPatience& patience, const std::exception& error);
void wait_for_retry(const IoPatience& patience, int64_t retry, const std::exception& error);

// What `work` returns, which is called again after an error of the system that may pass. The last
// one is thrown on, and says how often the call was made.
template <typename Work>
auto patiently(const IoPatience& patience, Work&& work) {
  for (int64_t retry = 0;; ++retry) {
    try {
      return work();
    } catch (const std::exception& error) {
      if (!may_pass(patience, error)) throw;
      wait_for_retry(patience, retry, error);
    }
  }
}

}  // namespace fsdp
