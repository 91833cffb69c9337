// Contract: core/io/patience.h.
#include "core/io/patience.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>

#include "core/machine_error.h"

namespace fsdp {
namespace {

// The number of a call that a file or a folder refused; 0: none has.
int code_of(const std::exception& error) {
  if (const auto* of_file = dynamic_cast<const SystemError*>(&error)) return of_file->code();
  const auto* of_folder = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  return of_folder ? of_folder->code().value() : 0;
}

}  // namespace

// The list is of what a person can get by a name, a place or a right: file systems have errors of
// their own that no list knows.
Cause cause_of(int error) {
  constexpr std::array kOfNames = {ENOENT, ENOTDIR, EISDIR,       EACCES, EPERM,  EROFS,
                                   ELOOP,  EEXIST,  ENAMETOOLONG, EXDEV,  EINVAL, ENOTEMPTY,
                                   ENOSYS, ENOTSUP, EILSEQ,       EMLINK, ETXTBSY};
  const bool of_name = std::find(kOfNames.begin(), kOfNames.end(), error) != kOfNames.end();
  return of_name ? Cause::kName : Cause::kMachine;
}

Cause cause_of(const std::exception& error) {
  if (const auto* of_file = dynamic_cast<const SystemError*>(&error)) {
    return cause_of(of_file->code());
  }
  if (const auto* of_system = dynamic_cast<const std::system_error*>(&error)) {
    return cause_of(of_system->code().value());
  }
  const bool of_machine =
      dynamic_cast<const MachineError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error);
  return of_machine ? Cause::kMachine : Cause::kPerson;
}

bool is_transient(int error) {
  // Of a disk that is full, of limits, and of a file system that somebody has to repair.
  constexpr std::array kLasting = {ENOSPC, EDQUOT, EFBIG,   EMFILE,
                                   ENFILE, ENOMEM, EUCLEAN, ESHUTDOWN};
  return cause_of(error) == Cause::kMachine &&
         std::find(kLasting.begin(), kLasting.end(), error) == kLasting.end();
}

std::chrono::milliseconds pause_before_retry(const IoPatience& patience, int64_t retry) {
  const double all = std::exp2(static_cast<double>(patience.retries)) - 1;  // 1 + 2 + 4 + ...
  const double share = std::exp2(static_cast<double>(retry)) / std::max(all, 1.0);
  return std::chrono::milliseconds(
      std::llround(static_cast<double>(patience.over.count()) * share));
}

void fail_like(const std::exception& error, const std::string& message) {
  if (const int code = code_of(error)) throw SystemError(message, code);
  if (cause_of(error) == Cause::kMachine) throw MachineError(message);
  throw Error(message);
}

void fail_missing(const std::string& message) { throw SystemError(message, ENOENT); }

bool may_pass(const IoPatience& patience, const std::exception& error) {
  const int code = code_of(error);
  return code != 0 && (is_transient(code) || (patience.goes_on && code == ENOENT));
}

void wait_for_retry(const IoPatience& patience, int64_t retry, const std::exception& error) {
  if (retry == patience.retries) {
    fail_like(error, fmt::format("{} ({} times)", error.what(), retry + 1));
  }
  std::this_thread::sleep_for(pause_before_retry(patience, retry));
}

}  // namespace fsdp
