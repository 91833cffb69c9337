// What host sources of the emulated backend begin with: their waits are places that can be left
// out, one by one, as the barriers of kernels are. Those of the runtime are renamed here, the
// others by edges.sed. Read next: mutations.sh.
#pragma once

#include <cuda_runtime_api.h>

#include "tests/cuda_emulator/scheduler.h"

namespace fsdp::emulator {

// f, or what does nothing and returns that it succeeded.
template <typename Result, typename... Parameters>
auto unless_left_out(const Place& place, Result (*f)(Parameters...)) {
  const auto nothing = [](Parameters...) { return Result{}; };
  return left_out(place) ? static_cast<decltype(f)>(nothing) : f;
}

}  // namespace fsdp::emulator

#define FSDP_KEPT(what) (!::fsdp::emulator::left_out({__FILE__, __LINE__, #what}))
#define FSDP_UNLESS_LEFT_OUT(f) ::fsdp::emulator::unless_left_out({__FILE__, __LINE__, #f}, f)

#define cudaEventQuery FSDP_UNLESS_LEFT_OUT(cudaEventQuery)
#define cudaEventSynchronize FSDP_UNLESS_LEFT_OUT(cudaEventSynchronize)
#define cudaStreamSynchronize FSDP_UNLESS_LEFT_OUT(cudaStreamSynchronize)
#define cudaStreamWaitEvent FSDP_UNLESS_LEFT_OUT(cudaStreamWaitEvent)
