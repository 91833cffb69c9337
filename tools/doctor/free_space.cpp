// Contract: tools/doctor/free_space.h.
#include "tools/doctor/free_space.h"

#include <cerrno>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/byte_size.h"
#include "core/text/shell_word.h"
#include "tools/doctor/host_facts.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
// Below the second a log and a lock have no room; below the first a small checkpoint has none.
constexpr double kFewBytes = kGiB, kNoBytes = 16 * kMiB;
constexpr double kFewInodes = 10'000, kNoInodes = 100;

State state_of(double free, double few, double none) {
  return free < none ? State::kFail : free < few ? State::kWarn : State::kOk;
}

}  // namespace

FreeSpace read_free_space(const fs::path& folder) {
  FreeSpace space = {.folder = fs::absolute(folder).lexically_normal()};
  struct statvfs there = {};
  while (::statvfs(space.folder.c_str(), &there) != 0) {
    const bool above = errno == ENOENT && space.folder.has_relative_path();
    if (!above)
      throw SystemError(fmt::format("{}: its free space is not known", folder.string()), errno);
    space.folder = space.folder.parent_path();
  }
  space.bytes = static_cast<double>(there.f_frsize) * static_cast<double>(there.f_bavail);
  space.inodes = there.f_files > 0 ? static_cast<double>(there.f_favail) : kNoLimit;
  return space;
}

Check space_check(const std::string& name, const FreeSpace& space, const std::string& elsewhere) {
  const State bytes = state_of(space.bytes, kFewBytes, kNoBytes);
  const State inodes = state_of(space.inodes, kFewInodes, kNoInodes);
  Check check = {.name = name,
                 .value = fmt::format("{} free", byte_size_text(static_cast<size_t>(space.bytes))),
                 .number = space.bytes / kGiB};
  if (space.inodes != kNoLimit) check.value += fmt::format(", {:.0f} inodes", space.inodes);
  const State worst = std::max(bytes, inodes);
  if (worst == State::kOk) return check;
  check.fault(
      worst,
      fmt::format("du {}-xd1 {} | sort -n | tail   # remove what is not needed; or {}",
                  inodes > bytes ? "--inodes " : "", shell_word(space.folder.string()), elsewhere));
  return check;
}

std::string folder_fix(int code, const fs::path& folder) {
  const std::string name = shell_word(folder.string());
  switch (code) {
    case ENOSPC:
      return fmt::format("df -h {0}; df -i {0}   # remove what is not needed; or --folder FOLDER",
                         name);
    case EDQUOT:
      return fmt::format("quota -s   # remove what is not needed below {}; or --folder FOLDER",
                         name);
    case EFBIG:
      return "ulimit -f unlimited   # or --folder FOLDER of another file system";
    case EMFILE:
      return "ulimit -n $(ulimit -Hn)";
    case EROFS:
      return fmt::format("mount -o remount,rw $(stat -c %m {})", name);
    case ESTALE:
    case ENOTCONN:
    case ENODEV:
    case ESHUTDOWN:
      return fmt::format("umount -l PLACE && mount PLACE   # where {} is mounted: findmnt -T {}",
                         name, name);
    case EIO:
    case EUCLEAN:
      return fmt::format("dmesg | tail   # the disk of {}, or its server; or --folder FOLDER",
                         name);
    case ENOENT:
    case ENOTDIR:
      return "mkdir -p " + name + "   # or --folder FOLDER";
    case ETIMEDOUT:
    case 0:
      return fmt::format("df {}   # its file system must answer; or --folder FOLDER", name);
    default:
      return fmt::format("ls -ld {}   # a folder that this user may write; or --folder FOLDER",
                         name);
  }
}

}  // namespace fsdp::tools::doctor
