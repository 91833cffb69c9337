// The file at an address, and the end of a process whose mapped file is cut.
#include "tools/launch/bus_error.h"

#include <csignal>
#include <filesystem>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("bus error: the file that is mapped at an address") {
  const std::string maps =
      "55d0-55e0 r-xp 00000000 08:01 42   /usr/bin/fsdp\n"
      "7f0000-7f0800 r--s 00000000 08:01 43   /data/my tokens.bin\n"
      "7fff0000-7fff8000 rw-p 00000000 00:00 0   [stack]\n";
  CHECK(mapped_file(maps, 0x55d0) == "/usr/bin/fsdp");
  CHECK(mapped_file(maps, 0x7f07ff) == "/data/my tokens.bin");
  CHECK(mapped_file(maps, 0x7f0800).empty());
  CHECK(mapped_file(maps, 0x7fff0001).empty());
  CHECK(mapped_file("", 1).empty());
}

// In a process of its own; returns its status and what it said.
std::pair<int, std::string> end_of(const std::filesystem::path& file, bool mapped,
                                   const std::filesystem::path& errors) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(::open(errors.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
    name_bus_errors();
    if (mapped) {
      const MappedFile text(file);
      if (::truncate(file.c_str(), 0) == 0) {
        ::_exit(static_cast<int>(text.data()[5000]) == 'x' ? 3 : 4);  // does not get there
      }
    }
    ::raise(SIGBUS);  // of no file
    ::_exit(5);
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  return {status, read_file(errors)};
}

TEST_CASE("bus error: a mapped file that is cut is named; any other bus error is what it was") {
  const test::TempFolder folder;
  const std::filesystem::path file = folder / "cut.bin";
  write_file_atomically(file, std::string(10000, 'x'));
  const auto [cut, said] = end_of(file, true, folder / "cut.txt");
  CHECK(WIFEXITED(cut));
  CHECK(WEXITSTATUS(cut) == 1);
  CHECK(said == "fsdp: " + file.string() +
                    ": cannot be read any more: the file was cut while it was in use, or its disk "
                    "failed\n");
  const auto [raised, nothing] = end_of(file, false, folder / "raised.txt");
  CHECK(WIFSIGNALED(raised));
  CHECK(nothing.empty());
}

}  // namespace
}  // namespace fsdp::tools
