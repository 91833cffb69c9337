// A GPU on the CPU, for tests: kernels compiled by the C++ compiler run with one fiber per CUDA
// thread, block after block, in an order that a test chooses; shared memory and fresh allocations
// hold NaN patterns. What a missing barrier or an unwritten element would leave to chance on a GPU
// becomes a wrong result here. This header is what tests set and read; kernels never see it.
// Not here: speed, and effects of the memory model within a warp instruction.
// Read next: scheduler.h (fibers and barriers), runtime.cpp (streams, events, memory).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace fsdp::emulator {

enum class ThreadOrder : uint8_t { kForward, kReverse, kRandom };
// For which streams a call waits of which the driver says that it may wait for the device:
// cudaMalloc, cudaFree and the same of pinned memory, the first start of a kernel, which loads it,
// and a plan of cuDNN that is made. kForOwn: for those that the calling thread has made, as where
// every rank has a GPU; a thread that has made none, which is a worker, waits for all. kForAll: for
// those of all ranks, which share one.
enum class DriverWaits : uint8_t { kNever, kForOwn, kForAll };

struct Settings {
  ThreadOrder order = ThreadOrder::kForward;  // of blocks, of warps and of threads in them
  uint64_t seed = 0;                          // of kRandom
  bool early_copies = false;  // asynchronous ones are done where they are issued, not where awaited
  bool without_cudnn = false;  // no handle of it can be made
  int cudnn_engines = 4;       // that it offers, of those in cudnn.cpp
  // Barriers and waits that are left out, by place ("kernels/cuda/norm.cu:57 __syncthreads"):
  // proves that tests notice. Null: none.
  std::function<bool(const std::string&)> leave_out;
  // Test hooks of streams, as in cpu::CpuOptions.
  std::function<int(const std::string&, std::string_view)> delay;
  std::function<bool(const std::string&, const std::string&)> ignore_wait;
  // Bytes of the device. CUDA_EMULATOR_MEMORY_MIB sets another default.
  uint64_t memory = uint64_t{2} << 30;
  uint64_t shared_per_block = 232448;  // bytes that a block may ask for; an H200's
  int compute_capability = 90;         // ten times it: an H200's
  int driver = -1;  // the CUDA that the driver knows, 12040; 0: there is none; -1: this program's
  int count_error = 0;  // the cudaError_t of cudaGetDeviceCount, unless 0
  int kernel_code = 0;  // the cudaError_t with which a kernel is found; 0: there is code of it.
  // CUDA_EMULATOR_KERNEL_CODE sets another default
  // Few, so that grids that fill the device stay small. CUDA_EMULATOR_MULTIPROCESSORS sets another
  // default.
  int multiprocessors = 4;
  // After a kernel failed every call of the runtime fails, as on a GPU, until the emulator is
  // configured anew. False: the next kernel runs.
  bool sticky = true;
  // The kernel of this number, counted from 1 since the emulator was configured, reads an illegal
  // address. 0: none. CUDA_EMULATOR_FAULT sets another default.
  int64_t faulty_kernel = 0;
  // CUDA_EMULATOR_DRIVER_WAITS=own, =all set another default.
  DriverWaits driver_waits = DriverWaits::kNever;
  int nccl_max_ctas = 0;  // that a communicator must be made with; 0: with none
  // What NCCL says of every communicator when it is asked for errors, unless 0.
  int nccl_error = 0;
  // Of the device, that a communicator takes when it is made, and as many with the first
  // collective, which connects the ranks. CUDA_EMULATOR_NCCL_MIB sets another default.
  uint64_t nccl_bytes = 0;
  bool nccl_aborts_alone = false;  // without waiting for peers' connections: see nccl.cpp
  // Called in every collective that NCCL is asked for, before it touches the communicator.
  std::function<void()> nccl_call;
  // What a product takes by the device's clock, ns, on top of what it takes here; told the place of
  // its algorithm among those that cuBLASLt offers. Null: nothing. Negative: it is refused.
  std::function<int64_t(int)> product_ns;
};

// Of all kernels that start from now on. Not while a kernel runs.
void configure(const Settings& settings);
const Settings& settings();

// What cudaGetDeviceCount and cudaGetDeviceProperties tell this thread, as CUDA_VISIBLE_DEVICES
// tells a process: which GPUs of the machine it sees. All are the same one otherwise: device 0.
void see_devices(std::vector<int> of_machine);

// How often NCCL has been given a communicator that it had freed before.
int64_t nccl_uses_of_freed();
// How often memory has been registered with NCCL so far.
int64_t nccl_registrations();

// What the calling thread has asked of the runtime so far.
struct Counts {
  std::map<std::string, int64_t> launches;  // of kernels and library calls, by operation
  int64_t allocations = 0;                  // of the pool
  int64_t events = 0;                       // recorded
  int64_t stream_waits = 0;                 // of a stream: for an event, or for the host
  int64_t host_waits = 0;                   // of this thread: for a stream or an event
};
Counts counts();

// Of a library that, as the driver does, waits for the device.
void wait_for_streams();
// What a library meets as well: whether a kernel has failed, so that nothing works on the device.
bool context_lost();

// Places of barriers and waits that have been reached so far, in order of their names.
std::vector<std::string> places();

// Of NVTX, by the calling thread since it was told to record: the name of a range that began; ""
// for one that ended.
void record_ranges(bool on);
std::vector<std::string> recorded_ranges();

// Runs with these settings, and the ones before afterwards.
class Configured {
 public:
  explicit Configured(const Settings& to) : before_(settings()) { configure(to); }
  ~Configured() { configure(before_); }
  Configured(const Configured&) = delete;
  Configured& operator=(const Configured&) = delete;

 private:
  Settings before_;
};

}  // namespace fsdp::emulator
