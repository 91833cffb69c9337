// The index of a sharded checkpoint: written, read back, and refused by name when it is not whole.
// Not here: reading the tensors it lists (safetensors_folder_test.cpp).
#include "core/io/shard_index.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("shard index: what is written is read back") {
  const test::TempFolder folder;
  const ShardIndex index = {
      .files = {"shard-00001-of-00002.safetensors", "shard-00002-of-00002.safetensors"},
      .tensors = {{"a.weight", {"BF16", {3, 5}, {{0, 0, 7}, {1, 7, 8}}}},
                  {"scalar", {"F32", {}, {{1, 0, 1}}}},
                  {"empty", {"F32", {0, 4}, {}}}}};
  write_shard_index(folder / "i.json", index);
  const ShardIndex again = read_shard_index(folder / "i.json");
  CHECK(again.files == index.files);
  REQUIRE(again.tensors.size() == 3);
  const ShardIndex::Entry& a = again.tensors.at("a.weight");
  CHECK(a.dtype == "BF16");
  CHECK(a.shape == std::vector<int64_t>{3, 5});
  REQUIRE(a.pieces.size() == 2);
  CHECK(a.pieces[1].file == 1);
  CHECK(a.pieces[1].first == 7);
  CHECK(a.pieces[1].count == 8);
  CHECK(again.tensors.at("scalar").shape.empty());
  CHECK(again.tensors.at("empty").pieces.empty());
}

// An index with this list of files and this entry for the tensor "t".
std::string index_text(const std::string& files, const std::string& entry) {
  return R"({"format":"fsdp.cpp shards","version":1,"files":)" + files + R"(,"tensors":{"t":)" +
         entry + "}}";
}

TEST_CASE("shard index: whatever is wrong is named with its place") {
  const test::TempFolder folder;
  const auto refused = [&](const std::string& text) {
    const auto path = folder.write("i.json", text);
    const std::string error = test::error_of([&] { read_shard_index(path); });
    REQUIRE(error.rfind(path.string(), 0) == 0);
    return error.substr(path.string().size());
  };
  const auto entry = [&](const std::string& shape, const std::string& pieces) {
    return refused(index_text(
        R"(["x","y"])", R"({"dtype":"F32","shape":)" + shape + R"(,"pieces":)" + pieces + "}"));
  };
  CHECK(test::contains(refused("{\"format\": \n\"fsdp"), ":2: malformed JSON"));
  CHECK(refused("{}") == ": no \"format\"");
  CHECK(refused("[]") == ": no \"format\"");
  CHECK(refused(R"({"format":"other"})") ==
        ": format: expected \"fsdp.cpp shards\", got \"other\"");
  CHECK(refused(R"({"format":"fsdp.cpp shards","version":2})") ==
        ": version: this program reads 1, got 2");
  CHECK(refused(index_text("3", "{}")) == ": files: expected a list, got number");
  CHECK(refused(index_text(R"(["../x"])", "{}")) == ": files: expected a file name, got \"../x\"");
  CHECK(refused(index_text("[]", "{}")) == ": t: no \"dtype\"");
  CHECK(refused(index_text("[]", R"({"dtype":1})")) == ": t: dtype: expected a text, got 1");
  CHECK(entry("7", "[]") == ": t: shape: expected a list, got number");
  CHECK(entry("[-1]", "[]") == ": t: shape: expected an integer from 0 to 2^63 - 1, got -1");
  CHECK(entry("[4294967296,4294967296]", "[]") == ": t: shape: the number of elements overflows");
  CHECK(entry("[4]", "[[0,0]]") ==
        ": t: pieces: expected [file, first element, elements], got [0,0]");
  CHECK(entry("[4]", "[[2,0,4]]") == ": t: pieces: file 2 of 2");
  CHECK(entry("[4]", "[[0,0,3]]") == ": t: pieces: 3 of 4 elements");
  CHECK(entry("[4]", "[[0,1,3]]") == ": t: pieces: elements 1 to 4 of 4 come after 0");
  CHECK(entry("[4]", "[[0,0,2],[1,3,1]]") == ": t: pieces: elements 3 to 4 of 4 come after 2");
  CHECK(entry("[4]", "[[0,0,3],[1,2,2]]") == ": t: pieces: elements 2 to 4 of 4 come after 3");
  CHECK(entry("[4]", "[[0,0,9223372036854775807]]") ==
        ": t: pieces: elements 0 to 9223372036854775807 of 4 come after 0");
}

}  // namespace
}  // namespace fsdp
