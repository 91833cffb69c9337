// Small files with names of the job's own. Contract: tools/doctor/shared_folder.h.
#include "tools/doctor/shared_folder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "core/text/byte_size.h"
#include "core/text/shell_word.h"
#include "tools/doctor/checks.h"
#include "tools/launch/host_load.h"

namespace fsdp::tools::doctor {
namespace {

namespace fs = std::filesystem;
constexpr double kGiB = 1 << 30;
// Below the second a log and a lock have no room; below the first a small checkpoint has none.
constexpr double kFewBytes = kGiB, kNoBytes = kGiB / 64;
constexpr double kFewInodes = 10'000, kNoInodes = 100;
using Clock = std::chrono::steady_clock;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kMiBOfAll = 256;                    // that hosts write together: 2.5 s at 1 Gbit/s
constexpr size_t kLeastMiB = 1, kMostMiB = 32;       // of a host
constexpr std::chrono::milliseconds kWriting(1000);  // or as long
// A host of a network's file system may know new entries late.
constexpr std::chrono::milliseconds kLate(500);
constexpr double kSlow = 50;  // MiB/s: a checkpoint of 10 GB takes more than three minutes

bool between_hosts(const std::string& type) {
  for (const char* known : {"nfs", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb", "9p",
                            "virtiofs", "glusterfs", "fuse.", "panfs", "afs", "wekafs"}) {
    if (type.starts_with(known)) return true;
  }
  return false;
}

// Bytes that no file system stores as fewer.
std::vector<char> noise() {
  std::vector<char> bytes(kMiB);
  std::ranges::generate(bytes, std::minstd_rand());
  return bytes;
}

// A path of mountinfo, in which a blank is "\040".
std::string decoded(std::string path) {
  for (size_t at = 0; (at = path.find('\\', at)) != path.npos; ++at) {
    const char code = static_cast<char>(std::strtol(path.substr(at + 1, 3).c_str(), nullptr, 8));
    path.replace(at, 4, 1, code);
  }
  return path;
}

// Lines that mend several errors of the system.
constexpr const char* kMountAgain =
    "umount -l PLACE && mount PLACE   # where {0} is mounted: findmnt -T {0}";
constexpr const char* kBadDisk =
    "dmesg | tail   # the disk of {}, or its server; or --folder FOLDER";
constexpr const char* kMakeFolder = "mkdir -p {}   # or --folder FOLDER";
constexpr const char* kNoAnswer = "df {}   # its file system must answer; or --folder FOLDER";

State state_of(double free, double few, double none) {
  return free < none ? State::kFail : free < few ? State::kWarn : State::kOk;
}

}  // namespace

Mount mount_of(const std::string& mountinfo, const fs::path& folder) {
  Mount found;
  std::istringstream lines(mountinfo);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Mount mount;
    std::string word;
    words >> word >> word >> word >> word >> mount.place;
    while (words >> word && word != "-") {
    }
    words >> mount.type >> mount.source;
    mount.place = decoded(mount.place);
    mount.source = decoded(mount.source);
    const std::string inside = mount.place == "/" ? "/" : mount.place + "/";
    const bool above = (folder.string() + "/").starts_with(inside);
    if (above && mount.place.size() >= found.place.size()) found = mount;  // the last one covers
  }
  return found;
}

std::string mount_line(const Mount& mount) {
  if (!between_hosts(mount.type)) return "";
  return fmt::format("mount -t {} {} {}", mount.type, shell_word(mount.source),
                     shell_word(mount.place));
}

SharedFolder::SharedFolder(fs::path folder, std::string job, size_t host,
                           std::vector<std::string> hosts)
    : folder_(std::move(folder)), job_(std::move(job)), host_(host), hosts_(std::move(hosts)) {}

Mount SharedFolder::mount() {
  const std::unique_lock step(step_, std::try_to_lock);
  return step && !mount_.type.empty() ? mount_
                                      : Mount{.place = {}, .type = "unknown", .source = {}};
}

void SharedFolder::remove() {
  const std::unique_lock step(step_, std::try_to_lock);
  if (!step) return;
  std::error_code none;
  held_.reset();
  if (host_ == 0) fs::remove(lock_file(), none);
  fs::remove(file_of(host_), none);
}

fs::path SharedFolder::file_of(size_t host) const {
  return folder_ / fmt::format(".fsdp-doctor.{}.{}", job_, host);
}
fs::path SharedFolder::lock_file() const {
  return folder_ / fmt::format(".fsdp-doctor.{}.lock", job_);
}

// Its name is known to the others only when all of it is on the disk.
void SharedFolder::write() {
  const std::lock_guard step(step_);
  folder_ = fs::weakly_canonical(fs::absolute(folder_));
  mount_ = mount_of(proc::text_of("/proc/self/mountinfo"), folder_);
  const std::string head = hosts_[host_] + "\n";
  write_file_atomically(file_of(host_), "the first\n");
  const std::vector<char> part = noise();
  const size_t most = kMiB * std::clamp(kMiBOfAll / hosts_.size(), kLeastMiB, kMostMiB);
  const auto began = Clock::now();
  size_t written = 0;
  AtomicFile file(file_of(host_));
  file.write(head);
  for (; written < most && Clock::now() - began < kWriting; written += part.size()) {
    file.write(part.data(), part.size());
  }
  file.commit();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  mib_per_s_ = static_cast<double>(written / kMiB) / seconds;
  replaces_ = sees(host_);
  space_ = read_free_space(folder_);
  if (host_ == 0) held_ = std::make_unique<FileLock>(lock_file(), hosts_[0]);
}

