// Safetensors: malformed files are refused by name, tensors convert, what is written equals the
// bytes of Hugging Face's writer (tests/fixtures/safetensors holds files that it wrote).
// Not here: shards (safetensors_folder_test.cpp).
#include "core/io/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

std::string file_bytes(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

// The error of opening these bytes, without the path; "" when they are accepted.
std::string refusal(const std::string& bytes) {
  test::TempFolder folder;
  const auto path = folder.write("m.safetensors", bytes);
  const std::string error = test::error_of([&] { SafetensorsFile::open(path); });
  if (error.empty()) return "";
  REQUIRE(error.rfind(path.string(), 0) == 0);  // begins with the file
  return error.substr(path.string().size());
}

std::string refusal(const std::string& header, const std::string& data) {
  return refusal(file_bytes(header, data));
}

const std::string kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";

TEST_CASE("a good file, header padded or not, tensors empty or without dimensions") {
  CHECK(refusal(kGood, std::string(11, 'x')) == "");
  CHECK(refusal(kGood + "     ", std::string(11, 'x')) == "");
  CHECK(refusal("{}", "") == "");
  CHECK(refusal(R"({"__metadata__":null})", "") == "");  // as writers without metadata have it
  CHECK(refusal(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                R"("e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]}})",
                "1234") == "");
}

struct Malformed {
  const char* name;
  std::string header;
  std::string data;
  const char* expected;  // part of the message
};

const std::vector<Malformed> kMalformed{
    {"hole", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xx", "there is a hole"},
    {"overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
     R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     "xxx", "tensors overlap"},
    {"wrong number of elements", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
     "12345678", "3 elements of F32 need 12 bytes, data_offsets hold 8"},
    {"overflow of elements",
     R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "",
     "the number of elements overflows"},
    {"overflow of bytes",
     R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "",
     "the number of bytes overflows"},
    {"duplicate name",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
     "xx", "duplicate key \"a\""},
    {"metadata that is not text", R"({"__metadata__":{"format":1}})", "",
     "__metadata__: format: expected a string, got number"},
    {"metadata that is not an object", R"({"__metadata__":"pt"})", "", "__metadata__: expected an"},
    {"invalid UTF-8", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x",
     "malformed JSON"},
    {"negative extent", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x",
     "expected an integer from 0 to 2^63 - 1, got -1"},
    {"fractional extent", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "x",
     "expected an integer"},
    {"extent of 2^64",
     R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}})", "x",
     "expected an integer"},
    {"bytes that belong to nothing", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
     "xyz", "2 bytes after the last tensor belong to none"},
    {"truncated data", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234567",
     "only 7 bytes follow the header (truncated file?)"},
    {"reversed offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,1]}})", "xx",
     "2 comes after 1"},
    {"three offsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "x",
     "expected a list of two numbers"},
    {"unknown dtype", R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,1]}})", "x",
     "unknown dtype \"F31\""},
    {"half a byte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "x",
     "3 elements of F4 need 2 bytes"},
    {"entry that is not an object", R"({"a":[]})", "", "expected an object, got array"},
    {"entry without shape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x",
     "no \"shape\" in the header"},
    {"metadata that is null within", R"({"__metadata__":{"format":null}})", "",
     "__metadata__: format: expected a string, got null"},
    {"header cut short", R"({"a":{"dtype")", "", "malformed JSON"},
    {"header that is a list", R"([1])", "", "does not begin with '{'"},
    {"empty header", "", "x", "does not begin with '{'"},
    {"two headers", "{}{}", "", "malformed JSON"},
};

TEST_CASE("malformed files are refused") {
  for (const Malformed& m : kMalformed) {
    CAPTURE(m.name);
    const std::string error = refusal(m.header, m.data);
    CAPTURE(error);
    CHECK(test::contains(error, m.expected));
  }
}

TEST_CASE("a header size that the file cannot hold") {
  const auto with_size = [](uint64_t size) {
    return refusal(std::string(reinterpret_cast<const char*>(&size), 8) + "{}");
  };
  CHECK(with_size(2) == "");
  CHECK(test::contains(with_size(3), "truncated: the header needs 3 bytes, the file holds 2"));
  CHECK(test::contains(with_size(100'000'001), "header of 100000001 bytes"));
  CHECK(test::contains(with_size(~uint64_t{0}), "not a safetensors file"));
  CHECK(test::contains(refusal("\1\2\3\4"), "not a safetensors file: only 4 bytes"));
  CHECK(test::contains(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
                       "a pointer of Git LFS, not the file: git lfs pull brings it"));
}

