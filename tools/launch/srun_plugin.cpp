// Words of a list. Contract: tools/launch/srun_plugin.h.
#include "tools/launch/srun_plugin.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mpi_transport.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {

std::string srun_plugin(const std::string& listed, bool without_pmix) {
  std::vector<std::string> plugins;
  std::string word;
  for (const char c : listed + "\n") {
    const bool inside = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    if (inside) {
      word += c;
    } else if (!word.empty()) {
      plugins.push_back(std::exchange(word, ""));
    }
  }
  const auto has = [&](std::string_view name) {
    return std::find(plugins.begin(), plugins.end(), name) != plugins.end();
  };
  if (has("pmix")) return "pmix";
  for (const std::string& each : plugins) {
    if (each.starts_with("pmix_v")) return each;
  }
  return without_pmix && has("pmi2") ? "pmi2" : "";
}

std::optional<std::string> asked_srun_plugin() {
  const ShellOutput listed = output_within(std::chrono::seconds(20), {"srun", "--mpi=list"});
  if (listed.status != 0) return {};  // also where it cannot find its cluster
  return srun_plugin(listed.text, comm::MpiRuntime::reaches_slurm());
}

}  // namespace fsdp::tools
