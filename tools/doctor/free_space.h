// Free bytes and free inodes where a job writes. Not here: /dev/shm (host_checks.h), whether hosts
// share a folder and how fast it is (shared_folder.h).
#pragma once

#include <filesystem>
#include <string>

#include "tools/doctor/check.h"

namespace fsdp::tools::doctor {

struct FreeSpace {
  std::filesystem::path folder;  // that is there
  double bytes = 0;              // that this user may have
  double inodes = 0;             // likewise; infinite where the file system does not count them
};
// Of the folder, or of the first one above it that is there. Error when the system says none.
FreeSpace read_free_space(const std::filesystem::path& folder);

// `name`: of the check. `elsewhere`: how the job writes to another place.
Check space_check(const std::string& name, const FreeSpace& space, const std::string& elsewhere);

// The line that mends what the system says of a folder: an errno, or 0 for what does not answer.
std::string folder_fix(int code, const std::filesystem::path& folder);

}  // namespace fsdp::tools::doctor
