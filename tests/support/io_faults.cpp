// Contract: tests/support/io_faults.h. __real_X is the system's function, see ld --wrap.
#include "tests/support/io_faults.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <mutex>
#include <set>

#include <dirent.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

namespace fsdp::test {
namespace {

struct State {
  std::mutex mutex;
  bool armed = false;
  IoWitness* witness = nullptr;
  std::string folder;
  IoFaultPlan plan;
  int64_t seen = 0, failed = 0;
  std::string last_failed;
  std::map<std::string, int64_t> calls;
  std::set<int> files;  // open ones of the folder
  std::set<DIR*> folders;
};

State& state() {
  static State state;
  return state;
}

// A copy of a process with threads may open files too: none of them may hold the lock then.
const int kForkable = ::pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); },
                                       [] { state().mutex.unlock(); });

bool is_below(const char* path) { return std::string(path).starts_with(state().folder); }

// Whether this call has the fault.
bool strikes(const char* call, IoFault kind, bool concerned) {
  State& s = state();
  if (!s.armed || !concerned) return false;
  if (s.plan.fault != kind && s.plan.fault != IoFault::kNone) return false;
  if (!s.plan.only.empty() && s.plan.only != call) return false;
  ++s.calls[call];
  const int64_t number = s.seen++;
  if (s.plan.fault == IoFault::kNone) return false;
  if (s.plan.from_then_on ? number < s.plan.at : number != s.plan.at) return false;
  ++s.failed;
  s.last_failed = call;
  return true;
}

// -1 with the error, or 0: the call is the system's.
int refuse(const char* call, bool concerned, int usual) {
  if (!strikes(call, IoFault::kError, concerned)) return 0;
  errno = state().plan.error != 0 ? state().plan.error : usual;
  return -1;
}

int refuse_path(const char* call, const char* path) {
  const std::lock_guard lock(state().mutex);
  return refuse(call, is_below(path), EIO);
}

int refuse_file(const char* call, int file, int usual = EIO) {
  const std::lock_guard lock(state().mutex);
  return refuse(call, state().files.contains(file), usual);
}

size_t shortened(const char* call, int file, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  const bool strike = bytes > 1 && strikes(call, IoFault::kShort, state().files.contains(file));
  return strike ? bytes / 2 : bytes;
}

// The system's call, with a witness where there is one.
template <typename Real>
auto shown(IoCall call, const Real& real) {
  std::unique_lock lock(state().mutex);
  const State& s = state();
  const bool concerned = call.file >= 0 ? s.files.contains(call.file) : is_below(call.path.c_str());
  if (!s.armed || !s.witness || !concerned) {
    lock.unlock();
    return real();
  }
  s.witness->before_call();
  const auto result = real();
  if (call.name == "open") call.file = static_cast<int>(result);
  if (call.data) call.bytes = static_cast<size_t>(std::max<ssize_t>(result, 0));
  if (result >= 0) s.witness->after_call(call);
  return result;
}

}  // namespace

IoFaults::IoFaults(const std::filesystem::path& folder, const IoFaultPlan& plan,
                   IoWitness* witness) {
  const std::lock_guard lock(state().mutex);
  State& s = state();
  s.folder = folder.string();
  s.plan = plan;
  s.witness = witness;
  s.seen = s.failed = 0;
  s.last_failed.clear();
  s.calls.clear();
  s.files.clear();
  s.folders.clear();
  s.armed = true;
}

IoFaults::~IoFaults() {
  const std::lock_guard lock(state().mutex);
  state().armed = false;
}

std::map<std::string, int64_t> IoFaults::calls() const {
  const std::lock_guard lock(state().mutex);
  return state().calls;
}

std::string IoFaults::last_failed() const {
  const std::lock_guard lock(state().mutex);
  return state().last_failed;
}

int64_t IoFaults::failed() const {
  const std::lock_guard lock(state().mutex);
  return state().failed;
}

}  // namespace fsdp::test

using namespace fsdp::test;

extern "C" {

int __real_open(const char* path, int flags, ...);
int __real_close(int file);
ssize_t __real_read(int file, void* out, size_t bytes);
ssize_t __real_pread(int file, void* out, size_t bytes, off_t offset);
ssize_t __real_write(int file, const void* data, size_t bytes);
ssize_t __real_pwrite(int file, const void* data, size_t bytes, off_t offset);
int __real_fsync(int file);
int __real_rename(const char* from, const char* to);
int __real_mkdir(const char* path, mode_t mode);
int __real_flock(int file, int operation);
void* __real_mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset);

