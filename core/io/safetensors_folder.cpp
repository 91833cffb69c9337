// The weights of a Hugging Face folder, in one file or in shards.
// Contract: core/io/safetensors.h.
#include <algorithm>

#include "core/error.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"

namespace fsdp {
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A folder without weights that can be read: says what is there instead.
[[noreturn]] void fail_without_weights(const std::filesystem::path& folder) {
  std::string bin, other;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    const std::string name = item.path().filename().string();
    const std::string extension = item.path().extension().string();
    if (extension == ".bin" && (bin.empty() || name < bin)) bin = name;
    if (extension == ".safetensors" && (other.empty() || name < other)) other = name;
  }
  if (!bin.empty() && other.empty()) {
    fail(
        "{}: weights only as .bin ({}): convert to safetensors (model.save_pretrained with "
        "safe_serialization=True)",
        folder.string(), bin);
  }
  fail("{}: no {} or {}{}", folder.string(), kWeights, kIndex,
       other.empty() ? "" : " (there is " + other + ")");
}

// "weight_map" of the index, names checked: tensor -> file.
std::map<std::string, std::string> read_weight_map(const std::filesystem::path& path,
                                                   const Json& index) {
  FSDP_CHECK(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
             "{}: no object \"weight_map\"", path.string());
  std::map<std::string, std::string> out;
  for (const auto& [name, file] : index["weight_map"].items()) {
    FSDP_CHECK(file.is_string(), "{}: weight_map: {}: expected a file name, got {}", path.string(),
               name, file.type_name());
    const std::string text = file.get<std::string>();
    // A shard lies in the folder; a path that leads out of it is not followed.
    FSDP_CHECK(!text.empty() && text != ".." && text.find('/') == std::string::npos,
               "{}: weight_map: {}: expected a file name, got \"{}\"", path.string(), name, text);
    out.emplace(name, text);
  }
  return out;
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
    for (const auto& [name, entry] : out.files_[0].entries()) out.file_of_.emplace(name, 0);
  } else if (std::filesystem::exists(folder / kIndex)) {
    out.open_shards();
  } else {
    fail_without_weights(folder);
  }
  return out;
}

void SafetensorsFolder::open_shards() {
  const std::filesystem::path index_path = folder_ / kIndex;
  const Json index = read_json_file(index_path);
  std::map<std::string, size_t> opened;  // file name -> index into files_
  uint64_t total_bytes = 0;
  for (const auto& [name, file_name] : read_weight_map(index_path, index)) {
    const auto [place, is_new] = opened.emplace(file_name, files_.size());
    if (is_new) {
      FSDP_CHECK(std::filesystem::exists(folder_ / file_name), "{}: shard {} is missing",
                 index_path.string(), file_name);
      files_.push_back(SafetensorsFile::open(folder_ / file_name));
    }
    const SafetensorsFile& shard = files_[place->second];
    FSDP_CHECK(shard.contains(name), "{}: tensor \"{}\" is not in {}", index_path.string(), name,
               file_name);
    total_bytes += shard.entry(name).end - shard.entry(name).begin;
    file_of_.emplace(name, place->second);
  }
  if (index.contains("metadata") && index["metadata"].is_object()) {
    const Json total = index["metadata"].value("total_size", Json());
    if (total.is_number() && total.get<double>() != static_cast<double>(total_bytes)) {
      warnings_.push_back(fmt::format("{}: total_size is {}, the tensors have {} bytes",
                                      index_path.string(), total.dump(), total_bytes));
    }
  }
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> out;
  for (const auto& [name, file] : file_of_) out.push_back(name);
  return out;
}

const SafetensorsFile& SafetensorsFolder::file(const std::string& name) const {
  const auto found = file_of_.find(name);
  FSDP_CHECK(found != file_of_.end(), "{}: no tensor \"{}\"", folder_.string(), name);
  return files_[found->second];
}

}  // namespace fsdp
