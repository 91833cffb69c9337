// Opens cuDNN. The emulator of the tests has its own: tests/cuda_emulator/cudnn.cpp.
#include <dlfcn.h>

#include "core/dynamic_library.h"
#include "core/error.h"
#include "kernels/cuda/cudnn.h"

namespace fsdp::cuda::dnn {
namespace {

constexpr size_t kCudaMajor = CUDART_VERSION / 1000;

// cuDNN compiles its kernels with NVRTC, which opens this library by its bare name and has no path
// to it: found without one only where the system's loader knows it, or where it is open already.
void open_compiler_builtins() {
  const std::string name =
      fmt::format("libnvrtc-builtins.so.{}.{}", kCudaMajor, CUDART_VERSION / 10 % 100);
  // FSDP_NVRTC_BUILTINS_LIBRARY: where the build has found it
  for (const char* place : {FSDP_NVRTC_BUILTINS_LIBRARY, name.c_str()}) {
    if (*place != '\0' && ::dlopen(place, RTLD_NOW | RTLD_LOCAL)) return;
  }
}

Library open() {
  // FSDP_CUDNN_LIBRARY: where the build has found it
  const DynamicLibrary from("cuDNN", {FSDP_CUDNN_LIBRARY, "libcudnn.so.9"});
  Library to{};
  from.find(to.version, "cudnnGetVersion");
  FSDP_CHECK(to.version() >= kOldest, "[cuDNN] the library has version {}: expected {} or newer",
             to.version(), kOldest);
  // libcudnn.so.9 may be for any CUDA, and brings cuBLASLt and NVRTC of its own into the process.
  from.find(to.cudart_version, "cudnnGetCudartVersion");
  FSDP_CHECK(to.cudart_version() / 1000 == kCudaMajor,
             "[cuDNN] the library is for CUDA {}: expected one for CUDA {}",
             to.cudart_version() / 1000, kCudaMajor);
  from.find(to.error_string, "cudnnGetErrorString");
  from.find(to.last_error, "cudnnGetLastErrorString");
  from.find(to.create, "cudnnCreate");
  from.find(to.destroy, "cudnnDestroy");
  from.find(to.set_stream, "cudnnSetStream");
  from.find(to.descriptor_create, "cudnnBackendCreateDescriptor");
  from.find(to.descriptor_destroy, "cudnnBackendDestroyDescriptor");
  from.find(to.descriptor_finalize, "cudnnBackendFinalize");
  from.find(to.descriptor_set, "cudnnBackendSetAttribute");
  from.find(to.descriptor_get, "cudnnBackendGetAttribute");
  from.find(to.execute, "cudnnBackendExecute");
  open_compiler_builtins();
  return to;
}

}  // namespace

const Library& library() {
  static const Library opened = open();
  return opened;
}

const std::string& missing() {
  static const std::string why = []() -> std::string {
    try {
      library();
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }();
  return why;
}

}  // namespace fsdp::cuda::dnn
