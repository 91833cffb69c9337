// A folder on a file system that lies, for programs that are started with this library in
// LD_PRELOAD: calls for what is below the folder fail now and then, or one rank of mpirun knows
// late of what the others make there. Environment: LYING_FOLDER, an absolute path, and
//   LYING_EVERY=N   one of N calls fails with EIO, ESTALE or ETIMEDOUT; LYING_SEED says which ones.
//   Every
//                   other start of a job (FSDP_RESTARTS) is spared until it has a checkpoint: one
//                   that never gets on is given up, which is another test
//   LYING_AT=N      instead: one call alone fails, the Nth of its process, with the error number
//                   LYING_ERROR (0: it reads or writes half of what was asked for), where the file
//                   LYING_ONCE is not there; the call makes that file. LYING_CALL=open counts the
//                   calls of one name
//   LYING_LOG=FILE  gets a line for each: process, call, path, error; with LYING_AT, how many
//                   calls there were
//   LATE_S=N        of the rank LATE_RANK: a name that it did not find stays away for N seconds,
//   and
//                   a list of a folder lacks what is younger (nfs(5): negative entries, acdirmin)
// Not here: faults within a test's own process (io_faults.h).
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
#include <sys/file.h>
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
  const bool chosen = std::getenv("LYING_AT") != nullptr;
  const int64_t at = number_of("LYING_AT");
  const int error = static_cast<int>(number_of("LYING_ERROR"));
  const std::string call = text_of("LYING_CALL"), once = text_of("LYING_ONCE");
  std::atomic<int64_t> seen = 0;
  ~Lies();
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

void write_log(const std::string& log, const std::string& line) {
  const auto file = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, log.c_str(), O_WRONLY | O_APPEND | O_CREAT, 0666));
  if (file < 0) return;
  ::syscall(SYS_write, file, line.data(), line.size());
  ::close(file);
}

Lies::~Lies() {
  if (chosen) write_log(log, std::to_string(seen) + " calls\n");
}

// Whether this call is the one that LYING_AT means.
bool is_chosen(const char* call, const std::string& path) {
  Lies& own = lies();
  if (!is_below(path) || (!own.call.empty() && own.call != call)) return false;
  if (own.seen++ != own.at || ::syscall(SYS_access, own.once.c_str(), F_OK) == 0) return false;
  const auto made =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, own.once.c_str(), O_WRONLY | O_CREAT, 0666));
  if (made >= 0) ::close(made);
  write_log(lies().log, std::to_string(::getpid()) + " " + call + " " + path + ": " +
                            std::strerror(own.error) + "\n");
  return true;
}

// Whether this call fails; errno says how.
bool fails(const char* call, const std::string& path) {
  if (lies().chosen) {
    if (lies().error == 0 || !is_chosen(call, path)) return false;
    errno = lies().error;
    return true;
  }
  if (lies().every == 0 || lies().is_spared || !is_below(path)) return false;
  const uint64_t number = next_random();
  if (number % static_cast<uint64_t>(lies().every) != 0) return false;
  constexpr int kErrors[] = {EIO, ESTALE, ETIMEDOUT};
  const int error = kErrors[(number >> 32) % 3];
  write_log(lies().log, std::to_string(::getpid()) + " " + call + " " + path + ": " +
                            std::strerror(error) + "\n");
  errno = error;
  return true;
}

bool fails(const char* call, int file) {
  return (lies().every > 0 || lies().chosen) && fails(call, path_of(file, ""));
}

// How much of it the call does.
size_t shortened(const char* call, int file, size_t bytes) {
  if (!lies().chosen || lies().error != 0 || bytes < 2) return bytes;
  return is_chosen(call, path_of(file, "")) ? bytes / 2 : bytes;
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
  return fails("read", file) ? -1 : real(file, out, shortened("read", file, bytes));
}

ssize_t pread(int file, void* out, size_t bytes, off_t offset) {
  SYSTEM(pread);
  return fails("pread", file) ? -1 : real(file, out, shortened("pread", file, bytes), offset);
}

ssize_t write(int file, const void* data, size_t bytes) {
  SYSTEM(write);
  return fails("write", file) ? -1 : real(file, data, shortened("write", file, bytes));
}

ssize_t writev(int file, const iovec* parts, int count) {
  SYSTEM(writev);
  return fails("writev", file) ? -1 : real(file, parts, count);
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  SYSTEM(pwrite);
  return fails("pwrite", file) ? -1 : real(file, data, shortened("pwrite", file, bytes), offset);
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

int ftruncate(int file, off_t bytes) {
  SYSTEM(ftruncate);
  return fails("ftruncate", file) ? -1 : real(file, bytes);
}

int flock(int file, int operation) {
  SYSTEM(flock);
  return fails("flock", file) ? -1 : real(file, operation);
}

int lstat(const char* path, struct stat* status) {
  SYSTEM(lstat);
  return refused("lstat", path) ? -1 : real(path, status);
}

int rmdir(const char* path) {
  SYSTEM(rmdir);
  return fails("rmdir", path_of(AT_FDCWD, path)) ? -1 : real(path);
}

int unlinkat(int folder, const char* path, int flags) {
  SYSTEM(unlinkat);
  return fails("unlinkat", path_of(folder, path)) ? -1 : real(folder, path, flags);
}

int remove(const char* path) {
  SYSTEM(remove);
  return fails("remove", path_of(AT_FDCWD, path)) ? -1 : real(path);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  SYSTEM(renameat2);
  if (fails("renameat2", path_of(to_folder, to))) return -1;
  return real(from_folder, from, to_folder, to, flags);
}

int truncate(const char* path, off_t bytes) {
  SYSTEM(truncate);
  return fails("truncate", path_of(AT_FDCWD, path)) ? -1 : real(path, bytes);
}

int openat(int folder, const char* path, int flags, ...) {
  SYSTEM(openat);
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return fails("openat", path_of(folder, path)) ? -1 : real(folder, path, flags, mode);
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
