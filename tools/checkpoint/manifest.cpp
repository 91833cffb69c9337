// The manifest as text. Contract: tools/checkpoint/manifest.h.
#include "tools/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/io/checksum.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/io/shard_index.h"
#include "core/shape.h"
#include "tools/report/metrics.h"

namespace fsdp::tools {
namespace {

constexpr const char* kFormat = "fsdp.cpp checkpoint";
constexpr int kVersion = 2;
constexpr std::string_view kBefore = "{\"checksum\": \"";  // of all that follows its digits
constexpr size_t kDigits = 16;

// JSON has no infinity, and a loss may be one.
std::string text_of(double value) { return fmt::format("{}", value); }

double double_from(const Json& json) {
  const std::string text = json.get<std::string>();
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  FSDP_CHECK(error == std::errc() && rest == end, "expected a number, got \"{}\"", text);
  return value;
}

uint64_t from_hex(const std::string& text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, 16);
  FSDP_CHECK(error == std::errc() && rest == end && text.size() == kDigits,
             "expected {} hexadecimal digits, got \"{}\"", kDigits, text);
  return value;
}

DType dtype_from(const std::string& name) {
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64}) {
    if (name == safetensors_name(dtype)) return dtype;
  }
  fail("unknown dtype \"{}\"", name);
}

// ---------------------------------------------------------------------------- Progress

Json stored(int64_t value) { return value; }
Json stored(double value) { return text_of(value); }
Json stored(const std::optional<double>& value) { return value ? stored(*value) : Json(); }
Json stored(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) out.push_back(stored(value));
  return out;
}
Json stored(const BatchRanges& ranges) { return ranges_json(ranges); }

void take(const Json& json, int64_t& value) { value = json; }
void take(const Json& json, double& value) { value = double_from(json); }
void take(const Json& json, std::optional<double>& value) {
  if (!json.is_null()) value = double_from(json);
}
void take(const Json& json, std::vector<double>& values) {
  for (const Json& value : json) values.push_back(double_from(value));
}
void take(const Json& json, BatchRanges& ranges) { ranges = ranges_from(json); }

Json progress_json(const TrainTotals& totals) {
  Json out = Json::object();
  visit_totals(totals,
               [&](const char* key, const char*, const auto& value) { out[key] = stored(value); });
  return out;
}

TrainTotals progress_from(const Json& json) {
  TrainTotals totals;
  json.at("steps");  // a manifest of any version has it
  visit_totals(totals, [&](const char* key, const char*, auto& value) {
    if (const Json* const found = json.find(key)) take(*found, value);
  });
  return totals;
}

Json loss_scale_json(const std::optional<optim::LossScalerState>& state) {
  if (!state) return {};
  return {{"scale", text_of(state->scale)},
          {"counters", std::vector<int32_t>(state->counters.begin(), state->counters.end())},
          {"aborted", state->aborted}};
}

std::optional<optim::LossScalerState> loss_scale_from(const Json& json) {
  if (json.is_null()) return {};
  optim::LossScalerState state;
  state.scale = static_cast<float>(double_from(json.at("scale")));
  const auto counters = json.at("counters").get<std::vector<int32_t>>();
  FSDP_CHECK(counters.size() == state.counters.size(), "loss_scale: {} counters", counters.size());
  std::copy(counters.begin(), counters.end(), state.counters.begin());
  state.aborted = json.at("aborted");
  return state;
}

// ---------------------------------------------------------------------------- Tensors and files

