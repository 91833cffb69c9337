// The weights of a folder: several files and their index, shards of ranks, and folders that hold
// something else.
// Not here: single files (safetensors_test.cpp).
#include <algorithm>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/shard_index.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using Values = std::vector<float>;

void write_tensors(const std::filesystem::path& path,
                   const std::map<std::string, Values>& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, values] : tensors) {
    specs.push_back({name, DType::kF32, {static_cast<int64_t>(values.size())}});
  }
  SafetensorsWriter writer(path, specs);
  for (const auto& [name, values] : tensors) writer.write(name, values.data(), 4 * values.size());
  writer.finish();
}

TEST_CASE("a folder with several files") {
  test::TempFolder folder;
  const auto index = folder / "model.safetensors.index.json";
  const auto opening = [&] {
    return test::error_of([&] { SafetensorsFolder::open(folder.path()); });
  };
  write_tensors(folder / "model-00001-of-00002.safetensors", {{"a", {1}}});
  write_tensors(folder / "model-00002-of-00002.safetensors", {{"b", {2}}});
  folder.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":8},"weight_map":{)"
      R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  const auto weights = SafetensorsFolder::open(folder.path());
  CHECK(weights.tensors().size() == 2);
  CHECK(weights.warnings().empty());
  float value = 0;
  weights.read_elements("b", 0, 1, DType::kF32, &value);
  CHECK(value == 2);
  CHECK(test::error_of([&] { weights.tensor("c"); }) ==
        folder.path().string() + ": no tensor \"c\"");

  folder.write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":9},"weight_map":{"a":"model-00001-of-00002.safetensors"}})");
  CHECK(SafetensorsFolder::open(folder.path()).warnings() ==
        std::vector<std::string>{index.string() + ": total_size is 9, the tensors have 4 bytes"});
  write_tensors(folder / "model-00001-of-00002.safetensors", {{"a", {1}}, {"extra", {2}}});
  CHECK(SafetensorsFolder::open(folder.path()).warnings()[0] ==
        index.string() +
            ": tensor \"extra\" of model-00001-of-00002.safetensors is not in its weight_map");
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"b":"model-00001-of-00002.safetensors"}})");
  CHECK(opening() == index.string() + ": tensor \"b\" is not in model-00001-of-00002.safetensors");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"gone.safetensors"}})");
  CHECK(opening() == index.string() + ": gone.safetensors is missing");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"../x.safetensors"}})");
  CHECK(test::contains(opening(), "expected a file name, got \"../x.safetensors\""));
  for (const char* outside : {"/x", "a/../../x", "a/", ""}) {
    folder.write("model.safetensors.index.json",
                 std::string(R"({"weight_map":{"a":")") + outside + "\"}}");
    CHECK(test::contains(opening(), "a: expected a file name, got"));
  }
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":1}})");
  CHECK(test::contains(opening(), "a: expected a file name, got number"));
  folder.write("model.safetensors.index.json", "{\n\"weight_map\": {\"a\": \"model-0");
  CHECK(test::contains(opening(), index.string() + ":2: malformed JSON"));
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"x","a":"y"}})");
  CHECK(test::contains(opening(), "duplicate key \"a\""));
  folder.write("model.safetensors.index.json", "{}");
  CHECK(opening() == index.string() + ": no object \"weight_map\"");
}

TEST_CASE("a folder that is not as its index says: all of it at once") {
  test::TempFolder folder;
  const auto index = (folder / "model.safetensors.index.json").string();
  const auto opening = [&] {
    return test::error_of([&] { SafetensorsFolder::open(folder.path()); });
  };
  write_tensors(folder / "one", {{"a", {1}}});
  write_tensors(folder / "two", {{"b", {2}}});
  folder.write("cut", "123");
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"a":"one","c":"two","d":"gone","e":"lost","f":"gone","g":"one",
                   "h":"cut","i":"cut"}})");
  const std::string cut = test::error_of([&] { SafetensorsFile::open(folder / "cut"); });
  REQUIRE(test::contains(cut, "cut: "));
  CHECK(opening() == index + ":\n  tensor \"c\" is not in two\n  gone is missing\n" +
                         "  lost is missing\n  tensor \"g\" is not in one\n  " + cut);
}

TEST_CASE("a folder without readable weights says what is there") {
  test::TempFolder folder;
  const std::string path = folder.path().string();
  const auto opening = [&] { return test::error_of([&] { SafetensorsFolder::open(path); }); };
  CHECK(opening() == path + ": no model.safetensors or model.safetensors.index.json");
  folder.write("training_args.bin", "settings");
  CHECK(opening() == path + ": no model.safetensors or model.safetensors.index.json");
  folder.write("model.gguf", "GGUF\3");
  CHECK(test::contains(opening(), path + "/model.gguf: expected a file of safetensors, got weights "
                                         "of llama.cpp (GGUF); convert it: python3"));
  folder.write("pytorch_model.bin", "<!DOCTYPE html><html>");
  CHECK(test::contains(opening(), path + "/pytorch_model.bin: expected a file of safetensors, got "
                                         "a web page (HTML); fetch the file again: hf download"));
  folder.write("pytorch_model.bin", "");
  CHECK(test::contains(opening(),
                       "/pytorch_model.bin: expected a file of safetensors, got an "
                       "empty file; fetch"));
  folder.write("pytorch_model.bin", "\x80\x02\x8a\nl\xfc");
  const std::string only_pickled = opening();
  CHECK(
      test::contains(only_pickled, path + ": weights only as pickled tensors (pytorch_model.bin)"));
  CHECK(test::contains(only_pickled, "convert to safetensors, in Python: AutoModelForCausalLM"));
  folder.write("a.pt", "\x80\x02}q");
  CHECK(test::contains(opening(), "weights only as pickled tensors (a.pt)"));
  folder.write("adapter_model.safetensors", "");
  CHECK(test::contains(opening(), "(there is adapter_model.safetensors)"));
  CHECK(test::contains(test::error_of([&] { SafetensorsFolder::open(path + "/none"); }),
                       "no such folder"));
}

