// What a cluster wants of every job: a file of "#SBATCH --name=value" lines, and shell lines such
// as "module load openmpi". Not here: the job's own part (slurm_script.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fsdp::tools {

// "--time=1:00:00"; the value may be missing.
struct SbatchOption {
  std::string name;   // "--time"
  std::string value;  // "": a switch
  std::string place;  // for messages: "site.sh:3", "--sbatch"

  std::string text() const;  // with quotes where the value has a blank and none
};
// "--time=1:00:00", "--time 1:00:00", "-t 1:00:00": names are the long ones. Error, with the place,
// for what is no option.
SbatchOption parse_sbatch(const std::string& text, const std::string& place);

// "30" (minutes), "30:00", "1:00:00", "2-12", "2-12:30"; nullopt: no limit, "0" or "UNLIMITED".
// Error for another form.
std::optional<int64_t> slurm_seconds(const std::string& time, const std::string& place);

struct SlurmSite {
  std::vector<SbatchOption> options;
  std::vector<std::string> lines;  // of the shell, before the ranks are started
};
// Error that names file and line; SystemError where the file cannot be read.
SlurmSite read_site(const std::filesystem::path& file);

}  // namespace fsdp::tools
