// The places of an engine on the CPU, where nothing is offloaded.
#pragma once

#include "kernels/cpu/cpu_backend.h"
#include "tools/engine/engine.h"

namespace fsdp::test {

inline Places on_cpu() { return {.device = std::make_unique<cpu::CpuBackend>()}; }

}  // namespace fsdp::test
