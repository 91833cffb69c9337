// The most multiply-adds that this processor does: loops on registers alone, on all threads of a
// team. Unlike the speed of a library's products it does not move with the library. The method is
// that of the usual peak benchmarks (Empirical Roofline Toolkit): independent chains of
// multiply-adds, more than the processor needs to hide their latency.
// Not here: what is held against it (tools/bench/speed_of_light.h).
#pragma once

#include <optional>

#include "core/dtype.h"
#include "kernels/cpu/parallel.h"

namespace fsdp::cpu {

// FLOP/s (a multiply-add counts 2) of products of `operand`, over about `seconds` of wall time.
// bf16 is that of the processor's bf16 instruction where there is one, and f32's where operands are
// converted; so is f16. Nothing for bf16 on a processor with AMX, whose tiles are not measured.
// Error for integers.
std::optional<double> multiply_add_peak(ThreadTeam& team, DType operand, double seconds);

}  // namespace fsdp::cpu
