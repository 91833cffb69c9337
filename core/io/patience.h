// Patience with a file system that refuses a call for a moment: a server that restarts (ESTALE,
// ETIMEDOUT), a path of the storage that fails over (EIO). Such a call is made again; what a file
// holds is never tried again. Not here: files (core/io/file.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>

#include "core/io/file.h"

namespace fsdp {

struct IoPatience {
  int64_t retries = 3;
  std::chrono::milliseconds over{5000};  // all pauses together; each is twice the one before
};

// Whether the same call may succeed later: errors of a disk, a server or the network between.
bool is_transient(int error);
// Whether no person's mistake makes this error (a wrong name, a missing permission).
bool is_of_machine(int error);
bool is_of_machine(const std::exception& error);
std::chrono::milliseconds pause_before_retry(const IoPatience& patience, int64_t retry);

// What `work` returns, which is called again after a SystemError that may pass. The last one is
// thrown on, and says how often the call was made.
template <typename Work>
auto patiently(const IoPatience& patience, Work&& work) {
  for (int64_t retry = 0;; ++retry) {
    try {
      return work();
    } catch (const SystemError& error) {
      if (!is_transient(error.code())) throw;
      if (retry == patience.retries) {
        throw SystemError(fmt::format("{} ({} times)", error.what(), retry + 1), error.code());
      }
    }
    std::this_thread::sleep_for(pause_before_retry(patience, retry));
  }
}

}  // namespace fsdp