int __wrap_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);  // garbage where there is none, as in glibc
  va_end(arguments);
  if (refuse_path("open", path) != 0) return -1;
  const int file =
      shown({.name = "open", .path = path}, [&] { return __real_open(path, flags, mode); });
  const std::lock_guard lock(state().mutex);
  if (file >= 0 && state().armed && is_below(path)) state().files.insert(file);
  return file;
}

int __wrap_close(int file) {
  {
    const std::lock_guard lock(state().mutex);
    state().files.erase(file);
  }
  return __real_close(file);
}

ssize_t __wrap_read(int file, void* out, size_t bytes) {
  if (refuse_file("read", file) != 0) return -1;
  return __real_read(file, out, shortened("read", file, bytes));
}

ssize_t __wrap_pread(int file, void* out, size_t bytes, off_t offset) {
  if (refuse_file("pread", file) != 0) return -1;
  return __real_pread(file, out, shortened("pread", file, bytes), offset);
}

ssize_t __wrap_write(int file, const void* data, size_t bytes) {
  if (refuse_file("write", file, ENOSPC) != 0) return -1;
  const size_t count = shortened("write", file, bytes);
  return shown({.name = "write",
                .file = file,
                .data = data,
                .offset = std::max<off_t>(0, ::lseek(file, 0, SEEK_CUR))},
               [&] { return __real_write(file, data, count); });
}

ssize_t __wrap_pwrite(int file, const void* data, size_t bytes, off_t offset) {
  if (refuse_file("pwrite", file, ENOSPC) != 0) return -1;
  const size_t count = shortened("pwrite", file, bytes);
  return shown({.name = "pwrite", .file = file, .data = data, .offset = offset},
               [&] { return __real_pwrite(file, data, count, offset); });
}

int __wrap_fsync(int file) {
  if (refuse_file("fsync", file) != 0) return -1;
  return shown({.name = "fsync", .file = file}, [&] { return __real_fsync(file); });
}

int __wrap_rename(const char* from, const char* to) {
  if (refuse_path("rename", to) != 0) return -1;
  return shown({.name = "rename", .path = to}, [&] { return __real_rename(from, to); });
}

int __wrap_mkdir(const char* path, mode_t mode) {
  if (refuse_path("mkdir", path) != 0) return -1;
  return shown({.name = "mkdir", .path = path}, [&] { return __real_mkdir(path, mode); });
}

int __wrap_flock(int file, int operation) {
  return refuse_file("flock", file) != 0 ? -1 : __real_flock(file, operation);
}

void* __wrap_mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  if (refuse_file("mmap", file) != 0) return reinterpret_cast<void*>(-1);
  return __real_mmap(at, bytes, protection, flags, file, offset);
}

DIR* __real_opendir(const char* path);
int __real_closedir(DIR* folder);
dirent* __real_readdir(DIR* folder);
int __real_stat(const char* path, struct stat* status);
int __real_unlink(const char* path);
int __real_renameat2(int from_folder, const char* from, int to_folder, const char* to,
                     unsigned flags);

DIR* __wrap_opendir(const char* path) {
  if (refuse_path("opendir", path) != 0) return nullptr;
  DIR* const folder = __real_opendir(path);
  const std::lock_guard lock(state().mutex);
  if (folder && state().armed && is_below(path)) state().folders.insert(folder);
  return folder;
}

int __wrap_closedir(DIR* folder) {
  {
    const std::lock_guard lock(state().mutex);
    state().folders.erase(folder);
  }
  return __real_closedir(folder);
}

dirent* __wrap_readdir(DIR* folder) {
  {
    const std::lock_guard lock(state().mutex);
    if (refuse("readdir", state().folders.contains(folder), EIO) != 0) return nullptr;
  }
  return __real_readdir(folder);
}

int __wrap_stat(const char* path, struct stat* status) {
  return refuse_path("stat", path) != 0 ? -1 : __real_stat(path, status);
}

int __wrap_unlink(const char* path) {
  if (refuse_path("unlink", path) != 0) return -1;
  return shown({.name = "unlink", .path = path}, [&] { return __real_unlink(path); });
}

int __wrap_renameat2(int from_folder, const char* from, int to_folder, const char* to,
                     unsigned flags) {
  if (refuse_path("renameat2", to) != 0) return -1;
  return shown({.name = "renameat2", .path = to},
               [&] { return __real_renameat2(from_folder, from, to_folder, to, flags); });
}

}  // extern "C"
