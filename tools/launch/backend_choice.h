// What computes for a rank: the CPU, or one of the GPUs of its host. Ranks of a host take its GPUs
// in the order of their ranks, each of those that its process sees (CUDA_VISIBLE_DEVICES). Not
// here: the backends themselves (kernels/cpu, kernels/cuda).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/nccl_transport.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_devices.h"

namespace fsdp::tools {

struct BackendOptions {
  cpu::CpuOptions cpu = {};
  std::optional<cuda::CudaOptions> cuda = std::nullopt;  // none: the CPU computes
  bool only_cuda = false;  // asked for by name: nothing is left to the CPU
  std::optional<comm::NcclOptions> nccl = std::nullopt;  // GPUs talk over NCCL; none: through hosts
};

// f64, which a GPU is not used for, is computed by the CPU; an error with only_cuda.
std::unique_ptr<Backend> make_backend(const BackendOptions& options, DType compute);

// The communicator that GPUs talk over: NCCL's where it was chosen and `backend` is a GPU's, else
// null (`world`, through hosts, is it then). Collective.
std::unique_ptr<comm::Communicator> make_gpu_world(comm::Communicator& world,
                                                   const BackendOptions& options,
                                                   const Backend& backend);

struct GpuChoice {
  std::optional<cuda::CudaOptions> cuda;  // none: the CPU
  bool shared = false;                    // some GPU (or parts of one) has several ranks
  std::string note;                       // why not a GPU, where that may surprise
};

std::string host_name();

struct RankGpus {
  int first_of_host = 0;  // the lowest rank that runs on the same machine: which one that is
  std::string host;       // its name, for people
  std::string reason;     // why there are no GPUs
  std::vector<std::string> gpus;  // that its process sees: cuda::DeviceCount::ids
};
// By rank. Collective.
std::vector<RankGpus> gpus_of_ranks(comm::Communicator& world, int first_of_host,
                                    const std::string& backend);

// `backend`: "auto" or empty, "cpu", "cuda". The same error on every rank: when `backend` is "cuda"
// and a rank has no GPU; when two ranks would have to take the same one, unless they may share.
GpuChoice choose_gpu(const std::vector<RankGpus>& ranks, int rank, const std::string& backend,
                     bool share_gpus);

// How a GPU multiplies matrices.
struct ProductOptions {
  bool tf32 = false;   // f32 operands may be rounded to TF32
  std::string choice;  // of algorithms: "heuristic" (also empty), "timed"
};
// Error when it is asked of the CPU.
void choose_products(const ProductOptions& options, GpuChoice& gpu);
// Error when none of the dtypes that are computed in is what TF32 is for.
void check_products(const BackendOptions& options, const std::vector<DType>& computed);

// Who computes attention. `attention`: "auto" or empty, "cudnn", "own". The same error on every
// rank: "cudnn" of the CPU or without the library. Collective.
void choose_attention(comm::Communicator& world, const std::string& attention, GpuChoice& gpu);

struct TransportChoice {
  bool nccl = false;
  std::string note;  // why not, where that may surprise
};
// How GPUs talk to each other. `transport`: "auto" or empty (NCCL where several ranks have a GPU
// each and all have the library), "nccl", "host". The same error on every rank: "nccl" without GPUs
// or without the library. Collective.
TransportChoice choose_transport(comm::Communicator& world, const std::string& transport,
                                 const GpuChoice& gpu);

// Who may take which part of a GPU: `nccl_ctas` multiprocessors a collective, of which two may run
// at once (a gather and a reduction, in backward), and the others products: one that counted on
// those of the second would wait for it with a part of its work, as long as for all of it.
// 0: as each of them likes. The same error on every rank: when collectives are not NCCL's.
void divide_multiprocessors(int nccl_ctas, const TransportChoice& transport, GpuChoice& gpu);

}  // namespace fsdp::tools
