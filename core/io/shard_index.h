// The two kinds of index that name the files of a model's tensors.
// model.safetensors.index.json, Hugging Face's: each tensor lies in one file.
// model.shards.json, of a sharded checkpoint: every file holds parts of tensors, one
// rank's or several, and the index says which elements they are. Tensors are addressed by (name,
// element range), so that any number of ranks can read what any other wrote:
//   {"format": "fsdp.cpp shards", "version": 1,
//    "files": ["shard-00001-of-00002.safetensors", ...],
//    "tensors": {"model.norm.weight": {"dtype": "F32", "shape": [13],
//                                      "pieces": [[0, 0, 7], [1, 7, 6]]}, ...}}
// A piece is [index of the file, first element, number of elements]; the file has it under the
// tensor's name, with one dimension. Reading the tensors: core/io/safetensors.h.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/safetensors.h"

namespace fsdp {

inline constexpr const char* kWeightsName = "model.safetensors";
inline constexpr const char* kWeightMapName = "model.safetensors.index.json";
inline constexpr const char* kShardIndexName = "model.shards.json";

// Whether SafetensorsFolder finds weights of one of its forms.
bool has_weights(const std::filesystem::path& folder);

struct ShardIndex {
  struct Entry {
    std::string dtype;  // as in the files: "F32"
    std::vector<int64_t> shape;
    std::vector<SafetensorsFolder::Piece> pieces;  // in order
  };
  std::vector<std::string> files;  // names, in the folder of the index
  std::map<std::string, Entry> tensors;
};

// Error unless it is as above and the pieces of every tensor are all of it, in order. `name`: of
// the file, for errors.
ShardIndex parse_shard_index(std::string_view json, const std::string& name);
std::string shard_index_json(const ShardIndex& index);
ShardIndex read_shard_index(const std::filesystem::path& file);
void write_shard_index(const std::filesystem::path& file, const ShardIndex& index);

struct WeightMap {
  std::map<std::string, std::string> files;  // by tensor; in the folder of the index or below it
  std::optional<double> total_bytes;         // "metadata": "total_size", when it is a number
};
WeightMap parse_weight_map(std::string_view json, const std::string& name);

// "shard-00001-of-00003.safetensors", i from 0.
std::string numbered_file(const std::string& stem, size_t i, size_t files);
// Error unless a name from an index lies in the index's own folder.
void check_file_name(const std::string& where, const std::string& name);

}  // namespace fsdp
