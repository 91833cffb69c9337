// Files by POSIX calls, because fsync and mmap have no other name.
// Contract: core/io/file.h.
#include "core/io/file.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "core/io/patience.h"

namespace fsdp {
namespace {

constexpr size_t kPendingBytes = 1 << 16;
constexpr int kNumberOfReplaced = 1'000'000;  // in a temporary name: no attempt has it

// Of a call that has set errno: "path: cannot read: Input/output error".
void check_call(bool done, const std::filesystem::path& path, std::string_view what) {
  if (done) return;
  const int code = errno;
  throw SystemError(
      fmt::format("{}: {}: {}", path.string(), what, std::generic_category().message(code)), code);
}

// The call, made again after each signal: file systems of a network let one end any call, not only
// those that POSIX names.
template <typename Call>
auto uninterrupted(const Call& call) {
  for (;;) {
    const auto result = call();
    if (result != decltype(result)(-1) || errno != EINTR) return result;
  }
}

int open_file(const std::filesystem::path& path, int flags) {
  return uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
}

int status_of(const std::filesystem::path& path, struct stat& status) {
  return uninterrupted([&] { return ::stat(path.c_str(), &status); });
}

int make_folder(const std::filesystem::path& path) {
  return uninterrupted([&] { return ::mkdir(path.c_str(), 0777); });
}

int rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  return uninterrupted([&] { return ::rename(from.c_str(), to.c_str()); });
}

// Waits for nobody.
int lock_file(int descriptor) {
  return uninterrupted([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); });
}

int sync_descriptor(int descriptor) {
  return uninterrupted([&] { return ::fsync(descriptor); });
}

// Where a call does less than was asked for, the rest is another call.
void write_all(int descriptor, std::string_view bytes, off_t offset,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n =
        uninterrupted([&] { return ::pwrite(descriptor, bytes.data(), bytes.size(), offset); });
    check_call(n >= 0, path, "cannot write");
    bytes.remove_prefix(static_cast<size_t>(n));
    offset += n;
  }
}

// A descriptor that closes itself; for the paths that may throw.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

struct OpenFile {
  Descriptor descriptor;
  size_t size = 0;  // bytes
};

void check_regular(const std::filesystem::path& path, mode_t mode) {
  FSDP_CHECK(S_ISREG(mode), "{}: expected a file, got {}", path.string(),
             S_ISDIR(mode)    ? "a folder"
             : S_ISFIFO(mode) ? "a FIFO (named pipe)"
             : S_ISSOCK(mode) ? "a socket"
                              : "a device");
}

// Asked before it is opened: opening a device may do something. O_NONBLOCK: opening a FIFO that
// took the file's place meanwhile would wait for a writer; reading a file does not change.
void open_regular_file(const std::filesystem::path& path, OpenFile& file) {
  struct stat status {};
  if (status_of(path, status) != 0) {
    const int code = errno;
    const std::string link = broken_link(path);
    if (!link.empty()) throw SystemError(fmt::format("{}: {}", path.string(), link), code);
    errno = code;
    check_call(false, path, "cannot open");
  }
  check_regular(path, status.st_mode);
  file.descriptor.value = open_file(path, O_RDONLY | O_NONBLOCK);
  check_call(file.descriptor.value >= 0, path, "cannot open");
  const int inspected = uninterrupted([&] { return ::fstat(file.descriptor.value, &status); });
  check_call(inspected == 0, path, "cannot inspect");
  check_regular(path, status.st_mode);
  file.size = static_cast<size_t>(status.st_size);
}

// The file system cannot do this at all, which is no failure of the disk.
bool is_unsupported(int error) {
  return error == EINVAL || error == ENOSYS || error == ENOTSUP || error == EOPNOTSUPP;
}

