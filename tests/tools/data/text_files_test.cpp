// Files, folders and patterns.
#include "tools/data/text_files.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using Names = std::vector<std::string>;

struct Fixture {
  test::TempFolder folder;
  Fixture() {
    for (const char* inside : {"texts", "texts/deeper.txt", "texts/empty"}) {
      std::filesystem::create_directory(folder / inside);
    }
    for (const char* name :
         {"texts/b.jsonl", "texts/B.txt", "texts/a10.json", "texts/a9.json", "texts/.hidden.txt",
          "texts/README.md", "texts/c.txt.gz", "texts/deeper.txt/d.txt", "x[1].txt", "x1.txt"}) {
      folder.write(name, "text");
    }
  }
  // The names without the folder's.
  Names named(const std::string& name) {
    Names out;
    for (const std::string& file : files_named((folder / name).string())) {
      REQUIRE(file.starts_with(folder.path().string() + "/"));
      out.push_back(file.substr(folder.path().string().size() + 1));
    }
    return out;
  }
};

TEST_CASE_FIXTURE(Fixture, "a file is itself, also where its name looks like a pattern") {
  CHECK(named("texts/README.md") == Names{"texts/README.md"});
  CHECK(named("x[1].txt") == Names{"x[1].txt"});
  CHECK(named("none.txt").empty());
  CHECK(files_named("").empty());
  CHECK(files_named("/dev/null") == Names{"/dev/null"});  // refused when it is read
}

TEST_CASE_FIXTURE(Fixture, "a folder's texts, sorted by bytes") {
  const Names texts{"texts/B.txt", "texts/a10.json", "texts/a9.json", "texts/b.jsonl"};
  CHECK(named("texts") == texts);
  CHECK(named("texts/empty").empty());
  std::filesystem::create_symlink("../x1.txt", folder / "texts/z.txt");
  CHECK(named("texts").back() == "texts/z.txt");
}

TEST_CASE_FIXTURE(Fixture, "a folder's rows and tables, without what describes the folder") {
  for (const char* name : {"state.json", "dataset_info.json", "dataset_dict.json", "a.NDJSON",
                           "b.csv", "c.Tsv", "d.jsonlines", "data-00000-of-00001.arrow"}) {
    folder.write(std::string("texts/empty/") + name, "");
  }
  CHECK(named("texts/empty") == Names{"texts/empty/a.NDJSON", "texts/empty/b.csv",
                                      "texts/empty/c.Tsv", "texts/empty/d.jsonlines"});
}

TEST_CASE_FIXTURE(Fixture, "what else of a folder would be data") {
  CHECK(others_in((folder / "texts").string()).count == 0);
  CHECK(others_in((folder / "texts").string()).first == "");
  const std::string gzip = "\x1f\x8b\x08", parquet = "PAR1 PAR1";
  folder.write("texts/empty/b.jsonl.gz", gzip);
  folder.write("texts/empty/c.parquet", parquet);
  folder.write("texts/empty/.d.parquet", parquet);
  std::filesystem::create_directory(folder / "texts/empty/e.parquet");
  std::filesystem::create_symlink("nowhere", folder / "texts/empty/a.parquet");
  const std::string name = (folder / "texts/empty").string();
  const OtherFiles others = others_in(name);
  CHECK(others.count == 2);
  CHECK(others.first == name +
                            "/b.jsonl.gz: expected a text of UTF-8, got a file compressed by gzip; "
                            "convert it: gzip -dk " +
                            name + "/b.jsonl.gz");
  folder.write("texts/empty/b.jsonl", "");  // as the command makes it
  CHECK(others_in(name).first.starts_with(name + "/c.parquet: "));
  folder.write("texts/empty/c.jsonl", "");
  CHECK(others_in(name).count == 0);
  CHECK(test::contains(test::error_of([&] { others_in(name + "/none"); }),
                       "/none: cannot read the folder: "));
}

TEST_CASE_FIXTURE(Fixture, "what datasets' save_to_disk wrote") {
  for (const char* name : {"one", "all", "all/train"}) {
    std::filesystem::create_directory(folder / name);
  }
  folder.write("one/state.json", "{}");
  folder.write("one/data-00000-of-00001.arrow", "\xff\xff\xff\xff");
  folder.write("all/dataset_dict.json", "{}");
  folder.write("all/train/state.json", "{}");
  const std::string name = folder.path().string();
  const char* const command =
      "python3 -c 'import sys, datasets as d; d.load_from_disk(sys.argv[1]).to_json(sys.argv[2])' ";
  CHECK(
      others_in(name + "/one/").first ==
      fmt::format("{0}/one/: a data set that datasets' save_to_disk wrote; convert it: {1}{0}/one "
                  "{0}/one.jsonl",
                  name, command));
  CHECK(others_in(name + "/one").count == 1);
  CHECK(others_in(name + "/all").first ==
        fmt::format("{0}/all: a data set with train that datasets' save_to_disk wrote; convert it: "
                    "{1}{0}/all/train {0}/all/train.jsonl",
                    name, command));
}

TEST_CASE_FIXTURE(Fixture, "a pattern's files, no folders") {
  CHECK(named("texts/a*") == Names{"texts/a10.json", "texts/a9.json"});
  CHECK(named("texts/*.txt") == Names{"texts/B.txt"});
  CHECK(named("*/*/?.txt") == Names{"texts/deeper.txt/d.txt"});
  CHECK(named("texts/[Bb].*") == Names{"texts/B.txt", "texts/b.jsonl"});
  CHECK(named("texts/.h*") == Names{"texts/.hidden.txt"});
  CHECK(named("texts/*.csv").empty());
  CHECK(test::contains(test::error_of([&] { named("**/d.txt"); }),
                       "**/d.txt: expected a pattern without **"));
  CHECK(is_pattern("a?"));
  CHECK(!is_pattern("a.txt"));
}

}  // namespace
}  // namespace fsdp::data