TEST_CASE("the shards of ranks: any range across any number of pieces") {
  test::TempFolder folder;
  write_tensors(folder / "s0", {{"a", {0, 1, 2}}, {"b", {10}}});
  write_tensors(folder / "s1", {{"a", {3}}});
  write_tensors(folder / "s2", {{"a", {4, 5}}, {"b", {11, 12}}});
  ShardIndex index = {.files = {"s0", "s1", "s2"},
                      .tensors = {{"a", {"F32", {2, 3}, {{0, 0, 3}, {1, 3, 1}, {2, 4, 2}}}},
                                  {"b", {"F32", {3}, {{0, 0, 1}, {2, 1, 2}}}}}};
  const auto opened = [&] {
    write_shard_index(folder / kShardIndexName, index);
    return SafetensorsFolder::open(folder.path());
  };
  const SafetensorsFolder weights = opened();
  CHECK(weights.tensor("a").shape == std::vector<int64_t>{2, 3});
  CHECK(weights.tensor("a").dtype == DType::kF32);
  for (int64_t first = 0; first <= 6; ++first) {
    for (int64_t count = 0; first + count <= 6; ++count) {
      std::vector<double> values(static_cast<size_t>(count) + 1, -1);
      weights.read_elements("a", first, count, DType::kF64, values.data());
      for (int64_t i = 0; i < count; ++i) {
        CHECK(values[static_cast<size_t>(i)] == static_cast<double>(first + i));
      }
      CHECK(values.back() == -1);
    }
  }
  float value = 0;
  CHECK(test::error_of([&] { weights.read_elements("a", 5, 2, DType::kF32, &value); }) ==
        folder.path().string() + ": tensor \"a\": elements 5 to 7 of 6");

  const auto error = [&] { return test::error_of([&] { opened(); }); };
  const ShardIndex good = index;
  index.tensors["c"] = {"F32", {1}, {{1, 0, 1}}};
  const std::string where = (folder / kShardIndexName).string();
  CHECK(error() == where + ": s1: tensor \"c\" is missing");
  index = good;
  index.tensors["a"].dtype = "BF16";
  CHECK(error() == where +
                       ":\n  s0: tensor \"a\": expected 3 elements of BF16, got 3 of F32"
                       "\n  s1: tensor \"a\": expected 1 element of BF16, got 1 of F32"
                       "\n  s2: tensor \"a\": expected 2 elements of BF16, got 2 of F32");
  index = good;
  index.tensors["b"] = {"F32", {4}, {{0, 0, 2}, {2, 2, 2}}};
  CHECK(error() == where + ": s0: tensor \"b\": expected 2 elements of F32, got 1 of F32");
  index = good;
  index.files[1] = "gone";
  CHECK(error() == where + ": gone is missing");
  index.files[0] = "lost";
  index.tensors["c"] = {"F32", {1}, {{2, 0, 1}}};
  CHECK(error() ==
        where + ":\n  lost is missing\n  gone is missing\n  s2: tensor \"c\" is missing");
}

TEST_CASE("files of an index in folders below, and a link without its file") {
  test::TempFolder folder;
  std::filesystem::create_directory(folder / "below");
  write_tensors(folder / "below/one", {{"a", {1}}});
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"below/one"}})");
  CHECK(SafetensorsFolder::open(folder.path()).contains("a"));
  std::filesystem::remove(folder / "below/one");
  std::filesystem::create_symlink("../blobs/1", folder / "below/one");
  const auto opening = [&] {
    return test::error_of([&] { SafetensorsFolder::open(folder.path()); });
  };
  CHECK(test::contains(opening(), "below/one: a link to ../blobs/1, which is not there"));
  std::filesystem::create_symlink("../../blobs/2", folder / "model.safetensors");
  CHECK(
      test::contains(opening(), "model.safetensors: a link to ../../blobs/2, which is not there"));
}

TEST_CASE("of many tensors that an index lacks or misplaces the rest is a number") {
  test::TempFolder folder;
  std::map<std::string, Values> tensors;
  std::string listed;
  for (char c = 'a'; c < 'a' + 14; ++c) {
    tensors[std::string(1, c)] = {1};
    listed += fmt::format("{}\"{}x\":\"one\"", listed.empty() ? "" : ",", c);
  }
  write_tensors(folder / "one", tensors);
  folder.write("model.safetensors.index.json", R"({"weight_map":{"a":"one"}})");
  const std::vector<std::string> warnings = SafetensorsFolder::open(folder.path()).warnings();
  CHECK(warnings.size() == 11);
  CHECK(warnings.back().ends_with("index.json: 3 more are not in its weight_map"));
  folder.write("model.safetensors.index.json", "{\"weight_map\":{" + listed + "}}");
  const std::string all = test::error_of([&] { SafetensorsFolder::open(folder.path()); });
  CHECK(std::count(all.begin(), all.end(), '\n') == 11);
  CHECK(all.ends_with("\n  4 more"));
}

}  // namespace
}  // namespace fsdp