// A name is on the disk when its folder is.
void sync_folder(const std::filesystem::path& given) {
  const std::filesystem::path folder = given.empty() ? "." : given;
  const Descriptor descriptor{open_file(folder, O_RDONLY | O_DIRECTORY)};
  // Who may not read a folder may still write into it.
  if (descriptor.value < 0 && errno == EACCES) return;
  check_call(descriptor.value >= 0, folder, "cannot open");
  check_call(sync_descriptor(descriptor.value) == 0 || is_unsupported(errno), folder,
             "cannot write");
}

// Whether there is something of that name, which has one of these kinds.
bool is_kind(const std::filesystem::path& path, mode_t kinds) {
  struct stat status {};
  if (status_of(path, status) == 0) return kinds == 0 || (status.st_mode & S_IFMT) == kinds;
  check_call(errno == ENOENT || errno == ENOTDIR, path, "cannot inspect");
  return false;
}

}  // namespace

bool is_there(const std::filesystem::path& path) { return is_kind(path, 0); }
bool is_folder(const std::filesystem::path& path) { return is_kind(path, S_IFDIR); }

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  DIR* opened = nullptr;
  do {
    opened = ::opendir(folder.c_str());
  } while (!opened && errno == EINTR);
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opened, ::closedir);
  if (!open && (errno == ENOENT || errno == ENOTDIR)) return names;
  check_call(open != nullptr, folder, "cannot open");
  for (;;) {
    errno = 0;
    const dirent* const entry = ::readdir(open.get());
    if (!entry && errno == EINTR) continue;
    check_call(entry || errno == 0, folder, "cannot list");
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_file(const std::filesystem::path& path) {
  OpenFile file;
  open_regular_file(path, file);
  std::string content(file.size, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = uninterrupted([&] {
      return ::read(file.descriptor.value, content.data() + done, content.size() - done);
    });
    check_call(n >= 0, path, "cannot read");
    if (n == 0) break;  // became shorter meanwhile
    done += static_cast<size_t>(n);
  }
  content.resize(done);
  return content;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  // The temporary lies beside the file: rename is atomic only within one file system. O_EXCL skips
  // names that another process, or a crashed one, has taken.
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = path_;
    temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), attempt);
    descriptor_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL);
    check_call(descriptor_ >= 0 || errno == EEXIST, path_, "cannot create");
  }
  lock_file(descriptor_);  // for is_abandoned()
}

bool is_abandoned(const std::filesystem::path& temporary) {
  // To write: NFS makes a lock of a range of it, which needs that.
  const Descriptor file{open_file(temporary, O_RDWR)};
  return file.value >= 0 && lock_file(file.value) == 0;
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  FSDP_CHECK(descriptor_ >= 0, "{}: write after commit", path_.string());
  const std::string_view text(static_cast<const char*>(data), bytes);
  if (pending_.size() + bytes > kPendingBytes) {
    write_through(pending_);
    pending_.clear();
  }
  if (bytes > kPendingBytes) {
    write_through(text);
  } else {
    pending_ += text;
  }
}

