// GPUs as cuDNN is told of them, so that it is asked for plans without one. Of test_cudnn_support.
// The problems that are asked for, and the workspace that plans of cuDNN 9.19 then take.
#pragma once

#include <algorithm>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "core/error.h"
#include "kernels/cuda/cudnn_attention_graph.h"

namespace fsdp::cuda {

struct Gpu {
  const char* name;
  int multiprocessors, clock_khz, memory_clock_khz, cache, shared_optin, version;
  int64_t memory;
  int bus_bits;
};
// The H200's are read from one, the others' are of data sheets.
inline constexpr Gpu kH100 = {"H100", 132, 1980000,     2619000, 52428800,
                              232448, 900, 85029158912, 5120};
inline constexpr Gpu kH200 = {"H200", 132, 1980000,      3201000, 62914560,
                              232448, 900, 150121545728, 6144};
inline constexpr Gpu kA100 = {"A100", 108, 1410000,     1593000, 41943040,
                              166912, 800, 85031714816, 5120};
inline constexpr Gpu kB200 = {"B200", 148,  1965000,      3996000, 132644864,
                              232448, 1000, 191501828096, 8192};

inline std::string described(const Gpu& gpu) {
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":{},"smClockRateKHz":{},"memClockRateKHz":{},)"
      R"("l2CacheSize":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
      R"("maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,)"
      R"("maxRegistersPerSM":65536,"pciDeviceId":0,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"isTccDriver":0,"supportCoopLaunch":1,"deviceVer":{},)"
      R"("driverVer":13000,"deviceName":"NVIDIA {}","cudaDeviceId":0,"totalGlobalMem":{},)"
      R"("smCountOrigin":0,"oversizedSharedMemoryPerBlock":0,"memoryBusWidth":{}}})",
      gpu.multiprocessors, gpu.clock_khz, gpu.memory_clock_khz, gpu.cache, gpu.shared_optin,
      gpu.version, gpu.name, gpu.memory, gpu.bus_bits);
}

inline bool has_driver() {  // a real one or ours: found by its name from then on
  return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) ||
         ::dlopen(FSDP_DRIVER_STUB, RTLD_NOW | RTLD_GLOBAL);
}

// The owner of a description.
inline dnn::Object device_of(const Gpu& gpu) {
  dnn::Object device(dnn::kDeviceProperties);
  const std::string json = described(gpu);
  device.set(dnn::kDeviceJson, json.c_str(), json.size() + 1);
  device.finalize(gpu.name);
  return device;
}

enum class Direction { kForward, kBackward, kAnyOrder };  // the last: dq added up in any order
inline constexpr Direction kDirections[] = {Direction::kForward, Direction::kBackward,
                                            Direction::kAnyOrder};
inline const char* name_of(Direction direction) {
  constexpr const char* kNames[] = {"forward", "backward", "any order"};
  return kNames[static_cast<size_t>(direction)];
}

// Packed: q, k and v in one tensor.
inline CudnnAttentionKind with_strides(CudnnAttentionKind kind, Direction direction,
                                       bool packed = false) {
  const int64_t of_q = kind.heads * kind.head_dim, of_k = kind.kv_heads * kind.head_dim;
  const int64_t of_all = of_q + 2 * of_k;
  const auto rows = [&](int64_t length, int64_t width) {
    return HeadStrides{length * width, width, kind.head_dim};
  };
  kind.q = rows(kind.queries, packed ? of_all : of_q);
  kind.k = kind.v = rows(kind.keys, packed ? of_all : of_k);
  kind.out = rows(kind.queries, of_q);
  kind.statistics_batch_stride = kind.heads * kind.queries;
  kind.bias_head_stride = kind.bias_heads > 0 ? kind.keys : 0;
  kind.backward = direction != Direction::kForward;
  kind.deterministic = direction != Direction::kAnyOrder;
  if (kind.backward) {
    kind.dq = kind.q;
    kind.dk = kind.dv = kind.k;
  }
  return kind;
}

// Hopper has engines for all backward passes. Other GPUs have no engine for heads of more than 128,
// and Blackwell alone has an engine for documents, in any order.
inline bool has_engine(const Gpu& gpu, const CudnnAttentionKind& kind) {
  if (!kind.backward || gpu.version == 900) return true;
  const bool any_order_of_new = gpu.version == 1000 && !kind.deterministic;
  return kind.head_dim <= 128 && (!kind.documents || any_order_of_new);
}

// Least and most, bytes.
struct ExpectedWorkspace {
  int64_t least, most;
};
// What an engine keeps: of a fixed order dscores, in tiles; gradients of shared keys and values by
// query head; and without a fixed order, on some GPUs, sums of its own.
inline ExpectedWorkspace expected_workspace(const Gpu& gpu, const CudnnAttentionKind& kind) {
  constexpr int64_t kAlways = 384;
  if (!kind.backward) return {0, kAlways};
  const auto up = [](int64_t length, int64_t to) { return (length + to - 1) / to * to; };
  const int64_t heads = kind.batch * kind.heads;
  const int64_t by_head =
      kind.heads == kind.kv_heads ? 0 : 2 * heads * kind.keys * kind.head_dim * 2;
  if (kind.deterministic) {
    const auto scores = [&](int64_t tile) {
      return heads * up(kind.queries, tile) * up(kind.keys, tile) * 2;
    };
    return {by_head + scores(64), by_head + scores(128) + kAlways};
  }
  const int64_t own_sums = gpu.version == 900 ? 0 : 4 * heads * up(kind.queries, 8) * kind.head_dim;
  return {by_head, by_head + own_sums + kAlways};
}

}  // namespace fsdp::cuda
