// Versions of the driver and the libraries, and links between GPUs.
// Requirements: S1.23.
#include "kernels/cuda/installation.h"

#include <doctest/doctest.h>

#include "kernels/cuda/cuda_devices.h"
#include "tests/support/gpu_support.h"

namespace fsdp::test {
namespace {

TEST_CASE("installation: the versions of what computes here") {
  on_gpu([](cuda::CudaBackend&) {
    const cuda::Installation found = cuda::installation();
    CHECK(found.runtime >= 12000);
    CHECK(found.driver / 1000 >= found.runtime / 1000);
    CHECK(found.cublas > 0);  // the backend has opened it
    CHECK((found.cudnn > 0) == cuda::cudnn_missing().empty());
  });
}

TEST_CASE("installation: links of a GPU, and of one that there is not") {
  on_gpu([](cuda::CudaBackend&) {
    const std::string id = cuda::count_devices().ids.at(0);
    const int links = cuda::active_nvlinks(id.substr(0, id.find(' ')));
    CHECK(links >= 0);
    CHECK(links <= 18);
  });
}

}  // namespace
}  // namespace fsdp::test
