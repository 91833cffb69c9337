// A pipe that is read as often as a file.
#include "core/io/held_stream.h"

#include <thread>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

TEST_CASE("held stream: a pipe of the process keeps its path") {
  int ends[2] = {};
  REQUIRE(::pipe(ends) == 0);
  const std::string text(200'000, 'x');  // more than a pipe holds
  std::thread writer([&] {
    CHECK(::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::close(ends[1]);
  });
  const std::string path = fmt::format("/dev/fd/{}", ends[0]);
  CHECK(is_name_of_stream(path));
  CHECK(held_stream(path) == path);
  writer.join();
  CHECK(read_file(path) == text);
  CHECK(read_file(path) == text);
  CHECK(MappedFile(path).text() == text);
  CHECK(held_stream(path) == path);
  ::close(ends[0]);
}

TEST_CASE("held stream: what is no stream of the process is left alone") {
  const test::TempFolder folder;
  const std::string path = folder / "pipe";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const std::string file = folder.write("file", "x");
  for (const std::string& other :
       {file, path, std::string(folder / "none"), std::string("/dev/null"),
        std::string("/dev/fd/x"), std::string("/dev/fd/99999")}) {
    CHECK(held_stream(other) == other);
  }
  CHECK(!is_name_of_stream(file));
}

}  // namespace
}  // namespace fsdp
