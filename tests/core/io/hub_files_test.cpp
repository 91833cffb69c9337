// Folders of a cache, links without a file, pointers of Git LFS.
#include "core/io/hub_files.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

TEST_CASE("hub files: a link without its file is told by who opens it") {
  const test::TempFolder folder;
  folder.write("there", "{}");
  fs::create_symlink("there", folder / "link");
  fs::create_symlink("../blobs/0123", folder / "config.json");
  CHECK(is_named(folder / "link"));
  CHECK(is_named(folder / "config.json"));
  CHECK_FALSE(is_named(folder / "none"));
  CHECK(broken_link(folder / "link") == "");
  CHECK(broken_link(folder / "there") == "");
  CHECK(broken_link(folder / "none") == "");
  const std::string file = (folder / "config.json").string();
  CHECK(test::error_of([&] { read_file(file); }) ==
        file +
            ": a link to ../blobs/0123, which is not there: the download was not complete, or a "
            "copy left it behind");
}

TEST_CASE("hub files: a pointer of Git LFS is no JSON that is malformed") {
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n";
  CHECK(stand_in("{}") == "");
  CHECK(stand_in("") == "");
  CHECK(test::error_of([&] { parse_json(pointer, "tokenizer.json"); }) ==
        "tokenizer.json: a pointer of Git LFS, not the file: git lfs pull brings it");
}

TEST_CASE("hub files: a cache that was copied without its links has their texts as files") {
  const std::string said =
      ": the text ../../blobs/01ab in the place of a link: the hub's cache was copied without its "
      "links; cp -L copies what they name";
  CHECK(test::error_of([&] { parse_json("../../blobs/01ab", "config.json"); }) ==
        "config.json" + said);
  CHECK(test::error_of([&] { SafetensorsFile::view("../../blobs/01ab", "a.safetensors"); }) ==
        "a.safetensors" + said);
}

TEST_CASE("hub files: the snapshot of a folder of the cache, where there is one") {
  const test::TempFolder folder;
  const fs::path cache = folder / "models--org--name", snapshots = cache / "snapshots";
  CHECK(snapshot_in(cache) == cache);  // not there
  CHECK(snapshot_in("") == "");
  fs::create_directories(snapshots);
  CHECK(test::error_of([&] { snapshot_in(cache); }) ==
        cache.string() + ": a folder of the hub's cache without a snapshot: " + snapshots.string() +
            " is empty");
  fs::create_directories(snapshots / "0123");
  CHECK(snapshot_in(cache) == snapshots / "0123");
  CHECK(snapshot_in(snapshots / "0123") == snapshots / "0123");
  fs::create_directories(snapshots / "4567");
  fs::create_directories(cache / "refs");
  const std::string two = cache.string() + ": a folder of the hub's cache with 2 snapshots; give " +
                          "one of them: " + (snapshots / "0123").string() + ", " +
                          (snapshots / "4567").string();
  CHECK(test::error_of([&] { snapshot_in(cache); }) == two);
  folder.write("models--org--name/refs/main", "4567");
  CHECK(test::error_of([&] { snapshot_in(cache); }) ==
        two + "; refs/main says " + (snapshots / "4567").string());
}

TEST_CASE("hub files: snapshots of a folder that is of no cache are its own") {
  const test::TempFolder folder;
  fs::create_directories(folder / "adapter/snapshots/a");
  CHECK(snapshot_in(folder / "adapter") == folder / "adapter");
  fs::create_directories(folder / "adapter/snapshots/b");
  CHECK(snapshot_in(folder / "adapter") == folder / "adapter");
  fs::create_directories(folder / "copied/snapshots/a");
  fs::create_directories(folder / "copied/blobs");
  CHECK(snapshot_in(folder / "copied") == folder / "copied/snapshots/a");
  fs::create_directories(folder / "models--a--b/snapshots/a");
  CHECK(snapshot_in(folder / "models--a--b/") == folder / "models--a--b/snapshots/a");
}

TEST_CASE("hub files: the two lines that fetch a model, for names of the hub's form alone") {
  const std::string lines = how_to_fetch("org/Model-7b.v1");
  CHECK(test::contains(lines,
                       "\n  pip install --upgrade huggingface_hub\n"
                       "  hf download org/Model-7b.v1 --local-dir org/Model-7b.v1 "
                       "--include '*.json' --include '*.safetensors'"));
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 2);
  CHECK(how_to_fetch("org/model/") == how_to_fetch("org/model"));
  for (const char* other : {"", "/", "model", "/org/model", "./model", "../model", "org/", "a/b/c",
                            "a b/c", "folder/tokenizer.json", "~/model"}) {
    CAPTURE(other);
    CHECK(how_to_fetch(other) == "");
  }
}

}  // namespace
}  // namespace fsdp
