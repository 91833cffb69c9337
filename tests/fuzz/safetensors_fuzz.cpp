// Fuzz target: a safetensors file. Input: the file's bytes; or, when it begins with '{', a header
// and, behind a zero byte, the data, for which the size in front is right.
#include "core/io/safetensors.h"
#include "tests/fuzz/fuzz_target.h"

namespace fsdp::fuzz {
namespace {

std::string file_of(std::string_view header, std::string_view data) {
  const uint64_t size = header.size();
  std::string out(reinterpret_cast<const char*>(&size), sizeof size);
  return out.append(header).append(data);
}

// Every byte of a tensor, in its own dtype and all that it converts to. What is refused is asked
// once: an exception takes as long as a hundred of the rest.
void use(const SafetensorsFile& file, const std::string& name, bool ask_what_is_refused) {
  const SafetensorsEntry& entry = file.entry(name);
  const size_t bytes = entry.end - entry.begin;
  size_t sum = 0;
  for (size_t i = 0; i < bytes; ++i) sum += static_cast<size_t>(entry.data[i]);
  require(sum <= 255 * bytes);
  if (!entry.dtype) return;
  std::vector<double> values(static_cast<size_t>(entry.numel));
  const auto reads = [&](int64_t first, int64_t count, DType to) {
    return accepts([&] { file.read_elements(name, first, count, to, values.data()); });
  };
  require(reads(0, entry.numel, *entry.dtype));
  for (const DType to : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    if (is_floating(*entry.dtype)) require(reads(0, entry.numel, to));
  }
  if (entry.dtype == DType::kI32) require(reads(0, entry.numel, DType::kI64));
  if (entry.dtype == DType::kI64) reads(0, entry.numel, DType::kI32);
  if (!ask_what_is_refused) return;
  require(!reads(entry.numel, 1, *entry.dtype) && !reads(-1, 1, *entry.dtype));
  require(!reads(INT64_MAX, INT64_MAX, *entry.dtype) && !reads(0, INT64_MAX, *entry.dtype));
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> out = {"{}"};
  std::string many = "{";
  size_t end = 0;
  for (const std::string dtype :
       {"F64", "I64", "F32", "I32", "BF16", "F16", "U8", "F8_E4M3", "BOOL"}) {
    const size_t bytes = dtype.ends_with("64") ? 16 : dtype.ends_with("32") ? 8 : 4;
    const size_t numel = dtype.ends_with("16") || bytes > 4 ? 2 : 4;
    many += fmt::format(R"({}"t.{}":{{"dtype":"{}","shape":[{},1],"data_offsets":[{},{}]}})",
                        end ? "," : "", dtype, dtype, numel, end, end + bytes);
    end += bytes;
  }
  many += "}";
  out.push_back(many + std::string(1, '\0') + std::string(end, '\x3c'));
  const std::string two =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"F4","shape":[2,3],"data_offsets":[4,7]},)"
      R"("e":{"dtype":"I64","shape":[0,7],"data_offsets":[4,4]}})";
  out.push_back(two + std::string(1, '\0') + "1234567");
  out.push_back(file_of(two, "1234567"));
  out.push_back(file_of(two + "   ", "1234567"));
  out.push_back(R"({"__metadata__":null})");
  out.push_back("<!doctype html>");
  out.push_back(file_of(two, "1234"));
  out.push_back(std::string(8, '\xff') + "{}");
  return out;
}

}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  std::string file;
  if (input.starts_with('{')) {
    const size_t zero = input.find('\0');
    file = fsdp::fuzz::file_of(input.substr(0, zero),
                               zero == input.npos ? "" : input.substr(zero + 1));
    input = file;
  }
  fsdp::fuzz::accepts([&] {
    const auto opened = fsdp::SafetensorsFile::view(input, "fuzz.safetensors");
    for (const auto& item : opened.entries()) {
      fsdp::fuzz::use(opened, item.first, size % 64 == 0);
    }
  });
  return 0;
}
