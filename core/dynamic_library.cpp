// dlopen, with errors that help.
#include "core/dynamic_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace fsdp {

DynamicLibrary::DynamicLibrary(const char* name, std::initializer_list<const char*> places)
    : name_(name) {
  std::string tried;
  for (const char* place : places) {
    if (*place == '\0') continue;
    handle_ = ::dlopen(place, RTLD_NOW | RTLD_LOCAL);
    if (handle_) return;
    const char* why = ::dlerror();
    tried += fmt::format("\n  {}", why ? why : place);
  }
  fail("[{}] the library cannot be opened (tools/setup.sh --cuda brings it):{}", name_, tried);
}

void* DynamicLibrary::address(const char* symbol) const {
  void* found = ::dlsym(handle_, symbol);
  FSDP_CHECK(found, "[{}] the library has no {}: expected a newer one", name_, symbol);
  return found;
}

}  // namespace fsdp
