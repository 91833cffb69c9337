// What computes for a rank: the CPU, or one of the GPUs of its host. The ranks of a host take its
// GPUs in the order of their numbers. A rank can take only a GPU that its process sees
// (CUDA_VISIBLE_DEVICES). Not here: the backends themselves (kernels/cpu, kernels/cuda).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_devices.h"
#include "kernels/meta/meta_backend.h"
#include "tools/launch/launch_options.h"

namespace fsdp::tools {

struct BackendOptions {
  cpu::CpuOptions cpu = {};
  std::optional<cuda::CudaOptions> cuda = std::nullopt;  // none: the CPU computes
  bool only_cuda = false;  // the user named CUDA: what a GPU cannot compute is an error
  std::optional<comm::NcclOptions> nccl = std::nullopt;  // GPUs talk over NCCL; none: through hosts
  std::optional<meta::MetaOptions> meta = std::nullopt;  // nothing computes
  std::string offload_folder = {};                       // of the file
};

// The CPU computes f64, for which no GPU is used. With only_cuda, f64 is an error.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, DType compute);

// The memory of the host beside `device`, and the CPU that computes there: what is offloaded lies
// here. Beside a GPU its memory is pinned. `device` outlives it.
std::unique_ptr<Backend> make_host_backend(const BackendOptions& options, Backend& device);

// A file in the folder, of `owner`: where what is offloaded lies instead of the host's memory.
std::unique_ptr<Backend> make_file_backend(const BackendOptions& options, Backend& device,
                                           const std::string& owner);
// What the file does in a slower way than the disk could; "": nothing.
std::string file_notice(const Backend& file);

// NCCL's communicator, where NCCL was chosen and `backend` is a GPU's. Null otherwise: GPUs then
// talk over `world`, through their hosts. Collective.
std::unique_ptr<comm::Communicator> make_gpu_world(comm::Communicator& world,
                                                   const BackendOptions& options,
                                                   const Backend& backend);

struct GpuChoice {
  std::optional<cuda::CudaOptions> cuda;  // none: the CPU
  bool shared = false;                    // some GPU (or parts of one) has several ranks
  std::string note;                       // why the CPU computes, where that may surprise
};

std::string host_name();
// Of the CPU's kernels, of the optimizers' too: "AVX-512", "AVX2".
std::string cpu_instruction_set();

struct RankGpus {
  int first_of_host = 0;          // the lowest rank on the same machine; identifies the machine
  std::string host;               // the machine's name, for people
  std::string reason;             // why there are no GPUs
  std::vector<std::string> gpus;  // the GPUs that the rank's process sees: cuda::DeviceCount::ids
  bool unusable = false;          // it sees none, although a GPU is there that nobody hid from it
  bool of_machine = false;        // the reason is one that may pass: MachineError
};
// By rank. `root`: where /dev is. Collective.
std::vector<RankGpus> gpus_of_ranks(comm::Communicator& world, int first_of_host,
                                    const std::string& backend,
                                    const std::filesystem::path& root = "/");

// `backend`: "auto", "cpu", "cuda". There are four errors, the same on every rank. `backend` is
// "cuda" and a rank has no GPU; it is "auto" and a rank has one that this program cannot use; it is
// "auto", some ranks have a GPU and others have none; two ranks must take one GPU and may not share
// it.
GpuChoice choose_gpu(const std::vector<RankGpus>& ranks, int rank, const std::string& backend,
                     bool share_gpus);

// Error when the program has no code for the GPU of this rank.
void check_code(const GpuChoice& gpu, const std::string& backend);

// How a GPU multiplies matrices. Error when an option for that is set and the CPU computes.
void choose_products(const LaunchOptions& options, GpuChoice& gpu);
// Error when TF32 is on and no computation is in f32, the only dtype to which TF32 applies.
void check_products(const BackendOptions& options, const std::vector<DType>& computed);

// Who computes attention. `attention`: "auto", "cudnn", "own". The same error on every
// rank: "cudnn" where the CPU computes, or where the library is missing. Collective.
void choose_attention(comm::Communicator& world, const std::string& attention, GpuChoice& gpu);

// Error when attention need not be deterministic, but no cuDNN computes it.
void check_attention(const BackendOptions& options, bool deterministic);

struct TransportChoice {
  bool nccl = false;
  std::string note;  // why NCCL is not used, where that may surprise
};
// How GPUs talk to each other. `transport`: "auto" (NCCL where several ranks have a GPU
// each and all have the library), "nccl", "host". The same error on every rank: "nccl" without GPUs
// or without the library. Collective.
TransportChoice choose_transport(comm::Communicator& world, const std::string& transport,
                                 const GpuChoice& gpu);

// Divides the multiprocessors of a GPU between collectives and matrix products. Two collectives may
// run at once (a gather and a reduction, in backward), so products leave twice as many free as one
// collective takes. A product that used more would have to wait: its last part could start only
// when a collective ends. 0: NCCL and cuBLASLt choose. The same error on every rank: not 0, and the
// collectives are not NCCL's.
void divide_multiprocessors(int64_t per_collective, const TransportChoice& transport,
                            GpuChoice& gpu);

}  // namespace fsdp::tools
