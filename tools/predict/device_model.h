// How long a kernel takes on a device that nobody has measured it on: from its extents, its cost
// and the device's rates. With P the rate of products, A of attention, W of memory (Rates):
//
//   product M x N x K    max(2 M N K / P * (1 + hM/M) (1 + hN/N) (1 + hK/K) / fill, bytes / W) +
//   ramp attention            FLOPs / (A * (128 + hd)/128 * d/(d + hd) * T/(T + hT)) + ramp any
//   other kernel     max(FLOPs / P, bytes / W) + ramp each at least        kernel_us
//
// `fill` is the share of the multiprocessors that have a tile, of 64 x 64 results and 1,024 of K.
// FLOPs of causal attention are half of the square's, as its cost declares them. h are the extents
// of half of the rate: hM, hN, hK of products; hd of the head size d and hT of the length T of
// attention.
//
// Sources: the form and its constants were fitted on 138 published steps of llm-foundry, and held
// against nanotron, torchtitan, vTrain and LLMQ (tests/fixtures/planning/README.md). The fill was
// not: 1 in all of them. Not here: rows that were measured (call_rates.h), collectives
// (fabric_model.h).
#pragma once

#include "kernels/meta/kernel_call.h"
#include "tools/predict/rates.h"

namespace fsdp::tools {

double modelled_seconds(const Rates& rates, const meta::KernelCall& call);

}  // namespace fsdp::tools