Json tensor_json(const StoredTensor& tensor) {
  Json pieces = Json::array();
  for (const StoredPiece& p : tensor.pieces) {
    pieces.push_back(Json::array({p.file, p.first, p.count, p.offset}));
  }
  return {{"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"pieces", pieces}};
}

StoredTensor tensor_from(const Json& json) {
  StoredTensor out = {.dtype = dtype_from(json.at("dtype")),
                      .shape = json.at("shape").get<std::vector<int64_t>>()};
  for (const Json& p : json.at("pieces"))
    out.pieces.push_back({p.at(0), p.at(1), p.at(2), p.at(3)});
  return out;
}

Json tensors_json(const std::map<std::string, StoredTensor>& tensors) {
  Json out = Json::object();
  for (const auto& [name, tensor] : tensors) out[name] = tensor_json(tensor);
  return out;
}

std::map<std::string, StoredTensor> tensors_from(const Json& json) {
  std::map<std::string, StoredTensor> out;
  for (const auto& [name, value] : json.items()) out[name] = tensor_from(value);
  return out;
}

Json file_json(const BlockChecksums& file) {
  std::string blocks;  // one text: there may be millions
  for (const uint64_t block : file.blocks) blocks += hex(block);
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"block_bytes", kBlockBytes},
          {"xxh3_of_blocks", blocks}};
}

BlockChecksums file_from(const Json& json) {
  BlockChecksums out = {.name = json.at("name"), .bytes = json.at("bytes")};
  check_file_name("files", out.name);
  FSDP_CHECK(json.at("block_bytes").get<size_t>() == kBlockBytes, "{}: blocks of {} bytes",
             out.name, json.at("block_bytes").get<size_t>());
  const std::string digits = json.at("xxh3_of_blocks");
  for (size_t at = 0; at < digits.size(); at += kDigits) {
    out.blocks.push_back(from_hex(digits.substr(at, kDigits)));
  }
  const uint64_t blocks = (out.bytes + kBlockBytes - 1) / kBlockBytes;
  FSDP_CHECK(out.blocks.size() == blocks, "{}: {} checksums of {} blocks", out.name,
             out.blocks.size(), blocks);
  return out;
}

void check_pieces(const Manifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    int64_t covered = 0;
    const uint64_t size = size_of(tensor.dtype);
    for (const StoredPiece& p : tensor.pieces) {
      FSDP_CHECK(p.file < manifest.files.size(), "{}: file {} of {}", name, p.file,
                 manifest.files.size());
      FSDP_CHECK(p.first == covered && p.count >= 0, "{}: elements {} come after {}", name, p.first,
                 covered);
      const uint64_t bytes = manifest.files[p.file].bytes;
      FSDP_CHECK(p.offset <= bytes && static_cast<uint64_t>(p.count) <= (bytes - p.offset) / size,
                 "{}: lies beyond the end of {}", name, manifest.files[p.file].name);
      covered += p.count;
    }
    FSDP_CHECK(covered == Shape(tensor.shape).numel(), "{}: {} of {} elements", name, covered,
               Shape(tensor.shape).numel());
  }
}

Manifest from_json(const Json& json) {
  FSDP_CHECK(json.at("format") == kFormat, "format: expected \"{}\"", kFormat);
  const int version = json.at("version");
  if (version != kVersion) {
    throw OtherFormat(
        fmt::format("version: expected {}, got {}: {} version of this program has written it",
                    kVersion, version, version > kVersion ? "a newer" : "an older"));
  }
  Manifest m = {.program = json.at("program"),
                .device = json.at("device"),
                .config = json.at("config"),
                .model = json.at("model"),
                .run = json.value("run", ""),
                .run_directory = json.at("run_directory"),
                .working_directory = json.value("working_directory", ""),
                .total_steps = json.value("total_steps", int64_t{0}),
                .data = json.at("data").get<std::map<std::string, std::string>>(),
                .base_path = json.at("base").at("path"),
                .base_hash = from_hex(json.at("base").at("hash")),
                .world_size = json.at("world_size"),
                .progress = progress_from(json.at("progress")),
                .updates = json.at("updates"),
                .loss_scale = loss_scale_from(json.at("loss_scale"))};
  for (const auto& [name, value] : json.at("metrics").items()) m.metrics[name] = double_from(value);
  m.hash = {from_hex(json.at("weights_hash")), from_hex(json.at("optimizer_hash"))};
  for (const Json& file : json.at("files")) m.files.push_back(file_from(file));
  m.tensors = tensors_from(json.at("tensors"));
  check_pieces(m);
  return m;
}

}  // namespace

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

