// Reading safetensors: the header's checks, and the conversion of element ranges.
// Read next: safetensors_folder.cpp (shards), safetensors_writer.cpp.
//
// [Note: what is refused]
// a file shorter than its header size says, a header that is not one UTF-8 JSON object, duplicate
// names, an entry without dtype, shape and data_offsets of the right types, a dtype the format does
// not have, negative or overflowing extents, a byte range that is not extents x dtype, and ranges
// that overlap, leave a hole, or do not end exactly at the end of the file.
#include "core/io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/io/file_kind.h"
#include "core/io/json.h"

namespace fsdp {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kMaxHeaderBytes = 100'000'000;  // of the format

struct DTypeRule {
  std::string_view name;
  size_t bits;
  std::optional<DType> dtype;
};

constexpr std::array<DTypeRule, 22> kDTypes{{
    {"BOOL", 8, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"U8", 8, {}},
    {"I8", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, {}},
    {"F32", 32, DType::kF32},
    {"C64", 64, {}},
    {"F64", 64, DType::kF64},
    {"I64", 64, DType::kI64},
    {"U64", 64, {}},
}};

// Everything below names the file and, once known, the tensor.
struct HeaderReader {
  const std::filesystem::path& path;
  size_t data_bytes;  // after the header

  template <typename... Args>
  void check(bool condition, const std::string& name, fmt::format_string<Args...> format,
             Args&&... args) const {
    if (condition) return;
    fail("{}: tensor \"{}\": {}", path.string(), name,
         fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& member(const std::string& name, const Json& value, const char* key) const {
    check(value.contains(key), name, "no \"{}\" in the header", key);
    return value[key];
  }

  // A JSON integer in [0, 2^63).
  int64_t integer(const std::string& name, const Json& value, const char* key) const {
    check(value.is_number_unsigned() &&
              value.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()},
          name, "{}: expected an integer from 0 to 2^63 - 1, got {}", key, value.dump());
    return value.get<int64_t>();
  }

  SafetensorsEntry entry(const std::string& name, const Json& value) const {
    check(value.is_object(), name, "expected an object, got {}", value.type_name());
    SafetensorsEntry out;
    const Json& dtype = member(name, value, "dtype");
    const auto rule = std::find_if(kDTypes.begin(), kDTypes.end(),
                                   [&](const DTypeRule& r) { return r.name == dtype; });
    check(rule != kDTypes.end(), name, "unknown dtype {}", dtype.dump());
    out.dtype_name = rule->name;
    out.dtype = rule->dtype;
    read_shape(name, member(name, value, "shape"), out);
    read_range(name, member(name, value, "data_offsets"), out);
    int64_t bits = 0;
    check(!__builtin_mul_overflow(out.numel, static_cast<int64_t>(rule->bits), &bits), name,
          "shape: the number of bytes overflows");
    check(bits % 8 == 0 && static_cast<size_t>(bits / 8) == out.end - out.begin, name,
          "{} elements of {} need {} bytes, data_offsets hold {}", out.numel, out.dtype_name,
          (bits + 7) / 8, out.end - out.begin);
    return out;
  }

  void read_shape(const std::string& name, const Json& shape, SafetensorsEntry& out) const {
    check(shape.is_array(), name, "shape: expected a list, got {}", shape.type_name());
    out.numel = 1;
    for (const Json& extent : shape) {
      out.shape.push_back(integer(name, extent, "shape"));
      check(!__builtin_mul_overflow(out.numel, out.shape.back(), &out.numel), name,
            "shape: the number of elements overflows");
    }
  }

  void read_range(const std::string& name, const Json& offsets, SafetensorsEntry& out) const {
    check(offsets.is_array() && offsets.size() == 2, name,
          "data_offsets: expected a list of two numbers, got {}", offsets.dump());
    out.begin = static_cast<size_t>(integer(name, offsets[0], "data_offsets"));
    out.end = static_cast<size_t>(integer(name, offsets[1], "data_offsets"));
    check(out.begin <= out.end, name, "data_offsets: {} comes after {}", out.begin, out.end);
    check(out.end <= data_bytes, name,
          "data_offsets end at {}, but only {} bytes follow the header (truncated file?)", out.end,
          data_bytes);
  }
};

std::map<std::string, std::string> read_metadata(const std::filesystem::path& path,
                                                 const Json& value) {
  if (value.is_null()) return {};  // as the safetensors library takes it
  FSDP_CHECK(value.is_object(), "{}: __metadata__: expected an object, got {}", path.string(),
             value.type_name());
  std::map<std::string, std::string> out;
  for (const auto& [key, text] : value.items()) {
    FSDP_CHECK(text.is_string(), "{}: __metadata__: {}: expected a string, got {}", path.string(),
               key, text.type_name());
    out.emplace(key, text.get<std::string>());
  }
  return out;
}

// Sorted by offset, the tensors must tile the data exactly.
void check_tiling(const std::filesystem::path& path,
                  const std::map<std::string, SafetensorsEntry>& entries, size_t data_bytes) {
  std::vector<std::pair<const SafetensorsEntry*, const std::string*>> sorted;
  for (const auto& [name, entry] : entries) sorted.emplace_back(&entry, &name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
  });
  size_t covered = 0;
  for (const auto& [entry, name] : sorted) {
    FSDP_CHECK(entry->begin == covered,
               "{}: tensor \"{}\": data_offsets begin at {}, expected {}: {}", path.string(), *name,
               entry->begin, covered,
               entry->begin < covered ? "tensors overlap" : "there is a hole");
    covered = entry->end;
  }
  FSDP_CHECK(covered == data_bytes, "{}: {} bytes after the last tensor belong to none",
             path.string(), data_bytes - covered);
}

// The JSON text of the header; checks the sizes around it. What fails here may be another kind of
// file: no file that passes is taken for one.
std::string_view header_text(std::string_view file, const std::filesystem::path& path) {
  const auto check = [&](bool holds, const std::string& otherwise) {
    if (holds) return;
    const std::string other = other_kind(file, path, Wanted::kWeights);
    fail("{}: {}", path.string(), other.empty() ? otherwise : other);
  };
  check(file.size() >= 8, fmt::format("not a safetensors file: only {} bytes", file.size()));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), 8);
  check(header_bytes <= kMaxHeaderBytes,
        fmt::format("not a safetensors file: header of {} bytes (at most {} are allowed)",
                    header_bytes, kMaxHeaderBytes));
  check(header_bytes <= file.size() - 8,
        fmt::format("truncated: the header needs {} bytes, the file holds {} after its size",
                    header_bytes, file.size() - 8));
  const std::string_view text = file.substr(8, header_bytes);
  check(text.starts_with('{'), "not a safetensors file: the header does not begin with '{'");
  return text;
}

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else if constexpr (std::is_same_v<To, double>)
    return static_cast<double>(value);
  // f64 to a 16-bit type rounds twice, by way of f32: half a unit of f32 off at worst.
  else
    return static_cast<To>(static_cast<float>(value));
}

