// Which GPUs there are, and the backend that computes on one of them. No CUDA header is needed to
// include this: a program built without CUDA (cuda_absent.cpp) finds no GPU and says so.
// Read next: kernels/cuda/cuda_backend.h.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"

namespace fsdp::cuda {

struct DeviceCount {
  int devices = 0;
  std::string reason;  // why there are none: no driver, no GPU, built without CUDA
  // One for each GPU, the same in every process that sees it: "PCI address UUID". Parts of one GPU
  // (MIG) differ in the second word only.
  std::vector<std::string> ids = {};
  bool of_machine = false;  // the reason is one that may pass: a fault, a service that starts
};
DeviceCount count_devices();  // never throws
// Why no kernel of this program can run on the GPU: it has no code for it, or PTX that the driver
// does not know; empty: they can. Gives the GPU a context, about half a gigabyte of its memory, so
// it is not asked of GPUs that this process leaves to others.
std::string missing_code(int device);
// What a GPU has left for this process, whose context takes its part first.
struct FreeMemory {
  std::string name;  // of the GPU
  size_t bytes = 0;
  size_t pool = 0;                           // what this process's pool has taken besides
  size_t pool_used = 0;                      // of that; the rest is kept
  size_t pool_peak = 0, pool_used_peak = 0;  // the most of both so far
};
FreeMemory free_memory(int device);  // Error when there is no such device
// Settings that CUDA reads when it is first called. Before that, and before the first thread.
void set_up_environment();
bool built();  // whether this program has the backend

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  size_t memory = 0;            // bytes
  size_t cache = 0;             // bytes, the last one before memory
  size_t shared_per_block = 0;  // bytes that a block may have, static and dynamic
};

// Who computes attention: kAuto: cuDNN where it is installed, its rule is ours and a plan is worth
// compiling, else the own kernels. kCudnn: an error where cuDNN cannot.
enum class AttentionChoice : uint8_t { kAuto, kCudnn, kOwn };

struct CudaOptions {
  int device = 0;
  bool synchronous = false;  // wait after every kernel: for debugging
  bool tf32 = false;         // f32 matrix products may round their operands to TF32
  // For each kind of matrix product the fastest algorithm is found by time and kept in this folder:
  // kernels/cuda/matmul_choices.h. Empty: the one that cuBLASLt names first.
  std::filesystem::path matmul_choices = {};
  std::function<void(const std::string&)> note = {};  // called with what the user may want to know
  int products_leave = 0;                             // multiprocessors left to communication
  AttentionChoice attention = AttentionChoice::kAuto;
  // Bytes that a plan of cuDNN may take; 0: a 32nd of the GPU's memory, at least 1 GiB.
  size_t attention_workspace = 0;
  // False: cuDNN adds up dq in any order, which takes memory by T and not by T * T.
  bool attention_deterministic = true;
};

// Why there is no cuDNN here; empty: there is.
std::string cudnn_missing();

// Error when there is no such device.
std::unique_ptr<Backend> make_backend(const CudaOptions& options);

}  // namespace fsdp::cuda
