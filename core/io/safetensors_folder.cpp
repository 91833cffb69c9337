// The weights of a folder, in one file, in several or in the shards of ranks.
// Contract: core/io/safetensors.h.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/shard_index.h"

namespace fsdp {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A folder without weights that can be read: says what is there instead.
[[noreturn]] void fail_without_weights(const std::filesystem::path& folder) {
  static const std::set<std::string> kPickled = {".bin", ".pt", ".pth", ".ckpt"};
  std::string pickled, other;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    const std::string extension = item.path().extension().string();
    const bool settings = name == "training_args.bin";  // of Hugging Face's Trainer
    if (kPickled.count(extension) && !settings && (pickled.empty() || name < pickled)) {
      pickled = name;
    }
    if (extension == ".safetensors" && (other.empty() || name < other)) other = name;
  }
  if (!pickled.empty() && other.empty()) {
    fail(
        "{}: weights only as pickled tensors ({}), which are not read: convert to safetensors, in "
        "Python: AutoModelForCausalLM.from_pretrained(\"{}\").save_pretrained(\"NEW\")",
        folder.string(), pickled, folder.string());
  }
  fail("{}: no {} or {}{}", folder.string(), kWeights, kIndex,
       other.empty() ? "" : " (there is " + other + ")");
}

}  // namespace

SafetensorsFolder SafetensorsFolder::open(const std::filesystem::path& folder) {
  FSDP_CHECK(std::filesystem::exists(folder), "{}: no such folder", folder.string());
  FSDP_CHECK(std::filesystem::is_directory(folder), "{}: expected a folder, got a file",
             folder.string());
  SafetensorsFolder out;
  out.folder_ = folder;
  if (std::filesystem::exists(folder / kWeights)) {
    out.files_.push_back(SafetensorsFile::open(folder / kWeights));
    for (const auto& [name, entry] : out.files_[0].entries()) out.add_whole(name, 0);
  } else if (std::filesystem::exists(folder / kIndex)) {
    out.open_index();
  } else if (std::filesystem::exists(folder / kShardIndexName)) {
    out.open_shards();
  } else {
    fail_without_weights(folder);
  }
  return out;
}

size_t SafetensorsFolder::open_file(const std::filesystem::path& listed_in,
                                    const std::string& name) {
  FSDP_CHECK(std::filesystem::exists(folder_ / name), "{}: {} is missing", listed_in.string(),
             name);
  files_.push_back(SafetensorsFile::open(folder_ / name));
  return files_.size() - 1;
}

void SafetensorsFolder::add_whole(const std::string& name, size_t file) {
  const SafetensorsEntry& entry = files_[file].entry(name);
  tensors_.emplace(name, TensorInfo{.dtype_name = entry.dtype_name,
                                    .dtype = entry.dtype,
                                    .shape = entry.shape,
                                    .numel = entry.numel,
                                    .pieces = {{file, 0, entry.numel}}});
}

void SafetensorsFolder::open_index() {
  const std::filesystem::path index_path = folder_ / kIndex;
  const WeightMap index = parse_weight_map(read_file(index_path), index_path.string());
  std::map<std::string, size_t> opened;  // file name -> index into files_
  uint64_t total_bytes = 0;
  for (const auto& [name, file_name] : index.files) {
    if (!opened.count(file_name)) opened[file_name] = open_file(index_path, file_name);
    const SafetensorsFile& file = files_[opened[file_name]];
    FSDP_CHECK(file.contains(name), "{}: tensor \"{}\" is not in {}", index_path.string(), name,
               file_name);
    total_bytes += file.entry(name).end - file.entry(name).begin;
    add_whole(name, opened[file_name]);
  }
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, entry] : file.entries()) {
      if (contains(name)) continue;
      warnings_.push_back(fmt::format("{}: tensor \"{}\" of {} is not in its weight_map",
                                      index_path.string(), name, file.path().filename().string()));
    }
  }
  if (index.total_bytes && *index.total_bytes != static_cast<double>(total_bytes)) {
    warnings_.push_back(fmt::format("{}: total_size is {}, the tensors have {} bytes",
                                    index_path.string(), *index.total_bytes, total_bytes));
  }
}

void SafetensorsFolder::open_shards() {
  const std::filesystem::path index_path = folder_ / kShardIndexName;
  const ShardIndex index = read_shard_index(index_path);
  for (const std::string& name : index.files) open_file(index_path, name);
  for (const auto& [name, listed] : index.tensors) {
    TensorInfo tensor = {.dtype_name = listed.dtype,
                         .dtype = {},
                         .shape = listed.shape,
                         .numel = 0,
                         .pieces = listed.pieces};
    for (const Piece& piece : listed.pieces) {
      const SafetensorsFile& file = files_[piece.file];
      const std::string where = fmt::format("{}: tensor \"{}\"", file.path().string(), name);
      FSDP_CHECK(file.contains(name), "{}: is missing, {} lists it", where, kShardIndexName);
      const SafetensorsEntry& entry = file.entry(name);
      FSDP_CHECK(entry.numel == piece.count && entry.dtype_name == listed.dtype,
                 "{}: expected {} elements of {}, as {} says, got {} of {}", where, piece.count,
                 listed.dtype, kShardIndexName, entry.numel, entry.dtype_name);
      tensor.dtype = entry.dtype;
      tensor.numel += piece.count;
    }
    tensors_.emplace(name, std::move(tensor));
  }
}

const SafetensorsFolder::TensorInfo& SafetensorsFolder::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  FSDP_CHECK(found != tensors_.end(), "{}: no tensor \"{}\"", folder_.string(), name);
  return found->second;
}

void SafetensorsFolder::read_elements(const std::string& name, int64_t first, int64_t count,
                                      DType to, void* out) const {
  const TensorInfo& source = tensor(name);
  FSDP_CHECK(first >= 0 && count >= 0 && first <= source.numel && count <= source.numel - first,
             "{}: tensor \"{}\": elements {} to {} of {}", folder_.string(), name, first,
             first + count, source.numel);
  auto* const bytes = static_cast<std::byte*>(out);
  for (const Piece& piece : source.pieces) {
    const int64_t begin = std::max(first, piece.first);
    const int64_t end = std::min(first + count, piece.first + piece.count);
    if (begin >= end) continue;
    files_[piece.file].read_elements(name, begin - piece.first, end - begin, to,
                                     bytes + (begin - first) * static_cast<int64_t>(size_of(to)));
  }
}

}  // namespace fsdp
