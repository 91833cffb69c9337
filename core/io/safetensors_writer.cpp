// Writing safetensors as a stream: the header is known before the data.
// Contract: core/io/safetensors.h.
#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"

namespace fsdp {
namespace {

struct WrittenDType {
  std::string_view name;
  int rank;  // tensors with higher rank come first, as in Hugging Face's writer
};

WrittenDType written(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {"F16", 0};
    case DType::kBF16:
      return {"BF16", 1};
    case DType::kI32:
      return {"I32", 2};
    case DType::kF32:
      return {"F32", 3};
    case DType::kF64:
      return {"F64", 4};
    case DType::kI64:
      return {"I64", 5};
  }
  fail("[safetensors] dtype: {}", static_cast<int>(dtype));
}

size_t bytes_of(const SafetensorsSpec& spec) {
  int64_t bytes = static_cast<int64_t>(size_of(spec.dtype));
  for (const int64_t extent : spec.shape) {
    FSDP_CHECK(extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes),
               "[safetensors] {}: bad extent {}", spec.name, extent);
  }
  return static_cast<size_t>(bytes);
}

std::string header(const std::vector<SafetensorsSpec>& tensors, const std::vector<size_t>& sizes,
                   const std::map<std::string, std::string>& metadata) {
  Json out = Json::object();
  if (!metadata.empty()) out["__metadata__"] = metadata;
  size_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Json& entry = out[tensors[i].name];
    entry["dtype"] = written(tensors[i].dtype).name;
    entry["shape"] = tensors[i].shape;
    entry["data_offsets"] = {begin, begin + sizes[i]};
    begin += sizes[i];
  }
  std::string text;
  try {
    text = out.dump();
  } catch (const JsonError& error) {
    fail("[safetensors] a name is not UTF-8: {}", error.what());
  }
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
  return text;
}

}  // namespace

std::string_view safetensors_name(DType dtype) { return written(dtype).name; }

SafetensorsLayout safetensors_layout(std::vector<SafetensorsSpec> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     const std::filesystem::path& path) {
  // Wider dtypes first, then by name.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    const int rank_a = written(a.dtype).rank, rank_b = written(b.dtype).rank;
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  std::vector<size_t> sizes;
  std::set<std::string_view> names = {"__metadata__"};
  for (const SafetensorsSpec& tensor : tensors) {
    sizes.push_back(bytes_of(tensor));
    FSDP_CHECK(names.insert(tensor.name).second, "{}: tensor name \"{}\" is taken", path.string(),
               tensor.name);
  }
  const std::string text = header(tensors, sizes, metadata);
  const uint64_t header_bytes = text.size();
  SafetensorsLayout layout;
  layout.head.assign(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
  layout.head += text;
  layout.bytes = layout.head.size();
  for (const size_t size : sizes) {
    layout.offsets.push_back(layout.bytes);
    layout.bytes += size;
  }
  layout.tensors = std::move(tensors);
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<SafetensorsSpec> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path) {
  const SafetensorsLayout layout = safetensors_layout(std::move(tensors), metadata, path);
  file_.write(layout.head);
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const SafetensorsSpec& tensor = layout.tensors[i];
    places_.emplace(tensor.name, Place{.offset = layout.offsets[i], .bytes = bytes_of(tensor)});
  }
}

void SafetensorsWriter::write(std::string_view name, const void* data, size_t bytes) {
  const auto found = places_.find(name);
  FSDP_CHECK(found != places_.end(), "{}: data for \"{}\", which the header does not have",
             file_.path().string(), name);
  Place& place = found->second;
  FSDP_CHECK(bytes <= place.bytes - place.written, "{}: tensor \"{}\": {} bytes, {} are missing",
             file_.path().string(), name, bytes, place.bytes - place.written);
  file_.write_at(place.offset + place.written, data, bytes);
  place.written += bytes;
}

void SafetensorsWriter::finish() {
  for (const auto& [name, place] : places_) {
    FSDP_CHECK(place.written == place.bytes, "{}: tensor \"{}\": {} of {} bytes written",
               file_.path().string(), name, place.written, place.bytes);
  }
  file_.commit();
}

}  // namespace fsdp
