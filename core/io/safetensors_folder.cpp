// The weights of a folder, in one file, in several or in the shards of ranks.
// Contract: core/io/safetensors.h.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/file_kind.h"
#include "core/io/hub_files.h"
#include "core/io/patience.h"
#include "core/io/shard_index.h"
#include "core/text/listed.h"

namespace fsdp {
namespace {

// What a file of weights is that this program does not read; "": a pickle, or nobody can tell.
std::string kind_of_weights(const std::filesystem::path& file) {
  if (file.extension() == ".msgpack") {  // the format has no beginning of its own
    return fmt::format(
        "expected a file of safetensors, got weights of Flax; convert it: with transformers 4 and "
        "Flax, AutoModelForCausalLM.from_pretrained(\"{}\", from_flax=True)"
        ".save_pretrained(\"NEW\")",
        file.parent_path().string());
  }
  const MappedFile mapped(file);
  return is_pickle(mapped.text()) ? "" : other_kind(mapped.text(), file, Wanted::kWeights);
}

// A folder without weights that can be read: says what is there instead.
[[noreturn]] void fail_without_weights(const std::filesystem::path& folder) {
  static const std::set<std::string> kPickled = {".bin", ".pt", ".pth", ".ckpt"};
  static const std::set<std::string> kForeign = {".gguf", ".h5", ".npz", ".msgpack"};
  std::string pickled, foreign, other;
  const auto keep_first = [](std::string& first, const std::string& name) {
    if (first.empty() || name < first) first = name;
  };
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    const std::string extension = item.path().extension().string();
    const bool settings = name == "training_args.bin";  // of Hugging Face's Trainer
    if (kPickled.count(extension) && !settings) keep_first(pickled, name);
    if (kForeign.count(extension)) keep_first(foreign, name);
    if (extension == ".safetensors") keep_first(other, name);
  }
  const std::string candidate = pickled.empty() ? foreign : pickled;
  if (!candidate.empty() && other.empty()) {
    const std::string kind = kind_of_weights(folder / candidate);
    FSDP_CHECK(kind.empty(), "{}: {}", (folder / candidate).string(), kind);
  }
  if (!pickled.empty() && other.empty()) {
    fail(
        "{}: weights only as pickled tensors ({}), which are not read: convert to safetensors, in "
        "Python: AutoModelForCausalLM.from_pretrained(\"{}\").save_pretrained(\"NEW\")",
        folder.string(), pickled, folder.string());
  }
  fail("{}: no {} or {}{}", folder.string(), kWeightsName, kWeightMapName,
       other.empty() ? "" : " (there is " + other + ")");
}

// Of a folder and its index: one on a line with it, several on lines of their own.
void fail_if_any(const std::filesystem::path& index, const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  fail("{}:{}", index.string(), problems.size() == 1 ? " " + problems[0] : listed(problems));
}

// Between a shard and what its index says of a tensor's part in it; "" when there is none.
std::string difference(const SafetensorsFile& file, const std::string& tensor,
                       const std::string& dtype, int64_t count) {
  if (!file.contains(tensor)) return " is missing";
  const SafetensorsEntry& entry = file.entry(tensor);
  if (entry.numel == count && entry.dtype_name == dtype) return "";
  return fmt::format(": expected {} element{} of {}, got {} of {}", count, count == 1 ? "" : "s",
                     dtype, entry.numel, entry.dtype_name);
}

}  // namespace

SafetensorsFolder SafetensorsFolder::open(const std::filesystem::path& folder) {
  if (!is_there(folder)) fail_missing(folder.string() + ": no such folder");
  FSDP_CHECK(is_folder(folder), "{}: expected a folder, got a file", folder.string());
  SafetensorsFolder out;
  out.folder_ = folder;
  if (is_named(folder / kWeightsName)) {
    out.files_.push_back(SafetensorsFile::open(folder / kWeightsName));
    for (const auto& [name, entry] : out.files_[0].entries()) out.add_whole(name, 0);
  } else if (is_named(folder / kWeightMapName)) {
    out.open_index();
  } else if (is_named(folder / kShardIndexName)) {
    out.open_shards();
  } else {
    fail_without_weights(folder);
  }
  return out;
}

// What cannot be opened takes its place in files_ as one that is not open.
size_t SafetensorsFolder::open_file(const std::string& name, Problems& problems) {
  files_.emplace_back();
  if (!is_named(folder_ / name)) {
    problems.push_back(name + " is missing");
    return files_.size() - 1;
  }
  try {
    files_.back() = SafetensorsFile::open(folder_ / name);
  } catch (const SystemError&) {
    throw;
  } catch (const Error& error) {
    problems.emplace_back(error.what());
  }
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
  const std::filesystem::path index_path = folder_ / kWeightMapName;
  const WeightMap index = parse_weight_map(read_file(index_path), index_path.string());
  std::map<std::string, size_t> opened;  // file name -> index into files_
  Problems problems;
  uint64_t total_bytes = 0;
  for (const auto& [name, file_name] : index.files) {
    if (!opened.count(file_name)) opened[file_name] = open_file(file_name, problems);
    const size_t number = opened[file_name];
    if (!is_open(number)) continue;
    const SafetensorsFile& file = files_[number];
    if (!file.contains(name)) {
      problems.push_back(fmt::format("tensor \"{}\" is not in {}", name, file_name));
      continue;
    }
    total_bytes += file.entry(name).end - file.entry(name).begin;
    add_whole(name, number);
  }
  fail_if_any(index_path, problems);
  warn_of_unlisted(index_path.string());
  if (index.total_bytes && *index.total_bytes != static_cast<double>(total_bytes)) {
    warnings_.push_back(fmt::format("{}: total_size is {}, the tensors have {} bytes",
                                    index_path.string(), *index.total_bytes, total_bytes));
  }
}

void SafetensorsFolder::warn_of_unlisted(const std::string& index) {
  size_t unlisted = 0;
  for (const SafetensorsFile& file : files_) {
    for (const auto& [name, entry] : file.entries()) {
      if (contains(name) || ++unlisted > kMostListed) continue;
      warnings_.push_back(fmt::format("{}: tensor \"{}\" of {} is not in its weight_map", index,
                                      name, file.path().lexically_relative(folder_).string()));
    }
  }
  if (unlisted <= kMostListed) return;
  warnings_.push_back(
      fmt::format("{}: {} more are not in its weight_map", index, unlisted - kMostListed));
}

void SafetensorsFolder::open_shards() {
  const std::filesystem::path index_path = folder_ / kShardIndexName;
  const ShardIndex index = read_shard_index(index_path);
  Problems problems;
  for (const std::string& name : index.files) open_file(name, problems);
  for (const auto& [name, listed] : index.tensors) {
    TensorInfo tensor = {.dtype_name = listed.dtype,
                         .dtype = {},
                         .shape = listed.shape,
                         .numel = 0,
                         .pieces = listed.pieces};
    for (const Piece& piece : listed.pieces) {
      if (!is_open(piece.file)) continue;
      const SafetensorsFile& file = files_[piece.file];
      const std::string wrong = difference(file, name, listed.dtype, piece.count);
      if (!wrong.empty()) {
        problems.push_back(
            fmt::format("{}: tensor \"{}\"{}", index.files[piece.file], name, wrong));
        continue;
      }
      tensor.dtype = file.entry(name).dtype;
      tensor.numel += piece.count;
    }
    tensors_.emplace(name, std::move(tensor));
  }
  fail_if_any(index_path, problems);
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
