// Contract: comm/slurm_plugins.h. Names of the plug-ins: Open MPI 4, opal/mca/pmix.
#include "comm/slurm_plugins.h"

#include <string>

namespace fsdp::comm {

namespace fs = std::filesystem;

bool may_reach_slurm(const fs::path& library) {
  std::error_code none;
  bool has_others = false;
  for (const auto& folder : fs::directory_iterator(library.parent_path(), none)) {
    if (!folder.path().filename().string().starts_with("openmpi")) continue;
    fs::recursive_directory_iterator plugin(folder.path(),
                                            fs::directory_options::skip_permission_denied, none);
    for (; plugin != fs::recursive_directory_iterator(); plugin.increment(none)) {
      const std::string name = plugin->path().filename().string();
      for (const char* known : {"mca_pmix_s1.", "mca_pmix_s2.", "mca_pmix_cray."}) {
        if (name.starts_with(known)) return true;
      }
      has_others = has_others || name.starts_with("mca_pmix_");
    }
  }
  return !has_others;
}

}  // namespace fsdp::comm