TEST_CASE("no cut or changed byte of a good file leads out of it") {
  const std::string good = file_bytes(kGood, std::string(11, 'x'));
  test::TempFolder folder;
  for (size_t cut = 0; cut < good.size(); ++cut) CHECK(refusal(good.substr(0, cut)) != "");
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char byte : {'\0', '9', '"', '}', '\xff'}) {
      std::string changed = good;
      changed[i] = byte;
      const auto path = folder.write("m.safetensors", changed);
      test::error_of([&] {
        const auto file = SafetensorsFile::open(path);
        size_t sum = 0;  // reads every byte that the header promises, under AddressSanitizer
        for (const auto& [name, entry] : file.entries()) {
          for (size_t b = 0; b < entry.end - entry.begin; ++b) {
            sum += static_cast<size_t>(entry.data[b]);
          }
        }
        CHECK(sum < 11 * 256);
      });
    }
  }
}

TEST_CASE("element ranges are read and converted, also from unaligned data") {
  test::TempFolder folder;
  const double values[4] = {1.0 / 3, -2.5, 70000, std::numeric_limits<double>::infinity()};
  const std::string header = R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("x":{"dtype":"F64","shape":[2,2],"data_offsets":[1,33]}})";
  const auto file = SafetensorsFile::open(folder.write(
      "m.safetensors",
      file_bytes(header, "u" + std::string(reinterpret_cast<const char*>(values), sizeof values))));
  float as_float[2];
  file.read_elements("x", 1, 2, DType::kF32, as_float);
  CHECK(as_float[0] == -2.5f);
  CHECK(as_float[1] == 70000.0f);
  BFloat16 as_bf16[4];
  Float16 as_f16[4];
  file.read_elements("x", 0, 4, DType::kBF16, as_bf16);
  file.read_elements("x", 0, 4, DType::kF16, as_f16);
  CHECK(as_bf16[0].bits == 0x3eab);  // 1/3 = 0x3eaaaaab
  CHECK(as_f16[0].bits == 0x3555);
  CHECK(std::isinf(float(as_f16[2])));
  double as_double[4];
  file.read_elements("x", 0, 4, DType::kF64, as_double);
  CHECK(std::memcmp(as_double, values, sizeof values) == 0);
  file.read_elements("x", 4, 0, DType::kF64, nullptr);

  const auto reading = [&](const char* name, int64_t first, int64_t count, DType to) {
    return test::error_of([&] { file.read_elements(name, first, count, to, as_double); });
  };
  CHECK(test::contains(reading("x", 3, 2, DType::kF64),
                       "tensor \"x\": 2 elements from element 3 on, of 4"));
  CHECK(test::contains(reading("x", -1, 2, DType::kF64), "2 elements from element -1 on, of 4"));
  CHECK(test::contains(reading("x", 0, 1, DType::kI64), "cannot convert F64 to i64"));
  CHECK(test::contains(reading("b", 0, 1, DType::kF32), "dtype U8 cannot be read"));
  CHECK(test::contains(reading("y", 0, 1, DType::kF32), "m.safetensors: no tensor \"y\""));
}

// All pages of the file but those that an element of the range lies in are taken away: reading one
// of them would end the program.
TEST_CASE("reading a range touches no byte outside it") {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  constexpr size_t kPages = 12;
  const auto elements = static_cast<int64_t>(kPages * page / 4);
  std::string header = fmt::format(
      R"({{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", elements, 4 * elements);
  header.append(page - 8 - header.size(), ' ');  // the data begin with a page
  const std::string bytes = file_bytes(header, std::string(kPages * page, '\x3f'));
  auto* const memory = static_cast<char*>(
      ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  REQUIRE(memory != MAP_FAILED);
  std::copy(bytes.begin(), bytes.end(), memory);
  const auto file = SafetensorsFile::view({memory, bytes.size()}, "w.safetensors");
  constexpr int kRanks = 5;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    const int64_t first = elements * rank / kRanks, end = elements * (rank + 1) / kRanks;
    REQUIRE(::mprotect(memory, bytes.size(), PROT_NONE) == 0);
    const size_t from = page + static_cast<size_t>(4 * first) / page * page;
    const size_t to = page + (static_cast<size_t>(4 * end) + page - 1) / page * page;
    REQUIRE(::mprotect(memory + from, to - from, PROT_READ) == 0);
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
      std::vector<double> out(static_cast<size_t>(end - first));
      file.read_elements("w", first, end - first, dtype, out.data());
      CHECK(out[0] != 0);
    }
  }
  ::munmap(memory, bytes.size());
}

