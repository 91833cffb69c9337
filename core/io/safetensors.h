// The safetensors format: u64 header size, JSON header, tensor bytes; little-endian, row-major.
// Reading maps the file and touches only the bytes asked for; opening validates the whole header,
// so that no later access can leave the file. Writing streams, and the file appears only when
// complete. Read next: safetensors.cpp (the checks), safetensors_writer.cpp. Not here: which
// parameter a name belongs to (models).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/io/file.h"

namespace fsdp {

struct SafetensorsEntry {
  std::string dtype_name;      // as in the file: "F32", "U8", ...
  std::optional<DType> dtype;  // absent: the format knows it, this program does not
  std::vector<int64_t> shape;
  int64_t numel = 0;
  size_t begin = 0;  // bytes, from the first byte after the header
  size_t end = 0;
  const std::byte* data = nullptr;  // may be unaligned; valid as long as the file object
};

class SafetensorsFile {
 public:
  // Error for anything the format forbids: see [Note: what is refused] in safetensors.cpp.
  static SafetensorsFile open(const std::filesystem::path& path);
  // The same of a file's bytes, which must outlive the object. `path`: only to name it in errors.
  static SafetensorsFile view(std::string_view bytes, const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, SafetensorsEntry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return entries_.count(name) != 0; }
  const SafetensorsEntry& entry(const std::string& name) const;  // Error when absent

  // Elements [first, first + count) of a tensor, converted to `to`: floating to floating (rounded
  // to nearest), integer to integer (Error when a value does not fit).
  void read_elements(const std::string& name, int64_t first, int64_t count, DType to,
                     void* out) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const MappedFile> file_;  // null: a view
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

// The weights of a folder, as named tensors of which any range of elements can be read. A folder is
//   model.safetensors                                  Hugging Face's
//   model.safetensors.index.json and its files         Hugging Face's, above a size
//   model.shards.json and its files                    a sharded checkpoint (shard_index.h)
class SafetensorsFolder {
 public:
  // Elements [first, first + count) of a tensor, which one of the files has under its name.
  struct Piece {
    size_t file = 0;  // index into files()
    int64_t first = 0;
    int64_t count = 0;
  };
  struct TensorInfo {
    std::string dtype_name;
    std::optional<DType> dtype;  // as in SafetensorsEntry
    std::vector<int64_t> shape;
    int64_t numel = 0;
    std::vector<Piece> pieces;  // in order, without gaps
  };

  // Error for a folder that is not complete and as its index says, with all that is wrong.
  static SafetensorsFolder open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return folder_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  const TensorInfo& tensor(const std::string& name) const;  // Error when absent
  // As SafetensorsFile::read_elements.
  void read_elements(const std::string& name, int64_t first, int64_t count, DType to,
                     void* out) const;
  // Oddities that do not stop the reading, one line each, for the caller to print.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  using Problems = std::vector<std::string>;
  void open_index();
  void open_shards();
  size_t open_file(const std::string& name, Problems& problems);
  bool is_open(size_t file) const { return !files_[file].path().empty(); }
  void warn_of_unlisted(const std::string& index);
  void add_whole(const std::string& name, size_t file);

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorInfo> tensors_;
  std::vector<std::string> warnings_;
};

std::string_view safetensors_name(DType dtype);  // "BF16"

struct SafetensorsSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// What stands in front of the data of a file with these tensors, and where each of them begins.
struct SafetensorsLayout {
  std::string head;                      // length and JSON header
  std::vector<SafetensorsSpec> tensors;  // in the order of the file: wider dtypes first, then names
  std::vector<size_t> offsets;           // of each, in the file
  size_t bytes = 0;                      // of the file
};
// Error, which begins with `path`, when two tensors have one name.
SafetensorsLayout safetensors_layout(std::vector<SafetensorsSpec> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     const std::filesystem::path& path);

// Use: construct, write every tensor in pieces of any size, finish(). Tensors may come in any
// order, so that whoever has them one by one keeps none. Without finish() no file appears. The
// bytes equal those of Hugging Face's own writer for the same tensors.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsSpec> tensors,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  // The next `bytes` bytes of `name`, in the tensor's dtype.
  void write(std::string_view name, const void* data, size_t bytes);
  void finish();

 private:
  struct Place {
    size_t offset = 0;  // in the file
    size_t bytes = 0;
    size_t written = 0;
  };
  AtomicFile file_;
  std::map<std::string, Place, std::less<>> places_;  // by name
};

}  // namespace fsdp
