// Files: read whole, write atomically (temporary file, fsync, rename), map read-only; folders that
// appear whole. Every error names the file. Not here: formats (core/io/safetensors.h,
// core/io/json.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace fsdp {

// What the system refused, rather than what a file holds. Whether it may pass: core/io/patience.h.
class SystemError : public Error {
 public:
  SystemError(const std::string& message, int code) : Error(message), code_(code) {}
  int code() const { return code_; }  // errno

 private:
  int code_;
};

// SystemError for what cannot be known; false where there is nothing of that name.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
// Names in the folder, sorted; of a folder that is not there, none.
std::vector<std::string> names_in(const std::filesystem::path& folder);

std::string read_file(const std::filesystem::path& path);

// A file that appears under its name only when it is complete. A crash, an exception or a full disk
// leaves the old file, if any, untouched. The folder must exist.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();  // without commit: the temporary file is removed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);  // small pieces are collected
  void write(std::string_view text) { write(text.data(), text.size()); }
  // At a place of its own, whatever the order; what write() wrote and this must not overlap.
  void write_at(size_t offset, const void* data, size_t bytes);
  void commit();  // fsync, rename, fsync of the folder
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_through(std::string_view bytes);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::string pending_;  // collected, not yet given to the system
};

// Whether the process that wrote this temporary file of an AtomicFile is gone. Where the file
// system has no locks, nobody knows: false.
bool is_abandoned(const std::filesystem::path& temporary);

void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Waits until what was written to the file is on the disk.
void sync_file(const std::filesystem::path& path);
// Makes the folder and those above it that are missing. Their names are on the disk then.
void make_folders(const std::filesystem::path& folder);

class FileLock;

// A folder that appears under its name only when it is complete: its files are written into a
// temporary folder beside it, which is renamed. Missing folders above it are made. Error when there
// is something at `path` already, other than an empty folder, unless it is to be replaced.
//
// [Note: abandoned parts] A process that is killed leaves its temporary folder. The next one that
// makes the same folder removes it, unless it replaces a folder: then somebody else keeps order. A
// temporary folder has a file that its process holds a lock on, and that names the machine. A
// machine knows the locks of its own processes. It may not know those of another machine, so what
// another machine left is removed after a day in which nothing was written into it.
class AtomicFolder {
 public:
  enum class Existing { kRefused, kReplaced };  // by commit(), which then removes what was there
  explicit AtomicFolder(const std::filesystem::path& path, Existing existing = Existing::kRefused);
  ~AtomicFolder();  // without commit: the temporary folder and all that is in it are removed
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  void commit();  // may be called again after a SystemError

 private:
  void take_name();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::filesystem::path replaced_;  // where the old folder is now; empty: there was none
  std::unique_ptr<FileLock> lock_;  // of the temporary folder; null: it replaces another one
  bool replaces_ = false;
  bool committed_ = false;
};

// A file whose bytes are read where they are asked for. Unlike a mapped file, what is read of it
// does not count towards the memory of the process, and one that was cut short is an Error, no
// signal.
class ReadableFile {
 public:
  explicit ReadableFile(std::filesystem::path path);
  ~ReadableFile();
  ReadableFile(const ReadableFile&) = delete;
  ReadableFile& operator=(const ReadableFile&) = delete;

  size_t size() const { return size_; }  // bytes, when it was opened
  const std::filesystem::path& path() const { return path_; }
  void read_at(size_t offset, void* out, size_t bytes) const;  // all of them, or Error

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  size_t size_ = 0;
};

// A lock on a file that one process holds at a time, and that the system takes from a process that
// ends, however it ends. The file is made where it is missing, holds `text`, and stays.
class FileLock {
 public:
  // Waits for no one: see holder().
  FileLock(const std::filesystem::path& path, const std::string& text);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // The text of another process that has the lock, which this object then has not; "": nobody else.
  const std::string& holder() const { return holder_; }
  // Why nobody is kept out: some file systems (Lustre without flock, some of NFS) have no locks;
  // "": the lock is held.
  const std::string& problem() const { return problem_; }

 private:
  int descriptor_ = -1;
  std::string holder_;
  std::string problem_;
};

// A file mapped read-only. Whoever replaces such a file must rename over it (AtomicFile does),
// never truncate it: the mapping then keeps the old contents.
class MappedFile {
 public:
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }  // null for an empty file
  size_t size() const { return size_; }            // bytes
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace fsdp
