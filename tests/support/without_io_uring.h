// A thread to which the system refuses io_uring, as a container's seccomp filter does; so it does
// to the threads that it starts. The rest of the process is left alone.
#pragma once

#include <cerrno>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "core/error.h"

namespace fsdp::test {

// Runs it on such a thread, and rethrows its error.
inline void without_io_uring(const std::function<void()>& work) {
  std::exception_ptr error;
  std::thread([&] {
    try {
      sock_filter steps[] = {
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA)),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      };
      const sock_fprog filter = {.len = std::size(steps), .filter = steps};
      FSDP_CHECK(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                     ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0,
                 "[test] the system takes no filter");
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
}

}  // namespace fsdp::test
