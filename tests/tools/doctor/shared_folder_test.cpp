// A folder that hosts share, one that they do not share, one that cannot be written.
// Requirements: S1.23.
#include "tools/doctor/shared_folder.h"

#include <algorithm>
#include <cerrno>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/facts.h"

namespace fsdp::tools::doctor {
namespace {

const Mount kTmpfs = {.place = "/tmp", .type = "tmpfs", .source = "tmpfs"};
const Mount kNfs = {.place = "/home", .type = "nfs4", .source = "srv:/home"};
const std::vector<std::string> kHosts = {"a", "b"};

const Check& named(const std::vector<Check>& checks, std::string_view name) {
  return *std::ranges::find(checks, name, &Check::name);
}

TEST_CASE("a shared folder: two hosts see each other's files, and the lock of the first") {
  const test::TempFolder folder;
  SharedFolder a(folder.path(), "job", 0, kHosts), b(folder.path(), "job", 1, kHosts);
  a.write();
  b.write();
  a.look();
  b.look();
  for (const SharedFolder* host : {&a, &b}) {
    const std::vector<Check> checks = host->checks(kNfs);
    REQUIRE(checks.size() == 5);
    CHECK(named(checks, "folder space").number.value() > 0);
    CHECK(checks[0].value == folder.path().string() + " (nfs4), the same on all hosts");
    CHECK(named(checks, "folder rename").state == State::kOk);
    CHECK(named(checks, "folder lock").value == "respected");
    CHECK(named(checks, "folder write").number.value() > 0);
    for (const Check& check : checks) {
      if (check.name != "folder write" && check.name != "folder space")
        CHECK(check.state == State::kOk);
    }
  }
  b.remove();
  a.remove();
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a folder of each host's own: who is not seen, and what mounts it") {
  const test::TempFolder of_a, of_b;
  SharedFolder a(of_a.path(), "job", 0, kHosts), b(of_b.path(), "job", 1, kHosts);
  a.write();
  b.write();
  b.look();
  const std::string path = of_b.path().string();
  CHECK(b.checks(kNfs)[0] == Check{.name = "folder",
                                   .value = path + ": the files of a are missing here",
                                   .state = State::kFail,
                                   .fix = "mount -t nfs4 srv:/home /home"});
  CHECK(b.checks(kTmpfs)[0].fix ==
        "fsdp doctor --folder FOLDER   # that all hosts mount; on a this one is tmpfs");
  CHECK(named(b.checks(kTmpfs), "folder lock").value == "not tried");
  b.remove();
  CHECK(std::filesystem::is_empty(of_b.path()));
  a.remove();
  CHECK(std::filesystem::is_empty(of_a.path()));
}

TEST_CASE("a folder of one host, and one that is not there") {
  const test::TempFolder folder;
  SharedFolder alone(folder.path(), "job", 0, {"a"});
  alone.write();
  alone.look();
  CHECK(alone.checks(kTmpfs)[0].value == folder.path().string() + " (tmpfs)");
  CHECK(named(alone.checks(kTmpfs), "folder lock").value == "respected");
  alone.remove();
  SharedFolder missing(folder / "nowhere", "job", 0, {"a"});
  CHECK(test::contains(test::error_of([&] { missing.write(); }), "nowhere"));
  missing.remove();
}

TEST_CASE("a folder behind a link: the file system is the one that the link leads to") {
  const test::TempFolder folder;
  std::filesystem::create_directory_symlink("/proc/self", folder / "link");
  SharedFolder linked(folder / "link", "job", 0, {"a"});
  CHECK_FALSE(test::error_of([&] { linked.write(); }).empty());
  CHECK(linked.mount().type == "proc");
}

TEST_CASE("a folder of 100 hosts: all of them write 200 MiB together") {
  const test::TempFolder folder;
  const auto size_with = [&](size_t hosts) {
    SharedFolder host(folder.path(), "job", 0, std::vector<std::string>(hosts, "a"));
    host.write();
    const auto size = std::filesystem::file_size(folder / ".fsdp-doctor.job.0");
    host.remove();
    return size;
  };
  CHECK(size_with(100) == (2 << 20) + 2);  // "a\n"
  CHECK(size_with(1000) == (1 << 20) + 2);
}

TEST_CASE("mounts: the file system that a folder is on") {
  const std::string table =
      "27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
      "28 27 0:44 / /home rw master:2 shared:3 - nfs4 srv:/export/home rw,vers=4.2\n"
      "29 28 0:45 / /home/me/fast rw - tmpfs tmpfs rw\n"
      "30 27 0:46 / /home rw - nfs4 srv:/other rw\n"
      "31 27 0:47 / /my\\040data rw - nfs4 srv:/my\\040data rw\n";
  CHECK(mount_of(table, "/var/lib").type == "ext4");
  CHECK(mount_of(table, "/homestead").type == "ext4");
  CHECK(mount_of(table, "/home").source == "srv:/other");  // over the one before
  CHECK(mount_of(table, "/home/me/fast/run").type == "tmpfs");
  CHECK(mount_line(mount_of(table, "/home/you")) == "mount -t nfs4 srv:/other /home");
  CHECK(mount_line(mount_of(table, "/var")).empty());
  CHECK(mount_line(mount_of(table, "/my data/run")) == "mount -t nfs4 'srv:/my data' '/my data'");
  CHECK(mount_of("", "/var").type.empty());
}

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
