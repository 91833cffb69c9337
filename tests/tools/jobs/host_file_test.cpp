// Hosts as people have them.
#include "tools/jobs/host_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Hosts = std::vector<HostSlots>;

TEST_CASE("hosts: a list") {
  CHECK(parse_hosts("a:4,b:2,c") == Hosts{{"a", 4}, {"b", 2}, {"c", 1}});
  CHECK(parse_hosts("n[01-02,7]:8,login") ==
        Hosts{{"n01", 8}, {"n02", 8}, {"n7", 8}, {"login", 1}});
  for (const char* wrong : {"", "a:", "a:0", "a:4,", ":3", "a:x", "a:-1", "a:1, b:1", "a:99999",
                            "a slots=4", "a=4", ".", "-a", "<html>", "fe80::1:4"}) {
    CAPTURE(wrong);
    CHECK(test::contains(test::error_of([&] { parse_hosts(wrong); }),
                         "--hosts: expected host:ranks"));
  }
  CHECK(test::error_of([] { parse_hosts("a:1,a:2"); }) == "--hosts: a is there twice");
  CHECK(test::contains(test::error_of([] { parse_hosts("n[1-"); }), "a ] behind each ["));
}

TEST_CASE("hosts: files of launchers and batch systems") {
  const Hosts two = {{"a", 4}, {"b", 4}};
  const struct {
    const char* of;
    std::string text;
  } files[] = {{"Open MPI", "# mine\n\na slots=4 max_slots=8\nb slots=4  # slow\n"},
               {"Open MPI 5", "a slots=4 max-slots=4\r\nb   slots=4\r\n"},
               {"DeepSpeed", "a slots=4\nb slots=4"},
               {"MPICH", "a:4\nb:4\n"},
               {"MPICH, again", "a:2\nb:4\na:2\n"},
               {"PBS", "a\na\na\na\nb\nb\nb\nb\n"},
               {"LSF", "a 4\nb 4\n"},
               {"Grid Engine", "a 4 all.q@a UNDEFINED\nb 4 all.q@b UNDEFINED\n"}};
  for (const auto& file : files) {
    CAPTURE(file.of);
    CHECK(parse_host_file(file.text, "hosts") == two);
  }
  CHECK(parse_host_file("n1\nn2.cluster\r\n", "hosts") == Hosts{{"n1", 1}, {"n2.cluster", 1}});
  CHECK(parse_host_file("\xef\xbb\xbf"
                        "a:2\nme@b_1\n",
                        "hosts") == Hosts{{"a", 2}, {"me@b_1", 1}});
  CHECK(parse_host_file("n[1-2]:8\n", "hosts") == Hosts{{"n1", 8}, {"n2", 8}});
}

TEST_CASE("hosts: a line that is no host is named") {
  for (const char* wrong : {"a slots=x", "a slots=0", "a:0", "a slots=4 user=me", "a b", "slots=4",
                            "a -4", "a:2 ifname=eth1", "a,b", "a slots", "<html>",
                            "\xef\xbb\xbf"
                            "a",
                            "{", "a;b", ".a"}) {
    CAPTURE(wrong);
    CHECK(test::error_of([&] { parse_host_file(std::string("a:1\n") + wrong, "my.hosts"); }) ==
          fmt::format("my.hosts:2: expected a host, \"a\", \"a:4\" or \"a slots=4\", got \"{}\"",
                      wrong));
  }
  CHECK(test::error_of([] { parse_host_file("# none\n\n", "h"); }) ==
        "h: expected a host in each line, the file has none");
}

TEST_CASE("hosts: a file that is there, or one behind @") {
  const test::TempFolder folder;
  const std::string file = folder.write("hosts", "a slots=2\n").string();
  CHECK(read_hosts(file) == Hosts{{"a", 2}});
  CHECK(read_hosts("@" + file) == Hosts{{"a", 2}});
  CHECK(read_hosts("b:3") == Hosts{{"b", 3}});
  CHECK(test::contains(test::error_of([&] { read_hosts("@" + (folder / "absent").string()); }),
                       "absent: "));
  CHECK(test::contains(test::error_of([&] { read_hosts(folder.path().string()); }),
                       "--hosts: expected a file of hosts, got the folder"));
  CHECK(test::contains(test::error_of([&] { read_hosts("."); }), "got the folder ."));
  for (const char* absent : {"absent.txt", "absent.hosts"}) {
    CHECK(test::contains(test::error_of([&] { read_hosts(absent); }), absent));
    CHECK(test::contains(test::error_of([&] { read_hosts(absent); }), "cannot open"));
  }
}

}  // namespace
}  // namespace fsdp::tools
