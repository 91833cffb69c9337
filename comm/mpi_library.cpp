// Asked of MPI itself, and of the loader. Contract: comm/mpi_library.h.
#include "comm/mpi_library.h"

#include <dlfcn.h>
#include <mpi.h>

namespace fsdp::comm {

MpiLibrary mpi_library() {
  char version[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(version, &length);
  const std::string text = version;  // "Open MPI v4.1.4, package: ..."
  MpiLibrary library = {.version = text.substr(0, text.find_first_of(",\n")), .file = {}};
  // Behind this program, whose own table may have a place for the function.
  void* const of_library = ::dlsym(RTLD_NEXT, "MPI_Init_thread");
  Dl_info place = {};
  std::error_code none;
  if (of_library && ::dladdr(of_library, &place) != 0) {
    library.file = std::filesystem::canonical(place.dli_fname, none);
  }
  return library;
}

}  // namespace fsdp::comm
