// A folder on a file system that lies, for programs that are started with this library in
// LD_PRELOAD: calls for what is below the folder fail now and then, or one rank of mpirun knows
// late of what the others make there. Environment: LYING_FOLDER, an absolute path, and
//   LYING_EVERY=N   one of N calls fails with EIO, ESTALE or ETIMEDOUT; LYING_SEED says which ones.
//   Every
//                   other start of a job (FSDP_RESTARTS) is spared until it has a checkpoint: one
//                   that never gets on is given up, which is another test
//   LYING_LOG=FILE  gets a line for each: process, call, path, error
//   LATE_S=N        of the rank LATE_RANK: a name that it did not find stays away for N seconds,
//   and
//                   a list of a folder lacks what is younger (nfs(5): negative entries, acdirmin)
// Not here: faults at a chosen call of one process (io_faults.h).
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

std::string text_of(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}
int64_t number_of(const char* name) { return std::atoll(text_of(name).c_str()); }

struct Lies {
  const std::string folder = text_of("LYING_FOLDER");
  const int64_t every = number_of("LYING_EVERY");
  const std::string log = text_of("LYING_LOG");
  const int64_t late_s =
      text_of("LATE_RANK") == text_of("OMPI_COMM_WORLD_RANK") ? number_of("LATE_S") : 0;
  // Each start of each rank has its own.
  std::atomic<uint64_t> random =
      static_cast<uint64_t>(number_of("LYING_SEED") * 1'000'003 +
                            number_of("FSDP_RESTARTS") * 1009 + number_of("OMPI_COMM_WORLD_RANK"));
  std::atomic<bool> is_spared = number_of("FSDP_RESTARTS") % 2 == 1;
  std::mutex mutex;
  std::map<std::string, std::time_t> absent;  // since when
};

Lies& lies() {
  static Lies lies;
  return lies;
}

// As the program would name it from the root; "": it has no such name.
std::string path_of(int folder, const char* path) {
  if (path[0] == '/') return path;
  char place[4096] = "";
  const std::string link =
      folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(folder);
  const ssize_t n = ::readlink(link.c_str(), place, sizeof place);
  if (n <= 0 || place[0] != '/') return "";
  const std::string whole(place, static_cast<size_t>(n));
  return path[0] == 0 ? whole : whole + "/" + path;
}

std::string above(const std::string& path) { return path.substr(0, path.rfind('/')); }

bool is_below(const std::string& path) {
  const std::string& folder = lies().folder;
  return !folder.empty() && path.starts_with(folder) && path.size() > folder.size() &&
         path[folder.size()] == '/';
}

// ---------------------------------------------------------------------------- Errors

uint64_t next_random() {  // splitmix64
  uint64_t z = lies().random += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void log(const std::string& line) {
  const auto file = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, lies().log.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0666));
  if (file < 0) return;
  ::syscall(SYS_write, file, line.data(), line.size());
  ::close(file);
}

// Whether this call fails; errno says how.
bool fails(const char* call, const std::string& path) {
  if (lies().every == 0 || lies().is_spared || !is_below(path)) return false;
  const uint64_t number = next_random();
  if (number % static_cast<uint64_t>(lies().every) != 0) return false;
  constexpr int kErrors[] = {EIO, ESTALE, ETIMEDOUT};
  const int error = kErrors[(number >> 32) % 3];
  log(std::to_string(::getpid()) + " " + call + " " + path + ": " + std::strerror(error) + "\n");
  errno = error;
  return true;
}

bool fails(const char* call, int file) {
  return lies().every > 0 && fails(call, path_of(file, ""));
}

// ---------------------------------------------------------------------------- Late entries

// When it was made; 0: it is not there.
std::time_t birth_of(const std::string& path) {
  struct statx status {};
  const int done = ::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME, &status);
  return done == 0 ? std::max<std::time_t>(1, status.stx_btime.tv_sec) : 0;
}

bool is_late(const std::string& path) {
  return std::time(nullptr) - birth_of(path) < lies().late_s;
}

// Whether the rank did not find it, or a folder above it, a short while ago. What it does not find
// now is remembered.
bool is_absent(std::string path) {
  if (lies().late_s == 0 || !is_below(path)) return false;
  const std::lock_guard lock(lies().mutex);
  std::string missing;
  for (; is_below(path); path = above(path)) {
    const auto found = lies().absent.find(path);
    if (found != lies().absent.end() && std::time(nullptr) - found->second < lies().late_s) {
      errno = ENOENT;
      return true;
    }
    if (birth_of(path) == 0) missing = path;
  }
  if (!missing.empty()) lies().absent[missing] = std::time(nullptr);
  return false;
}

bool refused(const char* call, const char* path) {
  const std::string whole = path_of(AT_FDCWD, path);
  return is_absent(whole) || fails(call, whole);
}

}  // namespace

#define SYSTEM(name) \
  static const auto real = reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name))

extern "C" {

int open(const char* path, int flags, ...) {
  SYSTEM(open);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);  // garbage where there is none, as in glibc
  va_end(arguments);
  const bool makes = (flags & O_CREAT) != 0;
  if (makes ? fails("open", path_of(AT_FDCWD, path)) : refused("open", path)) return -1;
  return real(path, flags, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  SYSTEM(fopen64);
  return refused("fopen", path) ? nullptr : real(path, mode);
}

ssize_t read(int file, void* out, size_t bytes) {
  SYSTEM(read);
  return fails("read", file) ? -1 : real(file, out, bytes);
}

ssize_t pread(int file, void* out, size_t bytes, off_t offset) {
  SYSTEM(pread);
  return fails("pread", file) ? -1 : real(file, out, bytes, offset);
}

ssize_t write(int file, const void* data, size_t bytes) {
  SYSTEM(write);
  return fails("write", file) ? -1 : real(file, data, bytes);
}

ssize_t writev(int file, const iovec* parts, int count) {
  SYSTEM(writev);
  return fails("writev", file) ? -1 : real(file, parts, count);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  SYSTEM(pwrite);
  return fails("pwrite", file) ? -1 : real(file, data, bytes, offset);
}

int fsync(int file) {
  SYSTEM(fsync);
  return fails("fsync", file) ? -1 : real(file);
}

int stat(const char* path, struct stat* status) {
  SYSTEM(stat);
  return refused("stat", path) ? -1 : real(path, status);
}

int mkdir(const char* path, mode_t mode) {
  SYSTEM(mkdir);
  return fails("mkdir", path_of(AT_FDCWD, path)) ? -1 : real(path, mode);
}

int rename(const char* from, const char* to) {
  SYSTEM(rename);
  if (fails("rename", path_of(AT_FDCWD, to))) return -1;
  if (std::strstr(to, "/step-")) lies().is_spared = false;
  return real(from, to);
}

int unlink(const char* path) {
  SYSTEM(unlink);
  return fails("unlink", path_of(AT_FDCWD, path)) ? -1 : real(path);
}

DIR* opendir(const char* path) {
  SYSTEM(opendir);
  return refused("opendir", path) ? nullptr : real(path);
}

dirent* readdir(DIR* folder) {
  SYSTEM(readdir);
  if (fails("readdir", ::dirfd(folder))) return nullptr;
  dirent* entry = real(folder);
  if (lies().late_s == 0) return entry;
  const std::string place = path_of(::dirfd(folder), "");
  while (entry && is_below(place + "/x") && std::strcmp(entry->d_name, ".") != 0 &&
         std::strcmp(entry->d_name, "..") != 0 && is_late(place + "/" + entry->d_name)) {
    entry = real(folder);
  }
  return entry;
}

}  // extern "C"
