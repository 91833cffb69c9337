// Atomic writing, mapping, and errors that name the file.
#include "core/io/file.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <vector>

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

size_t files_in(const std::filesystem::path& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& item : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST_CASE("a file appears only at commit and leaves no temporary") {
  test::TempFolder folder;
  {
    AtomicFile file(folder / "x");
    file.write("half ");
    CHECK(!std::filesystem::exists(folder / "x"));
    file.write("and half");
    file.commit();
  }
  CHECK(read_file(folder / "x") == "half and half");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("an abandoned write keeps the old file") {
  test::TempFolder folder;
  write_file_atomically(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new, but then something throws");
  }
  CHECK(read_file(folder / "x") == "old");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a temporary left by a crash is in nobody's way") {
  test::TempFolder folder;
  folder.write("x." + std::to_string(::getpid()) + "-0.tmp", "left over");
  write_file_atomically(folder / "x", "new");
  CHECK(read_file(folder / "x") == "new");
}

TEST_CASE("a mapping keeps the old contents when the file is replaced") {
  test::TempFolder folder;
  write_file_atomically(folder / "x", "old");
  const MappedFile mapped(folder / "x");
  write_file_atomically(folder / "x", "newer");
  CHECK(mapped.text() == "old");
  CHECK(MappedFile(folder / "x").text() == "newer");
}

TEST_CASE("an empty file maps to nothing") {
  test::TempFolder folder;
  const MappedFile mapped(folder.write("empty", ""));
  CHECK(mapped.size() == 0);
  CHECK(mapped.text().empty());
}

TEST_CASE("errors name the file and the reason") {
  test::TempFolder folder;
  const std::string missing = (folder / "missing").string();
  CHECK(test::error_of([&] { read_file(missing); }) ==
        missing + ": cannot open: No such file or directory");
  CHECK(test::error_of([&] { MappedFile mapped(missing); }) ==
        missing + ": cannot open: No such file or directory");
  CHECK(test::error_of([&] { read_file(folder.path()); }) ==
        folder.path().string() + ": expected a file, got a folder");
  const std::string inside = (folder / "no_folder/x").string();
  CHECK(test::error_of([&] { write_file_atomically(inside, ""); }) ==
        inside + ": cannot create: No such file or directory");
}

// Opening a FIFO would wait for somebody who writes into it.
TEST_CASE("what is no file is refused by what it is") {
  test::TempFolder folder;
  const std::string fifo = (folder / "fifo").string(), socket = (folder / "socket").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(socket.copy(address.sun_path, sizeof address.sun_path - 1) == socket.size());
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  for (const auto& [path, what] : {std::pair<std::string, std::string>{fifo, "a FIFO (named pipe)"},
                                   {socket, "a socket"},
                                   {"/dev/null", "a device"}}) {
    const std::string expected = path + ": expected a file, got " + what;
    CHECK(test::error_of([&] { read_file(path); }) == expected);
    CHECK(test::error_of([&] { MappedFile mapped(path); }) == expected);
  }
  ::close(descriptor);
}

// A full disk, played by the limit on file sizes of this process.
TEST_CASE("a write that fails midway leaves the old file and no temporary") {
  test::TempFolder folder;
  write_file_atomically(folder / "x", "old");
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{4096, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error =
      test::error_of([&] { write_file_atomically(folder / "x", std::string(10'000, 'n')); });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  CHECK(error == (folder / "x").string() + ": cannot write: File too large");
  CHECK(read_file(folder / "x") == "old");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a folder appears when it is complete, and not at all otherwise") {
  const test::TempFolder folder;
  const std::filesystem::path wanted = folder / "a/b/model/";  // with a slash at the end
  const auto entries = [&] {
    std::vector<std::string> names;
    for (const auto& item : std::filesystem::directory_iterator(folder / "a/b")) {
      names.push_back(item.path().filename());
    }
    std::sort(names.begin(), names.end());  // the order of a folder is the file system's
    return names;
  };
  {
    const AtomicFolder abandoned(wanted);
    write_file_atomically(abandoned.temporary() / "x", "text");
    CHECK(!std::filesystem::exists(wanted));
    CHECK(entries().size() == 1);
  }
  CHECK(entries().empty());
  std::filesystem::create_directory(folder / "a/b/model");  // an empty one is taken
  AtomicFolder made(wanted);
  AtomicFolder second(wanted);
  CHECK(made.temporary() != second.temporary());
  write_file_atomically(made.temporary() / "x", "text");
  write_file_atomically(second.temporary() / "y", "text");
  made.commit();
  CHECK(entries() == std::vector<std::string>{"model", second.temporary().filename()});
  CHECK(read_file(wanted / "x") == "text");
  CHECK(test::contains(test::error_of([&] { second.commit(); }), "cannot rename"));
  CHECK(test::error_of([&] { AtomicFolder again(wanted); }) ==
        (folder / "a/b/model").string() + ": is there already; give another one");
  folder.write("file", "");
  CHECK(test::contains(test::error_of([&] { AtomicFolder below(folder / "file/model"); }),
                       "file/model: cannot be made: "));
}

// What a process that is killed leaves: `fill` in a child of this one, which ends without a word.
void killed_while(const std::function<void()>& fill) {
  const pid_t child = ::fork();
  if (child == 0) {
    fill();
    ::_exit(0);
  }
  REQUIRE(child > 0);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

TEST_CASE("a folder's part that a killed process left is removed by the next, and no other part") {
  const test::TempFolder folder;
  const std::filesystem::path wanted = folder / "model";
  const auto leave = [&] {
    auto* const part = new AtomicFolder(wanted);
    write_file_atomically(part->temporary() / "x", "text");
  };
  killed_while(leave);
  CHECK(names_in(folder.path()).size() == 1);
  const AtomicFolder runs(wanted);  // which also is beside it from here on
  CHECK(names_in(folder.path()) == std::vector<std::string>{runs.temporary().filename()});
  // A folder of another name, one of no command, and one of another machine.
  std::filesystem::create_directories(folder / "model2.1-0.tmp");
  std::filesystem::create_directories(folder / "model.1-7.tmp");
  std::filesystem::create_directories(folder / "model.1-8.tmp");
  folder.write("model.1-8.tmp/.part", "another machine");
  AtomicFolder next(wanted);
  CHECK(names_in(folder.path()).size() == 5);
  // Nothing was written there for a day.
  std::filesystem::last_write_time(
      folder / "model.1-8.tmp/.part",
      std::filesystem::file_time_type::clock::now() - std::chrono::hours(25));
  {
    const AtomicFolder third(wanted);
    CHECK(names_in(folder.path()).size() == 5);
    CHECK(!is_there(folder / "model.1-8.tmp"));
  }
  next.commit();
  CHECK(names_in(wanted).empty());  // no lock
  // What replaces a folder leaves the order to others.
  killed_while(leave);
  const AtomicFolder replaces(wanted, AtomicFolder::Existing::kReplaced);
  CHECK(names_in(replaces.temporary()).empty());
}

TEST_CASE("folders are made with those above them") {
  const test::TempFolder folder;
  make_folders(folder / "a/b/c/");
  CHECK(std::filesystem::is_directory(folder / "a/b/c"));
  make_folders(folder / "a/b");  // is there
  make_folders("");
  folder.write("file", "");
  CHECK(test::error_of([&] { make_folders(folder / "file/a"); }) ==
        (folder / "file").string() + ": cannot be made: File exists");
}

TEST_CASE("a file that is not there cannot be synchronised") {
  const test::TempFolder folder;
  sync_file(folder.write("x", "text"));
  CHECK(test::contains(test::error_of([&] { sync_file(folder / "y"); }), "y: cannot open: "));
}

TEST_CASE("a file is read where it is asked for, and its end is an Error") {
  const test::TempFolder folder;
  const ReadableFile file(folder.write("x", "0123456789"));
  CHECK(file.size() == 10);
  char part[4] = {};
  file.read_at(3, part, 4);
  CHECK(std::string(part, 4) == "3456");
  CHECK(test::error_of([&] { file.read_at(8, part, 4); }) ==
        (folder / "x").string() + ": ends at byte 10, expected 2 more");
  CHECK_THROWS_AS(ReadableFile(folder.path()), Error);
}

TEST_CASE("a lock has one holder, who is named to the next") {
  const test::TempFolder folder;
  const std::filesystem::path path = folder / "lock";
  {
    const FileLock first(path, "process 1");
    CHECK(first.holder() == "");
    CHECK(FileLock(path, "process 2").holder() == "process 1");
    CHECK(read_file(path) == "process 1");
  }
  const FileLock second(path, "2");
  CHECK(read_file(path) == "2");
  CHECK(second.holder() == "");
  CHECK(second.problem() == "");
}

TEST_CASE("a folder that replaces another one has its name, and the old one is gone") {
  const test::TempFolder folder;
  std::filesystem::create_directories(folder / "step-1");
  folder.write("step-1/old", "");
  AtomicFolder made(folder / "step-1", AtomicFolder::Existing::kReplaced);
  write_file_atomically(made.temporary() / "new", "");
  CHECK(is_there(folder / "step-1/old"));
  made.commit();
  CHECK(names_in(folder / "step-1") == std::vector<std::string>{"new"});
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step-1"});
  made.commit();  // again, after an error of its last part
  CHECK(names_in(folder.path()) == std::vector<std::string>{"step-1"});
}

TEST_CASE("what is not there is no error, what cannot be known is one with its number") {
  const test::TempFolder folder;
  folder.write("b", "");
  folder.write("a", "");
  CHECK(names_in(folder.path()) == std::vector<std::string>{"a", "b"});
  CHECK(names_in(folder / "absent").empty());
  CHECK(is_there(folder / "a"));
  CHECK(!is_folder(folder / "a"));
  CHECK(is_folder(folder.path()));
  CHECK(!is_there(folder / "absent"));
  CHECK(!is_there(folder / "a/below"));
  std::filesystem::create_symlink("loop", folder / "loop");
  try {
    is_there(folder / "loop");
    FAIL("no error");
  } catch (const SystemError& error) {
    CHECK(error.code() == ELOOP);
    CHECK(error.what() ==
          (folder / "loop").string() + ": cannot inspect: Too many levels of symbolic links");
  }
}

}  // namespace
}  // namespace fsdp
