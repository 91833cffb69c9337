// The grammar of places: OpenMP 5.2, chapter 21; libgomp's manual, GOMP_CPU_AFFINITY.
// Contract: tools/launch/core_places.h.
#include "tools/launch/core_places.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <memory>

#include <fmt/format.h>
#include <sched.h>

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCores = 1 << 16;  // a greater number is a mistake

Cores in_order(Cores cores) {
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

Cores common(const Cores& a, const Cores& b) {
  Cores both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// What is malformed makes it bad for good.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  bool good() const { return good_; }
  bool at_end() {
    skip_space();
    return rest_.empty();
  }
  bool take(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void need(char c) { good_ = take(c) && good_; }
  int number(int least) {
    skip_space();
    int value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    good_ = good_ && error == std::errc() && value >= least && value <= kMostCores;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return good_ ? value : 0;
  }
  std::string word() {
    skip_space();
    const size_t length =
        std::min(rest_.size(), lower(rest_).find_first_not_of("abcdefghijklmnopqrstuvwxyz_"));
    const std::string out = lower(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return out;
  }

 private:
  void skip_space() { rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \t"))); }

  std::string_view rest_;
  bool good_ = true;
};

struct Steps {
  int count = 1, stride = 1;
};

// ":4", ":4:2", or nothing
Steps read_steps(Reader& reader) {
  Steps steps;
  if (reader.take(':')) steps.count = reader.number(1);
  if (steps.count > 1 && reader.take(':')) steps.stride = reader.number(-kMostCores);
  return steps;
}

// Adds a core unless no machine has one of this number.
void add_core(int64_t core, Cores& to) {
  if (core >= 0 && core <= kMostCores) to.push_back(static_cast<int>(core));
}

// "{0,1}", "{0:4,!2}", "3"
Cores read_place(Reader& reader) {
  if (!reader.take('{')) return {reader.number(0)};
  Cores place;
  do {
    const bool without = reader.take('!');
    const int first = reader.number(0);
    if (without) {
      std::erase(place, first);
      continue;
    }
    const Steps steps = read_steps(reader);
    for (int64_t i = 0; i < steps.count; ++i) add_core(first + i * steps.stride, place);
  } while (reader.take(','));
  reader.need('}');
  return in_order(place);
}

// "0-3,8", as /sys writes cores; empty: there is no such file.
Cores cores_in(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  std::getline(in, text);
  const auto each = parse_affinity(text);
  Cores cores;
  for (const Cores& core : each ? *each : std::vector<Cores>()) cores.push_back(core.front());
  return in_order(cores);
}

// The cores with which one is in a place of this name.
Cores neighbours(const std::string& name, int core, const fs::path& root) {
  const fs::path system = root / "sys/devices/system",
                 cpu = system / fmt::format("cpu/cpu{}", core);
  if (name == "cores") return cores_in(cpu / "topology/thread_siblings_list");
  if (name == "sockets") return cores_in(cpu / "topology/core_siblings_list");
  if (name == "ll_caches") {
    for (const char* level : {"index3", "index2", "index1"}) {
      const Cores cores = cores_in(cpu / "cache" / level / "shared_cpu_list");
      if (!cores.empty()) return cores;
    }
  }
  if (name == "numa_domains") {
    std::error_code none;
    for (const auto& node : fs::directory_iterator(system / "node", none)) {
      const Cores cores = cores_in(node.path() / "cpulist");
      if (std::binary_search(cores.begin(), cores.end(), core)) return cores;
    }
  }
  return {};
}

// nullopt: there are no places of this name.
std::optional<std::vector<Cores>> named_places(const std::string& name, const Cores& own,
                                               const fs::path& root) {
  constexpr std::string_view kNames[] = {"threads", "cores", "ll_caches", "numa_domains",
                                         "sockets"};
  if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames)) return {};
  std::vector<Cores> places;
  Cores left = own;
  while (!left.empty()) {
    Cores place = common(neighbours(name, left.front(), root), left);
    if (place.empty()) place = {left.front()};
    places.push_back(place);
    std::erase_if(left,
                  [&](int core) { return std::binary_search(place.begin(), place.end(), core); });
  }
  return places;
}

struct Places {
  std::string variable;  // "OMP_PLACES={0}"; empty: none is given
  std::vector<Cores> list;
};

// The first of the variables that has places; what is wrong with the others is added to `warning`.
Places given_places(const Cores& own, const std::function<const char*(const char*)>& variable,
                    const fs::path& root, std::string& warning) {
  for (const char* name : {"OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    const char* const value = variable(name);
    if (!value || !*value) continue;
    const bool affinity = name[0] == 'G';
    const auto places = affinity ? parse_affinity(value) : parse_places(value, own, root);
    Places found = {.variable = fmt::format("{}={}", name, value), .list = {}};
    for (const Cores& place : places ? *places : std::vector<Cores>()) {
      found.list.push_back(common(place, own));
      if (found.list.back().empty()) found.list.pop_back();
    }
    if (!found.list.empty()) return found;
    warning += fmt::format(
        "{}{}: {}, it has no effect", warning.empty() ? "" : "; ", found.variable,
        places ? "this process may not run on any of these cores" : "no places of cores");
  }
  return {};
}

}  // namespace

std::optional<std::vector<Cores>> parse_places(std::string_view text, const Cores& own,
                                               const fs::path& root) {
  Reader reader(text);
  std::vector<Cores> places;
  if (const std::string name = reader.word(); !name.empty()) {
    const auto all = named_places(name, own, root);
    if (!all) return {};
    size_t count = all->size();
    if (reader.take('(')) {
      count = std::min(count, static_cast<size_t>(reader.number(1)));
      reader.need(')');
    }
    places.assign(all->begin(), all->begin() + static_cast<ptrdiff_t>(count));
  } else {
    do {
      const bool without = reader.take('!');
      const Cores place = read_place(reader);
      const Steps steps = without ? Steps() : read_steps(reader);
      if (place.size() * static_cast<size_t>(steps.count) > kMostCores) return {};
      if (without) std::erase(places, place);
      for (int64_t i = 0; !without && i < steps.count; ++i) {
        places.emplace_back();
        for (const int core : place) add_core(core + i * steps.stride, places.back());
      }
    } while (reader.take(','));
  }
  if (!reader.good() || !reader.at_end()) return {};
  return places;
}

std::optional<std::vector<Cores>> parse_affinity(std::string_view text) {
  Reader reader(text);
  std::vector<Cores> places;
  while (reader.good() && !reader.at_end()) {
    const int first = reader.number(0);
    const int last = reader.take('-') ? reader.number(first) : first;
    const int stride = reader.take(':') ? reader.number(1) : 1;
    for (int core = first; reader.good() && core <= last; core += stride) places.push_back({core});
    reader.take(',');
  }
  if (!reader.good() || places.empty()) return {};
  return places;
}

BoundCores bound_cores(const Cores& own, const std::function<const char*(const char*)>& variable,
                       const fs::path& root) {
  const char* const bind = variable("OMP_PROC_BIND");
  const std::string kind =
      Reader(bind ? bind : "").word();  // the first: others are for teams inside
  BoundCores bound = {.cores = own};
  if (kind == "false") return bound;
  const bool together = kind == "primary" || kind == "master";
  if (bind && *bind && !together && kind != "true" && kind != "close" && kind != "spread") {
    bound.warning = fmt::format(
        "OMP_PROC_BIND={}: expected true, false, close, spread or primary, "
        "it has no effect",
        bind);
  }
  Places places = given_places(own, variable, root, bound.warning);
  if (places.list.empty() && together) {
    places = {.variable = fmt::format("OMP_PROC_BIND={}", bind), .list = {{own.front()}}};
  }
  if (places.list.empty()) return bound;
  if (together) places.list.resize(1);
  bound.cores.clear();
  for (const Cores& place : places.list) {
    bound.cores.insert(bound.cores.end(), place.begin(), place.end());
  }
  bound.cores = in_order(bound.cores);
  if (bound.cores.size() < own.size()) {
    bound.note =
        fmt::format("{}: {} of {} cores are used", places.variable, bound.cores.size(), own.size());
  }
  return bound;
}

// The kernel refuses a set that is smaller than its own.
Cores own_cores() {
  Cores cores;
  for (int most = CPU_SETSIZE; most <= kMostCores && cores.empty(); most *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(most), [](cpu_set_t* each) { CPU_FREE(each); });
    CPU_ZERO_S(bytes, set.get());
    if (::sched_getaffinity(0, bytes, set.get()) != 0) continue;
    for (int core = 0; core < most; ++core) {
      if (CPU_ISSET_S(core, bytes, set.get())) cores.push_back(core);
    }
  }
  return cores.empty() ? Cores{0} : cores;
}

void stay_on(const Cores& cores) {
  if (cores.empty()) return;
  const int most = cores.back() + 1;
  const size_t bytes = CPU_ALLOC_SIZE(most);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(most), [](cpu_set_t* each) { CPU_FREE(each); });
  CPU_ZERO_S(bytes, set.get());
  for (const int core : cores) CPU_SET_S(core, bytes, set.get());
  ::sched_setaffinity(0, bytes, set.get());
}

}  // namespace fsdp::tools
