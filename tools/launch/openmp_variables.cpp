// A hidden variable begins with a small letter. Contract: tools/launch/openmp_variables.h.
#include "tools/launch/openmp_variables.h"

#include <cstddef>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <strings.h>

namespace fsdp::tools {
namespace {

// The last one is of LLVM's OpenMP library, and means nothing here.
constexpr const char* kNames[] = {"OMP_NUM_THREADS", "OMP_DYNAMIC",       "OMP_PROC_BIND",
                                  "OMP_PLACES",      "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};

std::string hidden(std::string name) {
  name.front() = static_cast<char>(name.front() - 'A' + 'a');
  return name;
}

// libc is not set up yet, nor is a sanitizer: no function is called and nothing is checked.
__attribute__((no_sanitize("address", "thread", "undefined"))) void hide(int, char**,
                                                                         char** environment) {
  for (char** each = environment; *each; ++each) {
    for (const char* const name : kNames) {
      size_t length = 0;
      while (name[length] && (*each)[length] == name[length]) ++length;
      if (!name[length] && (*each)[length] == '=') **each = static_cast<char>(name[0] + 'a' - 'A');
    }
  }
}

using Preparation = void (*)(int, char**, char**);
__attribute__((section(".preinit_array"), used)) const Preparation kHide = hide;

}  // namespace

const char* openmp_variable(const char* name) {
  if (const char* const value = std::getenv(name)) return value;  // set since the start
  return std::getenv(hidden(name).c_str());
}

std::string note_on_binding(const std::function<const char*(const char* name)>& variable) {
  const char* const bind = variable("OMP_PROC_BIND");
  if (bind && ::strcasecmp(bind, "false") == 0) return "";
  for (const char* const name : {"OMP_PLACES", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND"}) {
    const char* const value = variable(name);
    if (!value || !*value) continue;
    return fmt::format(
        "{}={} has no effect: this program binds no threads; taskset or numactl chooses its cores",
        name, value);
  }
  return "";
}

void show_openmp_variables(char** environment) {
  for (char** each = environment; *each; ++each) {
    const std::string_view text = *each;
    const std::string name = name_before_hiding(std::string(text.substr(0, text.find('='))));
    if (!name.empty()) **each = name.front();
  }
}

std::string name_before_hiding(const std::string& variable) {
  for (const char* const name : kNames) {
    if (variable == hidden(name)) return name;
  }
  return variable;
}

void hide_openmp_variables(char** environment) { hide(0, nullptr, environment); }

}  // namespace fsdp::tools