void AtomicFile::write_through(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n =
        uninterrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    check_call(n >= 0, path_, "cannot write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void AtomicFile::write_at(size_t offset, const void* data, size_t bytes) {
  FSDP_CHECK(descriptor_ >= 0, "{}: write after commit", path_.string());
  write_all(descriptor_, {static_cast<const char*>(data), bytes}, static_cast<off_t>(offset),
            path_);
}

void AtomicFile::commit() {
  FSDP_CHECK(descriptor_ >= 0, "{}: commit twice", path_.string());
  write_through(pending_);
  pending_.clear();
  check_call(sync_descriptor(descriptor_) == 0, path_, "cannot write");
  check_call(rename_file(temporary_, path_) == 0, path_,
             fmt::format("cannot rename {} to it", temporary_.filename().string()));
  ::close(std::exchange(descriptor_, -1));
  sync_folder(path_.parent_path());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void sync_file(const std::filesystem::path& path) {
  const Descriptor descriptor{open_file(path, O_RDONLY)};
  check_call(descriptor.value >= 0, path, "cannot open");
  check_call(sync_descriptor(descriptor.value) == 0 || is_unsupported(errno), path, "cannot write");
}

void make_folders(const std::filesystem::path& given) {
  const std::filesystem::path folder = given.has_filename() ? given : given.parent_path();
  if (folder.empty() || is_folder(folder)) return;
  make_folders(folder.parent_path());
  const bool made = make_folder(folder) == 0;
  const int error = errno;  // another process may have been faster
  const bool there = !made && error == EEXIST && is_folder(folder);
  errno = error;
  check_call(made || there, folder, "cannot be made");
  sync_folder(folder.parent_path());
}

namespace {

constexpr const char* kPartLock = ".part";  // [Note: abandoned parts]

// Of this start of this machine; "": not known.
std::string machine_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

bool was_written_within_a_day(const std::filesystem::path& part) {
  namespace fs = std::filesystem;
  const auto day_ago = fs::file_time_type::clock::now() - std::chrono::hours(24);
  const std::vector<std::string> names = names_in(part);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    std::error_code unknown;
    const auto written = fs::last_write_time(part / name, unknown);
    return unknown || written > day_ago;
  });
}

bool is_abandoned_part(const std::filesystem::path& part, const Descriptor& lock) {
  char writer[64] = "";
  if (lock.value < 0 || ::pread(lock.value, writer, sizeof writer - 1, 0) <= 0) return false;
  if (writer != machine_id() && was_written_within_a_day(part)) return false;
  return ::flock(lock.value, LOCK_EX | LOCK_NB) == 0;
}

// Whatever cannot be known or removed stays.
void remove_abandoned_parts(const std::filesystem::path& path) {
  const std::string prefix = path.filename().string() + ".";
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  try {
    for (const std::string& name : names_in(folder)) {
      if (!name.starts_with(prefix) || !name.ends_with(".tmp")) continue;
      const std::filesystem::path part = folder / name;
      const Descriptor lock{::open((part / kPartLock).c_str(), O_RDWR | O_CLOEXEC)};
      std::error_code ignored;
      if (is_abandoned_part(part, lock)) std::filesystem::remove_all(part, ignored);
    }
  } catch (const SystemError&) {
    return;
  }
}

}  // namespace

AtomicFolder::AtomicFolder(const std::filesystem::path& path, Existing existing)
    : path_(path.has_filename() ? path : path.parent_path()),
      replaces_(existing == Existing::kReplaced) {
  FSDP_CHECK(replaces_ || !is_there(path_) || (is_folder(path_) && names_in(path_).empty()),
             "{}: is there already; give another one", path_.string());
  try {
    make_folders(path_.parent_path());
  } catch (const Error& above) {
    fail_like(above, fmt::format("{}: cannot be made: {}", path_.string(), above.what()));
  }
  if (!replaces_) remove_abandoned_parts(path_);
  for (int attempt = 0;; ++attempt) {
    temporary_ = path_;
    temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), attempt);
    if (make_folder(temporary_) == 0) break;
    check_call(errno == EEXIST, path_, "cannot be made");
  }
  if (replaces_) return;
  try {
    lock_ = std::make_unique<FileLock>(temporary_ / kPartLock, machine_id());
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(temporary_, ignored);
    throw;
  }
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  if (!committed_) {
    if (lock_) ::unlink((temporary_ / kPartLock).c_str());  // the lock is held all the same
    sync_folder(temporary_);
    take_name();
    committed_ = true;  // what fails from here on can be tried again
  }
  sync_folder(path_.parent_path());
  std::error_code ignored;
  if (!replaced_.empty()) std::filesystem::remove_all(replaced_, ignored);
}

