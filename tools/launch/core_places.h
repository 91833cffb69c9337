// The cores on which this process computes: those that the kernel allows, and of these the places
// that the user gave OpenMP (OMP_PLACES, GOMP_CPU_AFFINITY).
// Not here: why the OpenMP library does not bind threads (openmp_variables.h), how many threads a
// rank has (thread_choice.h).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::tools {

using Cores = std::vector<int>;  // their numbers, ascending

// On which this thread may run, and so all threads that it starts; {0}: the kernel does not say.
Cores own_cores();
// Of this thread, and of threads that it starts from now on.
void stay_on(const Cores& cores);

// As libgomp reads the variables: without OMP_PROC_BIND places bind, with "false" they do not.
// OMP_PLACES comes before GOMP_CPU_AFFINITY. With "primary" or "master" the first place alone
// counts.
struct BoundCores {
  Cores cores;            // all places together; of those that the kernel allows
  std::string note{};     // "" when all of them are left
  std::string warning{};  // a variable that says nothing
};
BoundCores bound_cores(const Cores& own,
                       const std::function<const char*(const char* name)>& variable,
                       const std::filesystem::path& root = "/");  // where /sys is found

// ---- pure parts, for tests ----

// "{0:4}:2:4,!{8}", "cores(2)"; nullopt: malformed. `own`: for the names of places.
std::optional<std::vector<Cores>> parse_places(std::string_view text, const Cores& own,
                                               const std::filesystem::path& root);
// "0 3 1-2 4-15:2": a place for each number; nullopt: malformed.
std::optional<std::vector<Cores>> parse_affinity(std::string_view text);

}  // namespace fsdp::tools
