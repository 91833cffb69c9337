// Stands in for the driver's library, libcuda.so.1, where there is none: as much as cuDNN asks for
// while it compiles a kernel for a device that is only described. Nothing can be started with it.
// For cudnn_support_test.cpp alone.
namespace {
constexpr int kNoDevice = 100;
int object;
}  // namespace

#define NONE(name) \
  int name() { return kNoDevice; }
#define MADE(name)          \
  int name(void** handle) { \
    *handle = &object;      \
    return 0;               \
  }

extern "C" {
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuGetErrorName(int, const char** text) {
  *text = "no driver";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "no driver";
  return 0;
}
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return 0;
}
int cuKernelSetAttribute() { return 0; }
int cuLibraryUnload() { return 0; }
MADE(cuLibraryLoadData)
MADE(cuLibraryLoadFromFile)
MADE(cuLibraryGetKernel)
NONE(cuInit)
NONE(cuCtxGetCurrent)
NONE(cuCtxGetLimit)
NONE(cuCtxPopCurrent)
NONE(cuCtxPushCurrent)
NONE(cuStreamGetCtx)
NONE(cuLinkCreate)
NONE(cuLinkAddData)
NONE(cuLinkComplete)
NONE(cuLinkDestroy)
NONE(cuLaunchKernel)
NONE(cuLaunchKernelEx)
NONE(cuLaunchCooperativeKernel)
NONE(cuDeviceGetCount)
NONE(cuDeviceGet)
NONE(cuOccupancyMaxPotentialClusterSize)
}