TEST_CASE("integers convert when they fit") {
  test::TempFolder folder;
  const int64_t values[3] = {-100, 2147483647, 2147483648};
  SafetensorsWriter writer(folder / "m.safetensors", {{"x", DType::kI64, {3}}});
  writer.write("x", values, sizeof values);
  writer.finish();
  const auto file = SafetensorsFile::open(folder / "m.safetensors");
  int32_t narrow[3] = {};
  file.read_elements("x", 0, 2, DType::kI32, narrow);
  CHECK(narrow[0] == -100);
  CHECK(narrow[1] == 2147483647);
  CHECK(test::contains(test::error_of([&] { file.read_elements("x", 0, 3, DType::kI32, narrow); }),
                       "a value does not fit into 32 bits"));
}

TEST_CASE("the writer's layout, in pieces, wider dtypes first") {
  test::TempFolder folder;
  const auto path = folder / "m.safetensors";
  SafetensorsWriter writer(path, {{"h", DType::kBF16, {3}},
                                  {"b", DType::kF32, {2, 1}},
                                  {"empty", DType::kF32, {0}},
                                  {"a\"\n", DType::kF32, {}}});
  CHECK(test::contains(test::error_of([&] { writer.write("x", "hh", 2); }),
                       "data for \"x\", which the header does not have"));
  writer.write("b", "bbb", 3);
  writer.write("a\"\n", "aaaa", 4);
  writer.write("b", "bbbbb", 5);
  CHECK(test::contains(test::error_of([&] { writer.finish(); }), "\"h\": 0 of 6 bytes written"));
  CHECK(test::contains(test::error_of([&] { writer.write("h", "hhhhhhh", 7); }),
                       "7 bytes, 6 are missing"));
  writer.write("h", "hhhhhh", 6);
  CHECK(!std::filesystem::exists(path));
  writer.finish();
  const std::string bytes = read_file(path);
  CHECK(bytes.size() % 8 == 2);  // 18 bytes of data after an aligned header
  CHECK(bytes.substr(8, 71) ==
        R"({"__metadata__":{"format":"pt"},"a\"\n":{"dtype":"F32","shape":[],"data)");
  CHECK(bytes.substr(bytes.size() - 18) == "aaaabbbbbbbbhhhhhh");
  CHECK(SafetensorsFile::open(path).metadata().at("format") == "pt");
  CHECK(test::error_of([&] {
          SafetensorsWriter twice(path, {{"x", DType::kF32, {1}}, {"x", DType::kF32, {1}}});
        }) == path.string() + ": tensor name \"x\" is taken");
}

// Rewrites a file tensor by tensor.
std::string rewritten(const SafetensorsFile& file, const std::filesystem::path& to) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, entry] : file.entries())
    specs.push_back({name, *entry.dtype, entry.shape});
  SafetensorsWriter writer(to, specs, file.metadata());
  for (const SafetensorsSpec& spec : specs) {
    const SafetensorsEntry& entry = file.entry(spec.name);
    writer.write(spec.name, entry.data, entry.end - entry.begin);
  }
  writer.finish();
  return read_file(to);
}

TEST_CASE("files of Hugging Face's writer are rewritten byte for byte") {
  const std::filesystem::path shared =
      test::source_folder() / ".." / "shared" / "fixtures" / "models";
  test::TempFolder folder;
  int files = 0;
  for (const auto& root : {test::fixture_path("safetensors"), shared}) {
    if (!std::filesystem::exists(root)) continue;  // a few in the repository, more beside it
    for (const auto& item : std::filesystem::recursive_directory_iterator(root)) {
      if (item.path().extension() != ".safetensors") continue;
      CAPTURE(item.path().string());
      const auto file = SafetensorsFile::open(item.path());
      CHECK(rewritten(file, folder / "copy") == read_file(item.path()));
      ++files;
    }
  }
  CHECK(files >= 2);
}

}  // namespace
}  // namespace fsdp
