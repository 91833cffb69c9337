// Whether the hosts of a job share a folder, and what its file system can do that a run needs: a
// file that replaces another at once, a lock that another host respects, and how fast it takes what
// is written. One object on each host, whose steps come in between of exchanges of the ranks; a
// step may take long, or for ever. Not here: what a run writes (tools/checkpoint).
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/io/file.h"
#include "tools/doctor/check.h"
#include "tools/doctor/facts.h"

namespace fsdp::tools::doctor {

// A file system, as /proc/self/mountinfo has it.
struct Mount {
  std::string place;   // "/scratch"
  std::string type;    // "nfs4"
  std::string source;  // "server:/export"
};
// The one that the folder is on.
Mount mount_of(const std::string& mountinfo, const std::filesystem::path& folder);
// The command that mounts it on a host that lacks it: "" where no other host can mount it.
std::string mount_line(const Mount& mount);

class SharedFolder {
 public:
  // `job`: a text that no other job has, the same on its hosts. `host`: this one of `hosts`.
  SharedFolder(std::filesystem::path folder, std::string job, size_t host,
               std::vector<std::string> hosts);

  // This host's file, and on the first host a lock. Error when it cannot be written.
  void write();
  Mount mount();  // that the file is on; "unknown" where the folder has not answered
  // The files of the others, and the lock of the first host. After all have written.
  void look();
  // Removes the files of write(). After all have looked. Does nothing where a step has not ended.
  void remove();

  // `on_first`: where the first host has the folder.
  std::vector<Check> checks(const Mount& on_first) const;

 private:
  std::filesystem::path file_of(size_t host) const;
  std::filesystem::path lock_file() const;
  bool sees(size_t host) const;
  void look_at_lock();
  Check seen(const Mount& on_first) const;
  Check lock(const Mount& on_first) const;
  Check speed() const;

  std::mutex step_;               // held by one that goes on
  std::filesystem::path folder_;  // from write() on without links
  Mount mount_;
  std::string job_;
  size_t host_;
  std::vector<std::string> hosts_;
  std::unique_ptr<FileLock> held_;  // on the first host
  double mib_per_s_ = 0;
  FreeSpace space_;
  bool replaces_ = false;
  std::vector<std::string> unseen_;  // hosts whose file is not here
  std::optional<bool> lock_holds_;   // none: it was not tried
  std::string lock_problem_;
};

}  // namespace fsdp::tools::doctor
