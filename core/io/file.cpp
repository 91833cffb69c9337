// Files by POSIX calls, because fsync and mmap have no other name.
// Contract: core/io/file.h.
#include "core/io/file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/hub_files.h"

namespace fsdp {
namespace {

constexpr size_t kPendingBytes = 1 << 16;

std::string last_error() { return std::generic_category().message(errno); }

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
  if (::stat(path.c_str(), &status) != 0) {
    const std::string reason = last_error(), link = broken_link(path);
    fail("{}: {}", path.string(), link.empty() ? "cannot open: " + reason : link);
  }
  check_regular(path, status.st_mode);
  file.descriptor.value = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  FSDP_CHECK(file.descriptor.value >= 0, "{}: cannot open: {}", path.string(), last_error());
  FSDP_CHECK(::fstat(file.descriptor.value, &status) == 0, "{}: cannot inspect: {}", path.string(),
             last_error());
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
  const Descriptor descriptor{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  // Who may not read a folder may still write into it.
  if (descriptor.value < 0 && errno == EACCES) return;
  FSDP_CHECK(descriptor.value >= 0, "{}: cannot open: {}", folder.string(), last_error());
  FSDP_CHECK(::fsync(descriptor.value) == 0 || is_unsupported(errno), "{}: cannot write: {}",
             folder.string(), last_error());
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  OpenFile file;
  open_regular_file(path, file);
  std::string content(file.size, '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::read(file.descriptor.value, content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    FSDP_CHECK(n >= 0, "{}: cannot read: {}", path.string(), last_error());
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
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    FSDP_CHECK(descriptor_ >= 0 || errno == EEXIST, "{}: cannot create: {}", path_.string(),
               last_error());
  }
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
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    FSDP_CHECK(n >= 0, "{}: cannot write: {}", path_.string(), last_error());
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void AtomicFile::write_at(size_t offset, const void* data, size_t bytes) {
  FSDP_CHECK(descriptor_ >= 0, "{}: write after commit", path_.string());
  std::string_view rest(static_cast<const char*>(data), bytes);
  while (!rest.empty()) {
    const ssize_t n = ::pwrite(descriptor_, rest.data(), rest.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    FSDP_CHECK(n >= 0, "{}: cannot write: {}", path_.string(), last_error());
    rest.remove_prefix(static_cast<size_t>(n));
    offset += static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  FSDP_CHECK(descriptor_ >= 0, "{}: commit twice", path_.string());
  write_through(pending_);
  pending_.clear();
  FSDP_CHECK(::fsync(descriptor_) == 0, "{}: cannot write: {}", path_.string(), last_error());
  FSDP_CHECK(::rename(temporary_.c_str(), path_.c_str()) == 0, "{}: cannot rename {} to it: {}",
             path_.string(), temporary_.filename().string(), last_error());
  ::close(std::exchange(descriptor_, -1));
  sync_folder(path_.parent_path());
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

void sync_file(const std::filesystem::path& path) {
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  FSDP_CHECK(descriptor.value >= 0, "{}: cannot open: {}", path.string(), last_error());
  FSDP_CHECK(::fsync(descriptor.value) == 0 || is_unsupported(errno), "{}: cannot write: {}",
             path.string(), last_error());
}

void make_folders(const std::filesystem::path& given) {
  const std::filesystem::path folder = given.has_filename() ? given : given.parent_path();
  std::error_code unreadable;
  if (folder.empty() || std::filesystem::is_directory(folder, unreadable)) return;
  make_folders(folder.parent_path());
  const bool made = ::mkdir(folder.c_str(), 0777) == 0;
  const int error = errno;  // another process may have been faster
  FSDP_CHECK(made || (error == EEXIST && std::filesystem::is_directory(folder, unreadable)),
             "{}: cannot be made: {}", folder.string(), std::generic_category().message(error));
  sync_folder(folder.parent_path());
}

AtomicFolder::AtomicFolder(const std::filesystem::path& path, Existing existing)
    : path_(path.has_filename() ? path : path.parent_path()),
      replaces_(existing == Existing::kReplaced) {
  std::error_code error;
  FSDP_CHECK(
      replaces_ || !std::filesystem::exists(path_, error) ||
          (std::filesystem::is_directory(path_, error) && std::filesystem::is_empty(path_, error)),
      "{}: is there already; give another one", path_.string());
  try {
    make_folders(path_.parent_path());
  } catch (const Error& above) {
    fail("{}: cannot be made: {}", path_.string(), above.what());
  }
  for (int attempt = 0;; ++attempt) {
    temporary_ = path_;
    temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), attempt);
    if (::mkdir(temporary_.c_str(), 0777) == 0) return;
    FSDP_CHECK(errno == EEXIST, "{}: cannot be made: {}", path_.string(), last_error());
  }
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  sync_folder(temporary_);
  std::error_code error;
  if (replaces_ && std::filesystem::exists(path_, error)) {
    // Where the file system cannot exchange them, there is neither for a moment.
    const bool exchanged =
        ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0;
    std::filesystem::remove_all(exchanged ? temporary_ : path_, error);
    if (exchanged) {
      committed_ = true;
      return sync_folder(path_.parent_path());
    }
  }
  FSDP_CHECK(::rename(temporary_.c_str(), path_.c_str()) == 0, "{}: cannot rename {} to it: {}",
             path_.string(), temporary_.filename().string(), last_error());
  committed_ = true;
  sync_folder(path_.parent_path());
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
    const ssize_t n =
        ::pread(descriptor_, place + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    FSDP_CHECK(n >= 0, "{}: cannot read: {}", path_.string(), last_error());
    FSDP_CHECK(n > 0, "{}: ends at byte {}, expected {} more", path_.string(), offset + done,
               bytes - done);
    done += static_cast<size_t>(n);
  }
}

FileLock::FileLock(const std::filesystem::path& path, const std::string& text,
                   const std::string& busy) {
  Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
  FSDP_CHECK(file.value >= 0, "{}: cannot open: {}", path.string(), last_error());
  if (::flock(file.value, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) fail("{}: {}: {}", path.string(), busy, read_file(path));
    const bool unsupported = errno == ENOLCK || is_unsupported(errno);
    problem_ = fmt::format("{}: cannot lock: {}", path.string(), last_error());
    FSDP_CHECK(unsupported, "{}", problem_);
  }
  FSDP_CHECK(::ftruncate(file.value, 0) == 0 && ::pwrite(file.value, text.data(), text.size(), 0) ==
                                                    static_cast<ssize_t>(text.size()),
             "{}: cannot write: {}", path.string(), last_error());
  descriptor_ = std::exchange(file.value, -1);
}

FileLock::~FileLock() { ::close(descriptor_); }

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
  FSDP_CHECK(mapped != MAP_FAILED, "{}: cannot map: {}", path_.string(), last_error());
  data_ = static_cast<const std::byte*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace fsdp
