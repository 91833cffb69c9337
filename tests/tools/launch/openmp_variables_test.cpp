// Variables that the OpenMP library must not see.
#include "tools/launch/openmp_variables.h"

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace fsdp::tools {
namespace {

TEST_CASE("OpenMP's variables: hidden by their first letter, others stay") {
  std::vector<std::string> texts = {"OMP_PLACES={0}",
                                    "OMP_NUM_THREADS=4 ",
                                    "GOMP_CPU_AFFINITY=",
                                    "OMP_PROC_BIND=true",
                                    "KMP_AFFINITY=compact",
                                    "OMP_DYNAMIC=true",
                                    "OMP_PLACES_=x",
                                    "OMP_WAIT_POLICY=passive",
                                    "OMP_PLACES",
                                    "O",
                                    ""};
  std::vector<char*> environment;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  hide_openmp_variables(environment.data());
  CHECK(texts == std::vector<std::string>{"oMP_PLACES={0}", "oMP_NUM_THREADS=4 ",
                                          "gOMP_CPU_AFFINITY=", "oMP_PROC_BIND=true",
                                          "kMP_AFFINITY=compact", "oMP_DYNAMIC=true",
                                          "OMP_PLACES_=x", "OMP_WAIT_POLICY=passive", "OMP_PLACES",
                                          "O", ""});
  show_openmp_variables(environment.data());
  CHECK(texts[0] == "OMP_PLACES={0}");
  CHECK(texts[2] == "GOMP_CPU_AFFINITY=");
  CHECK(texts[4] == "KMP_AFFINITY=compact");
  CHECK(texts[7] == "OMP_WAIT_POLICY=passive");
  CHECK(texts[10].empty());
}

TEST_CASE("OpenMP's variables: read under their own names, hidden or set since") {
  CHECK(std::getenv("OMP_PLACES") == nullptr);  // hidden if it was set when this program began
  ::setenv("oMP_PLACES", "{0}", 1);
  CHECK(openmp_variable("OMP_PLACES") == std::string("{0}"));
  ::setenv("OMP_PLACES", "{1}", 1);
  CHECK(openmp_variable("OMP_PLACES") == std::string("{1}"));
  ::unsetenv("OMP_PLACES");
  ::unsetenv("oMP_PLACES");
  CHECK(name_before_hiding("oMP_PLACES") == "OMP_PLACES");
  CHECK(name_before_hiding("gOMP_CPU_AFFINITY") == "GOMP_CPU_AFFINITY");
  for (const char* other : {"OMP_PLACES", "oMP_OTHER", "PATH", ""}) {
    CHECK(name_before_hiding(other) == other);
  }
  CHECK(openmp_variable("OMP_PLACES") == nullptr);
}

TEST_CASE("OpenMP's variables: one that would bind threads has a note") {
  const auto note = [](std::map<std::string, const char*> values) {
    return note_on_binding([&](const char* name) { return values[name]; });
  };
  for (const char* name : {"OMP_PLACES", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND"}) {
    CHECK(note({{name, "{0:4}"}}).starts_with(std::string(name) + "={0:4} has no effect"));
    CHECK(note({{name, ""}}).empty());
  }
  CHECK(note({{"OMP_PROC_BIND", "FALSE"}, {"OMP_PLACES", "{0}"}}).empty());
  CHECK(note({{"OMP_NUM_THREADS", "4"}}).empty());
}

}  // namespace
}  // namespace fsdp::tools
