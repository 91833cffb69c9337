// Contract: core/io/shard_index.h.
#include "core/io/shard_index.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"

namespace fsdp {
namespace {

constexpr const char* kFormat = "fsdp.cpp shards";
constexpr int kVersion = 1;

const Json& member(const std::string& where, const Json& object, const char* key) {
  FSDP_CHECK(object.is_object() && object.contains(key), "{}: no \"{}\"", where, key);
  return object[key];
}

int64_t count_of(const std::string& where, const Json& value) {
  FSDP_CHECK(value.is_number_unsigned() &&
                 value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()},
             "{}: expected an integer from 0 to 2^63 - 1, got {}", where, value.dump());
  return value.get<int64_t>();
}

std::string text_of(const std::string& where, const Json& value) {
  FSDP_CHECK(value.is_string(), "{}: expected a text, got {}", where, value.dump());
  return value.get<std::string>();
}

const Json& list_of(const std::string& where, const Json& value) {
  FSDP_CHECK(value.is_array(), "{}: expected a list, got {}", where, value.type_name());
  return value;
}

SafetensorsFolder::Piece read_piece(const std::string& where, const Json& value, size_t files) {
  FSDP_CHECK(value.is_array() && value.size() == 3,
             "{}: pieces: expected [file, first element, elements], got {}", where, value.dump());
  const int64_t file = count_of(where + ": pieces", value[0]);
  FSDP_CHECK(static_cast<size_t>(file) < files, "{}: pieces: file {} of {}", where, file, files);
  return {static_cast<size_t>(file), count_of(where + ": pieces", value[1]),
          count_of(where + ": pieces", value[2])};
}

ShardIndex::Entry read_entry(const std::string& where, const Json& value, size_t files) {
  ShardIndex::Entry out;
  out.dtype = text_of(where + ": dtype", member(where, value, "dtype"));
  int64_t numel = 1;
  for (const Json& extent : list_of(where + ": shape", member(where, value, "shape"))) {
    out.shape.push_back(count_of(where + ": shape", extent));
    FSDP_CHECK(!__builtin_mul_overflow(numel, out.shape.back(), &numel),
               "{}: shape: the number of elements overflows", where);
  }
  int64_t covered = 0;
  for (const Json& piece : list_of(where + ": pieces", member(where, value, "pieces"))) {
    out.pieces.push_back(read_piece(where, piece, files));
    const SafetensorsFolder::Piece& p = out.pieces.back();
    FSDP_CHECK(p.first == covered && p.count <= numel - covered,
               "{}: pieces: elements {} to {} of {} come after {}", where, p.first,
               static_cast<uint64_t>(p.first) + static_cast<uint64_t>(p.count), numel, covered);
    covered += p.count;
  }
  FSDP_CHECK(covered == numel, "{}: pieces: {} of {} elements", where, covered, numel);
  return out;
}

}  // namespace

std::string numbered_file(const std::string& stem, size_t i, size_t files) {
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, files);
}

void check_file_name(const std::string& where, const std::string& name) {
  FSDP_CHECK(!name.empty() && name != ".." && name.find('/') == std::string::npos,
             "{}: expected a file name, got \"{}\"", where, name);
}

namespace {

// As check_file_name, but in a folder below, too: other programs write "transformer/model-1".
void check_file_below(const std::string& where, const std::string& name) {
  const std::filesystem::path path(name);
  const bool up = std::find(path.begin(), path.end(), "..") != path.end();
  FSDP_CHECK(path.has_filename() && path.is_relative() && !up,
             "{}: expected a file name, got \"{}\"", where, name);
}

}  // namespace

WeightMap parse_weight_map(std::string_view text, const std::string& name) {
  const Json index = parse_json(text, name);
  FSDP_CHECK(index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
             "{}: no object \"weight_map\"", name);
  WeightMap out;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const std::string where = fmt::format("{}: weight_map: {}", name, tensor);
    FSDP_CHECK(file.is_string(), "{}: expected a file name, got {}", where, file.type_name());
    check_file_below(where, out.files.emplace(tensor, file.get<std::string>()).first->second);
  }
  if (index.contains("metadata") && index["metadata"].is_object()) {
    const Json total = index["metadata"].value("total_size", Json());
    if (total.is_number()) out.total_bytes = total.get<double>();
  }
  return out;
}

ShardIndex read_shard_index(const std::filesystem::path& file) {
  return parse_shard_index(read_file(file), file.string());
}

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const std::string format = text_of(where + ": format", member(where, json, "format"));
  FSDP_CHECK(format == kFormat, "{}: format: expected \"{}\", got \"{}\"", where, kFormat, format);
  const int64_t version = count_of(where + ": version", member(where, json, "version"));
  FSDP_CHECK(version == kVersion, "{}: version: this program reads {}, got {}", where, kVersion,
             version);
  ShardIndex out;
  for (const Json& name : list_of(where + ": files", member(where, json, "files"))) {
    out.files.push_back(text_of(where + ": files", name));
    check_file_name(where + ": files", out.files.back());
  }
  const Json& tensors = member(where, json, "tensors");
  FSDP_CHECK(tensors.is_object(), "{}: tensors: expected an object", where);
  for (const auto& [name, value] : tensors.items()) {
    out.tensors.emplace(name, read_entry(where + ": " + name, value, out.files.size()));
  }
  return out;
}

std::string shard_index_json(const ShardIndex& index) {
  Json tensors = Json::object();
  for (const auto& [name, entry] : index.tensors) {
    Json pieces = Json::array();
    for (const SafetensorsFolder::Piece& p : entry.pieces) {
      pieces.push_back({p.file, p.first, p.count});
    }
    tensors[name] = {{"dtype", entry.dtype}, {"shape", entry.shape}, {"pieces", pieces}};
  }
  const Json all = {
      {"format", kFormat}, {"version", kVersion}, {"files", index.files}, {"tensors", tensors}};
  return all.dump() + "\n";
}

bool has_weights(const std::filesystem::path& folder) {
  return is_named(folder / kWeightsName) || is_named(folder / kWeightMapName) ||
         is_named(folder / kShardIndexName);
}

void write_shard_index(const std::filesystem::path& file, const ShardIndex& index) {
  write_file_atomically(file, shard_index_json(index));
}

}  // namespace fsdp