template <typename To, typename From>
void convert_floating(const std::byte* in, int64_t count, void* out) {
  To* const values = static_cast<To*>(out);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, in + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    values[i] = convert<To>(value);
  }
}

// False at the first value that does not fit.
template <typename To, typename From>
bool convert_integer(const std::byte* in, int64_t count, void* out) {
  To* const values = static_cast<To*>(out);
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, in + i * static_cast<int64_t>(sizeof(From)), sizeof(From));
    if (!std::in_range<To>(value)) return false;
    values[i] = static_cast<To>(value);
  }
  return true;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  const auto file = std::make_shared<const MappedFile>(path);
  SafetensorsFile out = view(file->text(), path);
  out.file_ = file;
  return out;
}

SafetensorsFile SafetensorsFile::view(std::string_view bytes, const std::filesystem::path& path) {
  SafetensorsFile out;
  out.path_ = path;
  const std::string_view text = header_text(bytes, path);
  const Json header = parse_json(text, path.string() + " (header)");
  const std::string_view data = bytes.substr(8 + text.size());
  const HeaderReader reader{path, data.size()};
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      out.metadata_ = read_metadata(path, value);
    } else {
      SafetensorsEntry entry = reader.entry(name, value);
      entry.data = reinterpret_cast<const std::byte*>(data.data()) + entry.begin;
      out.entries_.emplace(name, std::move(entry));
    }
  }
  check_tiling(path, out.entries_, data.size());
  return out;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  FSDP_CHECK(found != entries_.end(), "{}: no tensor \"{}\"", path().string(), name);
  return found->second;
}

void SafetensorsFile::read_elements(const std::string& name, int64_t first, int64_t count, DType to,
                                    void* out) const {
  const SafetensorsEntry& source = entry(name);
  FSDP_CHECK(source.dtype.has_value(), "{}: tensor \"{}\": dtype {} cannot be read",
             path().string(), name, source.dtype_name);
  FSDP_CHECK(first >= 0 && count >= 0 && first <= source.numel && count <= source.numel - first,
             "{}: tensor \"{}\": {} elements from element {} on, of {}", path().string(), name,
             count, first, source.numel);
  const DType from = *source.dtype;
  const std::byte* in = source.data + first * static_cast<int64_t>(size_of(from));
  if (count == 0) return;
  if (from == to) {
    std::memcpy(out, in, static_cast<size_t>(count) * size_of(from));
  } else if (is_floating(from) && is_floating(to)) {
    dispatch_floating(from, "read_elements", [&](auto from_tag) {
      dispatch_floating(to, "read_elements", [&](auto to_tag) {
        convert_floating<typename decltype(to_tag)::type, typename decltype(from_tag)::type>(
            in, count, out);
      });
    });
  } else if (from == DType::kI64 && to == DType::kI32) {
    FSDP_CHECK((convert_integer<int32_t, int64_t>(in, count, out)),
               "{}: tensor \"{}\": a value does not fit into 32 bits", path().string(), name);
  } else if (from == DType::kI32 && to == DType::kI64) {
    convert_integer<int64_t, int32_t>(in, count, out);
  } else {
    fail("{}: tensor \"{}\": cannot convert {} to {}", path().string(), name, source.dtype_name,
         name_of(to));
  }
}

}  // namespace fsdp
