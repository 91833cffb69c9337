// One call of addr2line for each line that is asked for.
#include "tests/cuda_emulator/races/source_lines.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

namespace fsdp::emulator {
namespace {

std::vector<std::string> lines_of(const std::string& command) {
  std::vector<std::string> lines;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 4096> line;
  while (pipe && std::fgets(line.data(), line.size(), pipe.get())) {
    lines.emplace_back(line.data());
    while (!lines.back().empty() && lines.back().back() == '\n') lines.back().pop_back();
  }
  return lines;
}

// The path from "kernels/" or "tests/" on, "" where it is of neither; without " (discriminator 3)".
std::string below_root(const std::string& place) {
  for (const char* root : {"/kernels/cuda/", "/tests/"}) {
    const size_t at = place.rfind(root);
    if (at == std::string::npos) continue;
    return place.substr(at + 1, place.find(' ', at) - at - 1);
  }
  return "";
}

// Stand-ins for what a GPU has: a kernel's own line is the one that calls them.
bool is_stand_in(const std::string& place) {
  return place.starts_with("tests/cuda_emulator/") && place.find("_test.cpp") == place.npos;
}

// Frames from the innermost to the function itself, two lines each: name, place.
std::vector<std::string> frames_at(uintptr_t code) {
  Dl_info object = {};
  if (::dladdr(reinterpret_cast<const void*>(code), &object) == 0) return {};
  return lines_of(fmt::format("addr2line -f -i -C -e /proc/{}/exe {:#x} 2>/dev/null", ::getpid(),
                              code - reinterpret_cast<uintptr_t>(object.dli_fbase)));
}

void remove_all(std::string& from, std::string_view part) {
  for (size_t at; (at = from.find(part)) != from.npos;) from.erase(at, part.size());
}

}  // namespace

std::string function_name(const void* function) {
  const std::vector<std::string> frames = frames_at(reinterpret_cast<uintptr_t>(function));
  if (frames.size() < 2) return "?";
  std::string name = frames[frames.size() - 2];
  for (const char* part : {"void ", "(anonymous namespace)::", "fsdp::cuda::"}) {
    remove_all(name, part);
  }
  return name.substr(0, name.find('('));
}

std::string source_line(const void* code) {
  const std::vector<std::string> frames = frames_at(reinterpret_cast<uintptr_t>(code) - 1);
  for (size_t i = 1; i < frames.size(); i += 2) {
    const std::string place = below_root(frames[i]);
    if (!place.empty() && !is_stand_in(place)) return place;
  }
  return "?";
}

}  // namespace fsdp::emulator
