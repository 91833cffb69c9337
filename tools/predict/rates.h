// A machine, and what training programs reach with it: the numbers of which the time of a call is
// computed. Formulas: call_rates.h. Files: rates_file.h; those that the program
// brings along: machines.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/dtype.h"

namespace fsdp::tools {

// `latency_us`, `hop_us` for every step of a ring, and the bytes at `bytes_per_s`.
struct LinkRate {
  double latency_us = 0;
  double bytes_per_s = 0;
  double hop_us = 0;

  double seconds(double bytes) const { return latency_us * 1e-6 + bytes / bytes_per_s; }
  bool operator==(const LinkRate&) const = default;
};

// The extents of a product at which it reaches half of its rate. 0: it always has all of it.
struct ProductHalves {
  double m = 0, n = 0, k = 0;
  bool operator==(const ProductHalves&) const = default;
};

// Fused attention, of products that are not left out: of heads of 128 and a length without end.
struct AttentionRate {
  std::map<DType, double> flops_per_s;  // a dtype that is left out: as matrix products
  double head_half = 0, keys_half = 0;  // the head size and the length of half of the rate
  bool operator==(const AttentionRate&) const = default;
};

// The clock of products and attention goes with the cube root of limit / design: dynamic power is
// capacity x voltage^2 x clock, and the voltage goes with the clock. 0: there is no limit.
struct PowerLimit {
  double limit_watts = 0, design_watts = 0;
  bool operator==(const PowerLimit&) const = default;
};

// busbw of a rank, measured with full nodes: the median of repetitions and, where it is known, the
// 5th and 95th percentile (0: it is not).
struct MeasuredBus {
  int ranks = 0;
  double bytes_per_s = 0, p5 = 0, p95 = 0;
  bool operator==(const MeasuredBus&) const = default;
};

// Calls with the same key take the same time.
struct CallKey {
  std::string kernel;  // as in traces
  std::string shape;   // of meta::KernelCall
  DType dtype = DType::kF32;
  auto operator<=>(const CallKey&) const = default;
};

struct Rates {
  std::string machine;       // for people
  std::string note;          // what one must know of its numbers; "": nothing
  bool memory_only = false;  // a person said a GPU's memory and no kind: times mean nothing
  // ---- The device ----
  std::map<DType, double> flops_per_s;       // of matrix products without end, by operands' dtype
  std::map<DType, double> peak_flops_per_s;  // of the data sheet, for utilizations; may be empty
  ProductHalves product_half;
  int multiprocessors = 0;  // 0: products of any size fill the device
  AttentionRate attention;
  PowerLimit power;
  double memory_bytes_per_s = 0;  // read and written, as kernels that stream reach it
  double kernel_us = 0;           // the least that a kernel takes
  double ramp_us = 0;             // that every kernel takes beside its work
  double issue_us = 0;            // of the host, for each call
  double device_gib = 0;          // memory that CUDA says the device has; 0: not known
  double context_mib = 0;         // of it, for CUDA and its libraries
  // ---- Links ----
  double interference = 0;  // share of the device's speed that is lost while a collective runs
  int ranks_per_node = 8;
  // Of a rank to the others of its group, as nccl-tests' busbw. Where a group spans nodes, its
  // ranks on a node share the node's links: each has one, and all of them work for the group.
  LinkRate inside_node, between_nodes;
  // In place of both links' bytes_per_s, by rising ranks.
  std::map<comm::Collective, std::vector<MeasuredBus>> measured_bus;
  LinkRate host_copy;                  // between a device and its host
  LinkRate disk_read, disk_write;      // of a node, whose ranks share them
  double host_memory_bytes_per_s = 0;  // of a rank's share of its host; 0: the host computes it all
  // ---- What was measured, and where numbers come from ----
  std::map<CallKey, double> kernels;           // microseconds of one call
  std::map<std::string, std::string> sources;  // by key of the file: "inside_node.hop_us"
  bool operator==(const Rates&) const = default;
};

}  // namespace fsdp::tools