// The old folder keeps its name until the new one has it. Where the file system cannot exchange
// them, there is neither for a moment.
void AtomicFolder::take_name() {
  const bool replaces = replaces_ && is_there(path_);
  const auto exchange = [&] {
    return ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE);
  };
  if (replaces && uninterrupted(exchange) == 0) {
    replaced_ = temporary_;
    return;
  }
  if (replaces) {
    replaced_ = path_;
    replaced_ += fmt::format(".{}-{}.tmp", ::getpid(), kNumberOfReplaced);
    check_call(rename_file(path_, replaced_) == 0, path_, "cannot be replaced");
  }
  if (rename_file(temporary_, path_) == 0) return;
  const int error = errno;
  if (replaces) rename_file(replaced_, path_);
  errno = error;
  check_call(false, path_, fmt::format("cannot rename {} to it", temporary_.filename().string()));
}

ReadableFile::ReadableFile(std::filesystem::path path) : path_(std::move(path)) {
  OpenFile file;
  open_regular_file(path_, file);
  size_ = file.size;
  descriptor_ = std::exchange(file.descriptor.value, -1);
}

ReadableFile::~ReadableFile() { ::close(descriptor_); }

void ReadableFile::read_at(size_t offset, void* out, size_t bytes) const {
  auto* place = static_cast<char*>(out);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = uninterrupted([&] {
      return ::pread(descriptor_, place + done, bytes - done, static_cast<off_t>(offset + done));
    });
    check_call(n >= 0, path_, "cannot read");
    FSDP_CHECK(n > 0, "{}: ends at byte {}, expected {} more", path_.string(), offset + done,
               bytes - done);
    done += static_cast<size_t>(n);
  }
}

FileLock::FileLock(const std::filesystem::path& path, const std::string& text) {
  Descriptor file{open_file(path, O_RDWR | O_CREAT)};
  check_call(file.value >= 0, path, "cannot open");
  if (lock_file(file.value) != 0) {
    if (errno == EWOULDBLOCK) {
      holder_ = read_file(path);
      if (holder_.empty()) holder_ = "a process that has not said who it is";
      return;
    }
    check_call(errno == ENOLCK || is_unsupported(errno), path, "cannot lock");
    problem_ =
        fmt::format("{}: cannot lock: {}", path.string(), std::generic_category().message(errno));
  }
  const int emptied = uninterrupted([&] { return ::ftruncate(file.value, 0); });
  check_call(emptied == 0, path, "cannot write");
  write_all(file.value, text, 0, path);
  descriptor_ = std::exchange(file.value, -1);
}

FileLock::~FileLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

namespace {

// FUSE with direct_io and some network file systems map only privately, or not at all.
bool cannot_map(int error) {
  return is_unsupported(error) || error == ENODEV || error == ENOEXEC || error == EACCES ||
         error == EPERM;
}

// The file's bytes, mapped as those of a file without a name: as with any other mapping, pages that
// are forgotten (forget_pages.h) come back. Each rank has a copy for itself, which counts towards
// its memory. MAP_FAILED when there is no such mapping.
void* map_copy(const std::filesystem::path& path, size_t bytes) {
  const Descriptor copy{::memfd_create("copy", MFD_CLOEXEC)};
  if (copy.value < 0 || ::ftruncate(copy.value, static_cast<off_t>(bytes)) != 0) return MAP_FAILED;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, copy.value, 0);
  if (data == MAP_FAILED) return MAP_FAILED;
  try {
    ReadableFile(path).read_at(0, data, bytes);
  } catch (...) {
    ::munmap(data, bytes);
    throw;
  }
  ::mprotect(data, bytes, PROT_READ);
  return data;
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  OpenFile file;
  open_regular_file(path_, file);
  size_ = file.size;
  if (size_ == 0) return;  // mmap refuses zero bytes
  void* mapped = MAP_FAILED;
  for (const int flags : {MAP_SHARED, MAP_PRIVATE}) {
    mapped = ::mmap(nullptr, size_, PROT_READ, flags, file.descriptor.value, 0);
    if (mapped != MAP_FAILED || !cannot_map(errno)) break;
  }
  if (mapped == MAP_FAILED && cannot_map(errno)) mapped = map_copy(path_, size_);
  check_call(mapped != MAP_FAILED, path_, "cannot map");
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace fsdp
