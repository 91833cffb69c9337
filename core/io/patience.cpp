// Contract: core/io/patience.h.
#include "core/io/patience.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <new>
#include <system_error>

#include "core/machine_error.h"

namespace fsdp {

bool is_transient(int error) {
  constexpr std::array kTransient = {EIO,       ESTALE,      ETIMEDOUT,    EAGAIN,    EBUSY,
                                     ENETDOWN,  ENETUNREACH, EHOSTDOWN,    EREMOTEIO, ECONNRESET,
                                     ENETRESET, ENOLINK,     EHOSTUNREACH, ECOMM,     ECONNREFUSED};
  return std::find(kTransient.begin(), kTransient.end(), error) != kTransient.end();
}

bool is_of_machine(int error) {
  constexpr std::array kOthers = {ENOSPC, EDQUOT, EFBIG, EMFILE, ENFILE, ENOMEM, ESHUTDOWN};
  return is_transient(error) || std::find(kOthers.begin(), kOthers.end(), error) != kOthers.end();
}

bool is_of_machine(const std::exception& error) {
  if (const auto* of_file = dynamic_cast<const SystemError*>(&error)) {
    return is_of_machine(of_file->code());
  }
  if (const auto* of_system = dynamic_cast<const std::system_error*>(&error)) {
    return is_of_machine(of_system->code().value());
  }
  return dynamic_cast<const MachineError*>(&error) || dynamic_cast<const std::bad_alloc*>(&error);
}

std::chrono::milliseconds pause_before_retry(const IoPatience& patience, int64_t retry) {
  const double all = std::exp2(static_cast<double>(patience.retries)) - 1;  // 1 + 2 + 4 + ...
  const double share = std::exp2(static_cast<double>(retry)) / std::max(all, 1.0);
  return std::chrono::milliseconds(
      std::llround(static_cast<double>(patience.over.count()) * share));
}

}  // namespace fsdp
