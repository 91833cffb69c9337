// Slurm's grammar, name by name.
#include "tools/launch/host_list.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace fsdp::tools {
namespace {

constexpr size_t kMostHosts = 1'000'000;
constexpr size_t kMostNamed = 8;

class HostList {
 public:
  explicit HostList(std::string_view list) : list_(list) {}

  std::vector<std::string> expand() const {
    std::vector<std::string> out;
    for (const std::string_view name : split(list_)) {
      for (std::string& host : expand_name(name)) add(std::move(host), out);
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected) const {
    fail("host list \"{}\": expected {}", list_, expected);
  }
  void add(std::string text, std::vector<std::string>& out) const {
    if (out.size() == kMostHosts) refuse("at most a million hosts");
    out.push_back(std::move(text));
  }

  // At commas that no bracket encloses.
  std::vector<std::string_view> split(std::string_view text) const {
    std::vector<std::string_view> out;
    size_t begin = 0;
    bool inside = false;
    for (size_t i = 0; i <= text.size(); ++i) {
      if (i < text.size() && (text[i] == '[' || text[i] == ']')) {
        if (inside == (text[i] == '[')) refuse("a ] behind each [");
        inside = !inside;
      }
      if (i < text.size() && (inside || text[i] != ',')) continue;
      if (i == begin) refuse("a name before and behind each comma");
      out.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
    if (inside) refuse("a ] behind each [");
    return out;
  }

  std::vector<std::string> expand_name(std::string_view name) const {
    const size_t open = name.find('[');
    if (open == std::string_view::npos) return {std::string(name)};
    const size_t close = name.find(']', open);
    const std::string_view head = name.substr(0, open), rest = name.substr(close + 1);
    const std::vector<std::string> tails =
        rest.empty() ? std::vector<std::string>{""} : expand_name(rest);
    std::vector<std::string> out;
    for (const std::string_view range : split(name.substr(open + 1, close - open - 1))) {
      for (const std::string& number : numbers(range)) {
        for (const std::string& tail : tails) add(fmt::format("{}{}{}", head, number, tail), out);
      }
    }
    return out;
  }

  int64_t number(std::string_view text) const {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) {
      refuse(fmt::format("numbers in brackets, got \"{}\"", text));
    }
    return value;
  }

  // "01-03": as wide as the first.
  std::vector<std::string> numbers(std::string_view range) const {
    const size_t dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const int64_t from = number(first);
    const int64_t to = dash == std::string_view::npos ? from : number(range.substr(dash + 1));
    if (to < from) refuse(fmt::format("a range that rises, got \"{}\"", range));
    std::vector<std::string> out;
    for (int64_t i = from; i <= to; ++i) add(fmt::format("{:0{}}", i, first.size()), out);
    return out;
  }

  std::string_view list_;
};

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

}  // namespace

std::vector<std::string> expand_host_list(std::string_view list) { return HostList(list).expand(); }

std::string idle_hosts_note(const std::vector<std::string>& hosts,
                            const std::function<const char*(const char*)>& getenv) {
  for (const char* variable : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const char* list = getenv(variable);
    if (list == nullptr) continue;
    std::set<std::string> busy;
    for (const std::string& host : hosts) busy.insert(short_name(host));
    std::vector<std::string> job;
    try {
      job = expand_host_list(list);
    } catch (const Error& error) {
      return fmt::format("{}: {}", variable, error.what());
    }
    const size_t all = job.size();
    std::erase_if(job, [&](const std::string& host) { return busy.contains(short_name(host)); });
    if (job.empty()) return "";
    const size_t more = job.size() - std::min(job.size(), kMostNamed);
    job.resize(job.size() - more);
    return fmt::format("{} has {} host{}, no rank runs on {}{}", variable, all, all == 1 ? "" : "s",
                       fmt::join(job, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
  }
  return "";
}

}  // namespace fsdp::tools
