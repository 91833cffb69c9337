// Places that OpenMP's variables name, and what they leave of the cores of a process.
#include "tools/launch/core_places.h"

#include <map>
#include <thread>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

using Places = std::vector<Cores>;

const Cores kEight = {0, 1, 2, 3, 4, 5, 6, 7};

void write(const test::TempFolder& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root / path).parent_path());
  root.write(path, text);
}

TEST_CASE("core places: lists of places") {
  const auto places = [](const char* text) { return parse_places(text, kEight, "/nowhere"); };
  CHECK(places("{0}") == Places{{0}});
  CHECK(places(" { 1 , 0 } , {5} ") == Places{{0, 1}, {5}});
  CHECK(places("{0:4}") == Places{{0, 1, 2, 3}});
  CHECK(places("{0:3:2}") == Places{{0, 2, 4}});
  CHECK(places("{0:2}:2:4") == Places{{0, 1}, {4, 5}});
  CHECK(places("{6}:3:-2") == Places{{6}, {4}, {2}});
  CHECK(places("{0:4,!2}") == Places{{0, 1, 3}});
  CHECK(places("{0}:4,!{2}") == Places{{0}, {1}, {3}});
  CHECK(places("0,1:2") == Places{{0}, {1}, {2}});
  for (const char* wrong :
       {"{", "{}", "{0", "{0}}", "{0},", "{a}", "{0:0}", "{-1}", "0-3", "", "nodes", "cores(0)",
        "cores(", "cores(2) x", "{0:65536}:65536", "{99999999999}"}) {
    CAPTURE(wrong);
    CHECK_FALSE(places(wrong).has_value());
  }
}

TEST_CASE("core places: names of places, with the machine's files") {
  const test::TempFolder root;
  for (int core = 0; core < 8; ++core) {
    const std::string cpu = "sys/devices/system/cpu/cpu" + std::to_string(core) + "/";
    const int first = core % 4;
    write(root, cpu + "topology/thread_siblings_list",
          std::to_string(first) + "," + std::to_string(first + 4) + "\n");
    write(root, cpu + "topology/core_siblings_list", core % 4 < 2 ? "0-1,4-5\n" : "2-3,6-7\n");
    write(root, cpu + "cache/index2/shared_cpu_list", std::to_string(core) + "\n");
    write(root, cpu + "cache/index3/shared_cpu_list", "0-7\n");
  }
  write(root, "sys/devices/system/node/node0/cpulist", "0-3\n");
  write(root, "sys/devices/system/node/node1/cpulist", "4-7\n");
  const auto places = [&](const char* text, const Cores& own = kEight) {
    return parse_places(text, own, root.path());
  };
  CHECK(places("threads(2)") == Places{{0}, {1}});
  CHECK(places("Cores(2)") == Places{{0, 4}, {1, 5}});
  CHECK(places("cores") == Places{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(places("cores", {1, 2, 5}) == Places{{1, 5}, {2}});
  CHECK(places("sockets") == Places{{0, 1, 4, 5}, {2, 3, 6, 7}});
  CHECK(places("ll_caches(4)") == Places{kEight});
  CHECK(places("NUMA_DOMAINS ( 1 )") == Places{{0, 1, 2, 3}});
  CHECK(parse_places("cores(3)", kEight, "/nowhere") == Places{{0}, {1}, {2}});
}

TEST_CASE("core places: GOMP_CPU_AFFINITY") {
  CHECK(parse_affinity("0 3 1-2 4-8:2") == Places{{0}, {3}, {1}, {2}, {4}, {6}, {8}});
  CHECK(parse_affinity("0,1") == Places{{0}, {1}});
  for (const char* wrong : {"", "a", "3-1", "1-", "0-4:0", "{0}", "-1"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_affinity(wrong).has_value());
  }
}

BoundCores bound(const std::map<std::string, std::string>& variables, const Cores& own = kEight) {
  return bound_cores(
      own,
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      "/nowhere");
}

// libgomp binds the first thread to the first of many places; here all of them are used.
TEST_CASE("core places: all places together are the cores of the process") {
  for (const std::map<std::string, std::string>& all :
       std::vector<std::map<std::string, std::string>>{
           {},
           {{"OMP_PROC_BIND", "true"}},
           {{"OMP_PROC_BIND", "close,spread"}},
           {{"OMP_PROC_BIND", " SPREAD "}, {"OMP_PLACES", "cores"}},
           {{"OMP_PROC_BIND", ""}, {"OMP_PLACES", ""}},
           {{"OMP_PLACES", "threads"}},
           {{"GOMP_CPU_AFFINITY", "0-7"}},
           {{"GOMP_CPU_AFFINITY", "0-127"}},
           {{"OMP_PROC_BIND", "false"}, {"OMP_PLACES", "{0}"}, {"GOMP_CPU_AFFINITY", "1"}}}) {
    const BoundCores cores = bound(all);
    CHECK(cores.cores == kEight);
    CHECK(cores.note == "");
    CHECK(cores.warning == "");
  }
}

TEST_CASE("core places: what the user left out is not used, and this is said") {
  const BoundCores one = bound({{"OMP_PLACES", "{3}"}});
  CHECK(one.cores == Cores{3});
  CHECK(one.note == "OMP_PLACES={3}: 1 of 8 cores are used");
  CHECK(bound({{"OMP_PROC_BIND", "close"}, {"OMP_PLACES", "{0:2}:2:4"}}).cores ==
        Cores{0, 1, 4, 5});
  CHECK(bound({{"GOMP_CPU_AFFINITY", "5 2"}}).cores == Cores{2, 5});
  CHECK(bound({{"GOMP_CPU_AFFINITY", "5"}, {"OMP_PLACES", "{2}"}}).cores == Cores{2});
  CHECK(bound({{"OMP_PROC_BIND", "master"}, {"OMP_PLACES", "{4,5},{0}"}}).cores == Cores{4, 5});
  const BoundCores first = bound({{"OMP_PROC_BIND", "primary"}}, {2, 3});
  CHECK(first.cores == Cores{2});
  CHECK(first.note == "OMP_PROC_BIND=primary: 1 of 2 cores are used");
  // Of a process that its launcher bound.
  CHECK(bound({{"OMP_PLACES", "{0:4}"}}, {3, 4}).cores == Cores{3});
}

TEST_CASE("core places: variables that say nothing have a warning") {
  const BoundCores none = bound({{"OMP_PLACES", "{0}"}}, {4, 5});
  CHECK(none.cores == Cores{4, 5});
  CHECK(none.warning ==
        "OMP_PLACES={0}: this process may not run on any of these cores, it has no effect");
  CHECK(bound({{"OMP_PLACES", "nodes"}}).warning ==
        "OMP_PLACES=nodes: no places of cores, it has no effect");
  const BoundCores other = bound({{"OMP_PLACES", "nodes"}, {"GOMP_CPU_AFFINITY", "1"}});
  CHECK(other.cores == Cores{1});
  CHECK(test::contains(bound({{"OMP_PROC_BIND", "yes"}}).warning,
                       "OMP_PROC_BIND=yes: expected true, false, close, spread or primary"));
}

TEST_CASE("core places: a thread that stays on a core, and the threads that it starts") {
  const Cores all = own_cores();
  std::thread([&] {
    stay_on({all.back()});
    CHECK(own_cores() == Cores{all.back()});
    std::thread([&] { CHECK(own_cores() == Cores{all.back()}); }).join();
  }).join();
  CHECK(own_cores() == all);
}

}  // namespace
}  // namespace fsdp::tools