uint64_t Manifest::state_bytes() const {
  uint64_t bytes = 0;
  for (const BlockChecksums& file : files) bytes += file.bytes;
  return bytes;
}

std::string manifest_text(const Manifest& m) {
  Json metrics = Json::object(), files = Json::array();
  for (const auto& [name, value] : m.metrics) metrics[name] = text_of(value);
  for (const BlockChecksums& file : m.files) files.push_back(file_json(file));
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"program", m.program},
                     {"device", m.device},
                     {"world_size", m.world_size},
                     {"run", m.run},
                     {"run_directory", m.run_directory},
                     {"working_directory", m.working_directory},
                     {"total_steps", m.total_steps},
                     {"progress", progress_json(m.progress)},
                     {"schedule_position", m.progress.steps - m.progress.skipped},
                     {"updates", m.updates},
                     {"loss_scale", loss_scale_json(m.loss_scale)},
                     {"metrics", metrics},
                     {"weights_hash", hex(m.hash.weights)},
                     {"optimizer_hash", hex(m.hash.optimizer)},
                     {"data", m.data},
                     {"base", {{"path", m.base_path}, {"hash", hex(m.base_hash)}}},
                     {"config", m.config},
                     {"model", m.model},
                     {"files", files},
                     {"tensors", tensors_json(m.tensors)}};
  const std::string rest = "\",\n\"checkpoint\": " + json.dump({.indent = 1}) + "}\n";
  return std::string(kBefore) + hex(checksum(rest)) + rest;
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
  const bool whole = text.starts_with(kBefore) && text.size() > kBefore.size() + kDigits;
  const std::string_view rest = whole ? text.substr(kBefore.size() + kDigits) : "";
  FSDP_CHECK(whole && text.substr(kBefore.size(), kDigits) == hex(checksum(rest)),
             "{}: damaged: it does not have the checksum that it was written with", source);
  try {
    return from_json(parse_json(text, source).at("checkpoint"));
  } catch (const OtherFormat& error) {
    throw OtherFormat(fmt::format("{}: {}", source, error.what()));
  } catch (const std::exception& error) {
    const std::string what = error.what();
    fail("{}", what.starts_with(source) ? what : source + ": " + what);
  }
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / kManifestName;
  FSDP_CHECK(is_there(file), "{}: no checkpoint, or an incomplete one: no {}", checkpoint.string(),
             kManifestName);
  return parse_manifest(read_file(file), file.string());
}

// ---------------------------------------------------------------------------- Parts

std::string to_text(const ShardContents& shard) {
  return Json{{"file", file_json(shard.file)}, {"tensors", tensors_json(shard.tensors)}}.dump();
}

ShardContents shard_from_text(const std::string& text) {
  const Json json = parse_json(text, "shard");
  return {file_from(json.at("file")), tensors_from(json.at("tensors"))};
}

void add_shards(Manifest& manifest, const std::vector<ShardContents>& shards) {
  manifest.files.clear();
  manifest.tensors.clear();
  for (const ShardContents& shard : shards) {
    for (const auto& [name, tensor] : shard.tensors) {
      StoredTensor& whole = manifest.tensors[name];
      whole.dtype = tensor.dtype;
      whole.shape = tensor.shape;
      for (StoredPiece piece : tensor.pieces) {
        piece.file = manifest.files.size();
        whole.pieces.push_back(piece);
      }
    }
    manifest.files.push_back(shard.file);
  }
  for (auto& [name, tensor] : manifest.tensors) {
    std::sort(tensor.pieces.begin(), tensor.pieces.end(),
              [](const StoredPiece& a, const StoredPiece& b) { return a.first < b.first; });
  }
  check_pieces(manifest);
}

}  // namespace fsdp::tools
