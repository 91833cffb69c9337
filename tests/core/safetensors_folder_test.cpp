// The weights of a folder: shards and their index, and folders that hold something else.
// Not here: single files (safetensors_test.cpp).
#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

void write_shard(const std::filesystem::path& path, const std::string& name, float value) {
  SafetensorsWriter writer(path, {{name, DType::kF32, {1}}});
  writer.write(name, &value, 4);
  writer.finish();
}

TEST_CASE("a folder with shards") {
  test::TempFolder folder;
  const auto index = folder / "model.safetensors.index.json";
  const auto opening = [&] {
    return test::error_of([&] { SafetensorsFolder::open(folder.path()); });
  };
  write_shard(folder / "model-00001-of-00002.safetensors", "a", 1);
  write_shard(folder / "model-00002-of-00002.safetensors", "b", 2);
  folder.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":8},"weight_map":{)"
      R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  const auto weights = SafetensorsFolder::open(folder.path());
  CHECK(weights.names() == std::vector<std::string>{"a", "b"});
  CHECK(weights.warnings().empty());
  float value = 0;
  weights.read_elements("b", 0, 1, DType::kF32, &value);
  CHECK(value == 2);
  CHECK(test::error_of([&] { weights.entry("c"); }) ==
        folder.path().string() + ": no tensor \"c\"");

  folder.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":9},"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  CHECK(SafetensorsFolder::open(folder.path()).warnings() ==
        std::vector<std::string>{index.string() + ": total_size is 9, the tensors have 4 bytes"});
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"b":"model-00001-of-00002.safetensors"}})");
  CHECK(opening() == index.string() + ": tensor \"b\" is not in model-00001-of-00002.safetensors");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  CHECK(opening() == index.string() + ": shard gone.safetensors is missing");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"../x.safetensors"}})");
  CHECK(test::contains(opening(), "expected a file name, got \"../x.safetensors\""));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":1}})");
  CHECK(test::contains(opening(), "a: expected a file name, got number"));
  folder.write("model.safetensors.index.json", "{}");
  CHECK(opening() == index.string() + ": no object \"weight_map\"");
}

TEST_CASE("a folder without readable weights says what is there") {
  test::TempFolder folder;
  const std::string path = folder.path().string();
  const auto opening = [&] { return test::error_of([&] { SafetensorsFolder::open(path); }); };
  CHECK(opening() == path + ": no model.safetensors or model.safetensors.index.json");
  folder.write("pytorch_model.bin", "pickle");
  CHECK(test::contains(opening(), path + ": weights only as .bin (pytorch_model.bin): convert to "
                                         "safetensors"));
  folder.write("adapter_model.safetensors", "");
  CHECK(test::contains(opening(), "(there is adapter_model.safetensors)"));
  CHECK(test::contains(test::error_of([&] { SafetensorsFolder::open(path + "/none"); }),
                       "no such folder"));
}

}  // namespace
}  // namespace fsdp