bool SharedFolder::sees(size_t host) const {
  return proc::first_line_of(file_of(host)) == hosts_[host];
}

void SharedFolder::look() {
  const std::lock_guard step(step_);
  const auto until = Clock::now() + kLate;
  for (size_t host = 0; host < hosts_.size(); ++host) {
    while (!sees(host) && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    if (!sees(host)) unseen_.push_back(hosts_[host]);
  }
  if (sees(0)) look_at_lock();
}

// Another descriptor of the same file is refused, on the first host, too.
void SharedFolder::look_at_lock() {
  if (held_) lock_problem_ = held_->problem();
  if (!lock_problem_.empty()) return;
  const FileLock other(lock_file(), hosts_[host_]);
  lock_problem_ = other.problem();
  lock_holds_ = !other.holder().empty();
}

std::vector<Check> SharedFolder::checks(const Mount& on_first) const {
  Check rename = {.name = "folder rename", .value = "replaces a file at once"};
  if (!replaces_) {
    rename.value = "a file that was replaced has its old content";
    rename.fault(State::kFail, "fsdp doctor --folder FOLDER   # of another file system");
  }
  const Check space = space_check("folder space", space_, "fsdp doctor --folder FOLDER");
  return {seen(on_first), rename, lock(on_first), speed(), space};
}

Check SharedFolder::seen(const Mount& on_first) const {
  Check check = {.name = "folder",
                 .value = fmt::format("{} ({})", folder_.string(), on_first.type)};
  if (hosts_.size() > 1 && unseen_.empty()) check.value += ", the same on all hosts";
  if (unseen_.empty()) return check;
  check.value =
      fmt::format("{}: the files of {} are missing here", folder_.string(), few_of(unseen_));
  const std::string mounted = mount_line(on_first);
  return check.fault(
      State::kFail,
      mounted.empty()
          ? fmt::format(
                "fsdp doctor --folder FOLDER   # that all hosts mount; on {} this one is {}",
                hosts_[0], on_first.type)
          : mounted);
}

Check SharedFolder::lock(const Mount& on_first) const {
  Check check = {.name = "folder lock", .value = "not tried"};
  if (lock_holds_) check.value = *lock_holds_ ? "respected" : hosts_[0] + "'s is not respected";
  if (!lock_problem_.empty()) check.value = "none: " + lock_problem_;
  if (lock_holds_.value_or(lock_problem_.empty())) return check;
  return check.fault(State::kWarn,
                     fmt::format("mount -o remount,flock {}   # Lustre; NFS: without nolock, "
                                 "local_lock",
                                 shell_word(on_first.place)));
}

Check SharedFolder::speed() const {
  Check check = {.name = "folder write",
                 .value = fmt::format("{:.0f} MiB/s", mib_per_s_),
                 .number = mib_per_s_};
  if (mib_per_s_ >= kSlow) return check;
  return check.fault(State::kWarn,
                     "fsdp doctor --folder FOLDER   # of a faster file system; on Lustre: lfs "
                     "setstripe -c -1");
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
  return check.fault(
      worst,
      fmt::format("du {}-xd1 {} | sort -n | tail   # remove what is not needed; or {}",
                  inodes > bytes ? "--inodes " : "", shell_word(space.folder.string()), elsewhere));
}

std::string folder_fix(int code, const fs::path& folder) {
  // The folder stands in for {}.
  static const std::map<int, const char*> kFixes = {
      {ENOSPC, "df -h {0}; df -i {0}   # remove what is not needed; or --folder FOLDER"},
      {EDQUOT, "quota -s   # remove what is not needed below {}; or --folder FOLDER"},
      {EFBIG, "ulimit -f unlimited   # or --folder FOLDER of another file system"},
      {EMFILE, "ulimit -n $(ulimit -Hn)"},
      {EROFS, "mount -o remount,rw $(stat -c %m {})"},
      {ESTALE, kMountAgain},
      {ENOTCONN, kMountAgain},
      {ENODEV, kMountAgain},
      {ESHUTDOWN, kMountAgain},
      {EIO, kBadDisk},
      {EUCLEAN, kBadDisk},
      {ENOENT, kMakeFolder},
      {ENOTDIR, kMakeFolder},
      {ETIMEDOUT, kNoAnswer},
      {0, kNoAnswer}};
  const auto known = kFixes.find(code);
  return fmt::format(
      fmt::runtime(known == kFixes.end() ? "ls -ld {}   # a folder that this user may write; or "
                                           "--folder FOLDER"
                                         : known->second),
      shell_word(folder.string()));
}

}  // namespace fsdp::tools::doctor
