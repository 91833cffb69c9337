// Free bytes and inodes, and the line for each error of a folder.
#include "tools/doctor/free_space.h"

#include <cerrno>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/doctor/host_facts.h"

namespace fsdp::tools::doctor {
namespace {

constexpr double kMiB = 1 << 20, kGiB = 1 << 30;

TEST_CASE("free space: of the first folder above that is there") {
  const test::TempFolder folder;
  const FreeSpace space = read_free_space(folder / "not/there");
  CHECK(space.folder == folder.path());
  CHECK(space.bytes > 0);
  CHECK(space.inodes > 0);
}

TEST_CASE("free space: few bytes or few inodes are said, with what mends them") {
  const auto check = [](double bytes, double inodes) {
    return space_check("folder space", {"/my runs", bytes, inodes}, "--folder FOLDER");
  };
  CHECK(check(2 * kGiB, 20'000).state == State::kOk);
  CHECK(check(2 * kGiB, 20'000).value == "2.00 GiB free, 20000 inodes");
  CHECK(check(2 * kGiB, kNoLimit).value == "2.00 GiB free");
  CHECK(check(2 * kGiB, 20'000).number == 2);
  CHECK(check(kGiB / 2, 20'000).state == State::kWarn);
  CHECK(check(kMiB, 20'000).state == State::kFail);
  CHECK(check(kMiB, 20'000).fix ==
        "du -xd1 '/my runs' | sort -n | tail   # remove what is not needed; or --folder FOLDER");
  CHECK(check(2 * kGiB, 500).state == State::kWarn);
  CHECK(check(2 * kGiB, 0).state == State::kFail);
  CHECK(check(2 * kGiB, 0).fix.starts_with("du --inodes -xd1 "));
}

TEST_CASE("free space: each error of a folder has a line that mends it") {
  const std::pair<int, const char*> lines[] = {{ENOSPC, "df -h "},
                                               {EDQUOT, "quota -s "},
                                               {EFBIG, "ulimit -f unlimited"},
                                               {EMFILE, "ulimit -n "},
                                               {EROFS, "mount -o remount,rw "},
                                               {ESTALE, "umount -l "},
                                               {ENOTCONN, "umount -l "},
                                               {EIO, "dmesg "},
                                               {ENOENT, "mkdir -p /a/b"},
                                               {EACCES, "ls -ld /a/b"},
                                               {0, "df /a/b"}};
  for (const auto& [code, line] : lines) {
    CAPTURE(code);
    CHECK(folder_fix(code, "/a/b").starts_with(line));
  }
}

}  // namespace
}  // namespace fsdp::tools::doctor
