// What is kept of a model's folder beside weights, configuration and tokenizer.
#include "tools/model_folders/companion_files.h"

#include <set>
#include <string>

#include <doctest/doctest.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& item : fs::directory_iterator(folder)) out.insert(item.path().filename());
  return out;
}

TEST_CASE("companion files: licence, card and the code that auto_map names") {
  const test::TempFolder from;
  for (const char* name : {"LICENSE", "license.txt", "NOTICE", "USE_POLICY.md", "README.md",
                           "modeling_x.py", "optimizer.pt", "model.safetensors", "notes.txt"}) {
    from.write(name, name);
  }
  fs::create_symlink("../blobs/0", from / "LICENSE.lost");
  from.write("config.json", "{}");
  {
    const test::TempFolder to;
    to.write("README.md", "its own");
    copy_companion_files(from.path(), to.path());
    CHECK(names_in(to.path()) ==
          std::set<std::string>{"LICENSE", "license.txt", "NOTICE", "USE_POLICY.md", "README.md"});
    CHECK(read_file(to / "README.md") == "its own");
  }
  for (const char* file : {"config.json", "tokenizer_config.json"}) {
    const test::TempFolder to;
    from.write("config.json", "{}");
    from.write(file, R"({"auto_map": {"AutoConfig": "modeling_x.XConfig"}})");
    copy_companion_files(from.path(), to.path());
    CHECK(names_in(to.path()).contains("modeling_x.py"));
  }
  const test::TempFolder to;
  copy_companion_files("/no/such/folder", to.path());
  CHECK(names_in(to.path()).empty());
}

}  // namespace
}  // namespace fsdp::tools
