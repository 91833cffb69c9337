// Which files a configuration means: beside it or here, folders, patterns, several sources.
#include "tools/train/data_paths.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("data paths: they are looked for here, then beside the configuration") {
  const test::TempFolder folder;
  folder.write("beside.txt", "x");
  const std::filesystem::path config_file = folder / "config.yaml";
  CHECK(resolve_path("beside.txt", config_file) == (folder / "beside.txt").string());
  CHECK(resolve_path("nowhere.txt", config_file) == "nowhere.txt");
  CHECK(resolve_path("/absolute.txt", config_file) == "/absolute.txt");
  CHECK(resolve_path("", config_file) == "");
}

TEST_CASE("data paths: a recipe's files are those beside it, and one of two is named") {
  const test::TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "recipe");
  folder.write("train.txt", "here");
  folder.write("recipe/train.txt", "beside");
  folder.write("only_here.txt", "here");
  std::filesystem::current_path(folder.path());
  const std::filesystem::path file = "recipe/base.yaml";
  const auto find = [&](LookFirst first, const std::string& place) {
    config::TrainConfig config;
    config.data.train = {"train.txt", "*.txt"};
    config.places["data.train"] = place;
    std::vector<std::string> out = find_texts(config, file, first);
    out.insert(out.begin(), config.data.train.begin(), config.data.train.end());
    return out;
  };
  CHECK(resolve_path("train.txt", file, LookFirst::kBeside) == "recipe/train.txt");
  CHECK(resolve_path("train.txt", file) == "train.txt");
  CHECK(resolve_path("only_here.txt", file, LookFirst::kBeside) == "only_here.txt");
  using Strings = std::vector<std::string>;
  CHECK(find(LookFirst::kBeside, "recipe/base.yaml:1") ==
        Strings{"recipe/train.txt", "recipe/train.txt",
                "data.train: train.txt: the one next to recipe/base.yaml is read, not the one in "
                "the current folder"});
  const Strings here = {"train.txt", "only_here.txt", "train.txt",
                        "data.train: train.txt: the one in the current folder is read, not the "
                        "one next to recipe/base.yaml"};
  CHECK(find(LookFirst::kHere, "recipe/base.yaml:1") == here);
  CHECK(find(LookFirst::kBeside, "--set data.train=...") == here);
  std::filesystem::current_path(before);
}

struct Paths {
  test::TempFolder folder;
  config::TrainConfig config;

  Paths() { std::filesystem::create_directory(folder / "texts"); }
  std::string name(const char* file) { return (folder / file).string(); }
  std::vector<std::string> find() { return find_texts(config, folder / "config.yaml"); }
};

TEST_CASE_FIXTURE(Paths, "data paths: folders and patterns become files, here or beside the file") {
  folder.write("texts/b.jsonl", "{\"text\": \"bb\"}\n");
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("texts/c.txt", "cc");
  config.data.train = {"texts/*.jsonl", name("texts/c.txt"), "nowhere.txt"};
  config.data.validation = {"texts"};
  find();
  CHECK(config.data.train == std::vector<std::string>{name("texts/a.jsonl"), name("texts/b.jsonl"),
                                                      name("texts/c.txt"), "nowhere.txt"});
  CHECK(config.data.validation == std::vector<std::string>{name("texts/a.jsonl"),
                                                           name("texts/b.jsonl"),
                                                           name("texts/c.txt")});
  const auto before = config.data.train;
  find();
  CHECK(config.data.train == before);
}

TEST_CASE_FIXTURE(Paths, "data paths: files of a folder that are left out are noted") {
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("texts/b.jsonl.gz", "\x1f\x8b\x08");
  folder.write("texts/README.md", "aa");
  config.data.train = {"texts"};
  config.data.validation = {"texts/a.jsonl"};
  const auto note = [&](const char* what) {
    return fmt::format("data.train: {}: {} {}: expected a text of UTF-8, got a file compressed by ",
                       name("texts"), what, name("texts/b.jsonl.gz"));
  };
  std::vector<std::string> notes = find();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with(note("1 file of another kind is left out, that is")));
  CHECK(find().empty());  // files, now
  folder.write("texts/c.parquet", "PAR1 PAR1");
  config.data.train = {"texts"};
  notes = find();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with(note("2 files of other kinds are left out, the first is")));
}

TEST_CASE_FIXTURE(Paths, "data paths: an included file's names are looked for beside that file") {
  folder.write("texts/a.txt", "aa");
  config.data.train = {"a.txt"};
  config.places["data.train"] = name("texts/base.yaml") + ":1";
  find();
  CHECK(config.data.train == std::vector<std::string>{name("texts/a.txt")});
  config.data.train = {"a.txt"};
  config.places["data.train"] = "--set data.train=a.txt";
  find();
  CHECK(config.data.train == std::vector<std::string>{"a.txt"});
}

TEST_CASE_FIXTURE(Paths, "data paths: a cache with two snapshots is told by its key and place") {
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder / "models--org--name/snapshots" / name);
  }
  config.model.path = name("models--org--name");
  config.places["model.path"] = "config.yaml:3";
  const std::string said = test::error_of([&] { resolve_paths(config, folder / "config.yaml"); });
  CAPTURE(said);
  CHECK(test::contains(said, "model.path: " + config.model.path + ": a folder of the hub's cache"));
  CHECK(test::contains(said, "config.yaml:3"));
}

TEST_CASE_FIXTURE(Paths, "data paths: each source has its own files") {
  folder.write("texts/b.jsonl", "{\"text\": \"bb\"}\n");
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("c.txt", "cc");
  config.data.sources = {{.path = {"texts/*.jsonl", "nowhere.txt"}, .weight = 2},
                         {.path = {"c.txt"}}};
  find();
  CHECK(config.data.sources[0].path ==
        std::vector<std::string>{name("texts/a.jsonl"), name("texts/b.jsonl"), "nowhere.txt"});
  CHECK(config.data.sources[0].weight == 2);
  CHECK(config.data.sources[1].path == std::vector<std::string>{name("c.txt")});
  config.data.sources = {{.path = {"c.txt"}}};
  config.places["data.sources"] = "--set data.sources=[{path: c.txt}]";
  find();
  CHECK(config.data.sources[0].path == std::vector<std::string>{name("c.txt")});
  config.data.sources = {{.path = {"**/c.txt"}}};
  config.places["data.sources"] = name("config.yaml") + ":7";
  CHECK(test::error_of([&] {
          find();
        }).starts_with(name("config.yaml") + ":7: data.sources: **/c.txt: expected a pattern"));
}

}  // namespace
}  // namespace fsdp::tools
