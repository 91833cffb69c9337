// Contract: tools/jobs/host_file.h. The forms: man mpirun of Open MPI ("hostfile"), MPICH's and
// Intel MPI's machine files, DeepSpeed's hostfile, PBS_NODEFILE, LSB_DJOB_HOSTFILE, PE_HOSTFILE.
#include "tools/jobs/host_file.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/launch/host_list.h"

namespace fsdp::tools {
namespace {

constexpr int kMostRanks = 65536;

// 0: no number of ranks.
int ranks_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return number && value <= kMostRanks ? std::max(value, 0) : 0;
}

// "a:4", "b[1-3]:4", "c". Empty where it is none of these.
std::vector<HostSlots> hosts_of(const std::string& part) {
  const size_t colon = part.rfind(':');
  const int ranks = colon == part.npos ? 1 : ranks_in(std::string_view(part).substr(colon + 1));
  const std::string names = part.substr(0, colon);
  const bool odd = names.find_first_of(" =,/\"'<>(){};:|&\xef") < names.find('[');
  if (names.empty() || ranks == 0 || odd || names.find_first_of(".-") == 0) return {};
  std::vector<HostSlots> hosts;
  for (const std::string& name : expand_host_list(names)) hosts.push_back({name, ranks});
  return hosts;
}

// The words behind the host: "slots=4 max_slots=8", "4", "4 queue@a UNDEFINED".
bool set_ranks(const std::vector<std::string>& words, std::vector<HostSlots>& hosts) {
  constexpr size_t kOfGridEngine = 4;
  const auto set = [&](int ranks) {
    for (HostSlots& host : hosts) host.ranks = ranks;
    return ranks > 0;
  };
  if (words.size() == 2 || words.size() == kOfGridEngine) {
    if (const int ranks = ranks_in(words[1])) return set(ranks);
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const int ranks = equals == std::string::npos ? 0 : ranks_in(words[i].substr(equals + 1));
    if (ranks == 0) return false;
    if (name == "slots") {
      set(ranks);
    } else if (name != "max_slots" && name != "max-slots") {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<HostSlots> parse_hosts(const std::string& text) {
  std::vector<HostSlots> hosts;
  int open = 0;
  for (size_t begin = 0, i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++open;
    if (i < text.size() && text[i] == ']') --open;
    if (i < text.size() && (text[i] != ',' || open > 0)) continue;
    const std::string part = text.substr(begin, i - begin);
    const std::vector<HostSlots> more = hosts_of(part);
    FSDP_CHECK(!more.empty(),
               "--hosts: expected host:ranks, such as a:4,b:4, or a file of hosts, got \"{}\"",
               part);
    for (const HostSlots& host : more) {
      FSDP_CHECK(std::ranges::count(hosts, host.host, &HostSlots::host) == 0,
                 "--hosts: {} is there twice", host.host);
      hosts.push_back(host);
    }
    begin = i + 1;
  }
  return hosts;
}

std::vector<HostSlots> parse_host_file(const std::string& text, const std::string& place) {
  std::vector<HostSlots> hosts;
  std::istringstream lines(text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream stream(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);  // \r is white space
    if (words.empty()) continue;
    std::vector<HostSlots> more = hosts_of(words[0]);
    const bool known = !more.empty() && set_ranks(words, more);
    FSDP_CHECK(known, "{}:{}: expected a host, \"a\", \"a:4\" or \"a slots=4\", got \"{}\"", place,
               number, fmt::to_string(fmt::join(words, " ")));
    for (const HostSlots& host : more) {
      const auto there = std::ranges::find(hosts, host.host, &HostSlots::host);
      there == hosts.end() ? hosts.push_back(host) : void(there->ranks += host.ranks);
    }
  }
  FSDP_CHECK(!hosts.empty(), "{}: expected a host in each line, the file has none", place);
  return hosts;
}

std::vector<HostSlots> read_hosts(const std::string& given) {
  const bool marked = given.starts_with("@");
  const std::string name = marked ? given.substr(1) : given;
  const bool is_file = name.ends_with(".txt") || name.ends_with(".hosts") || is_there(name);
  if (!marked && !is_file) return parse_hosts(given);
  FSDP_CHECK(!is_folder(name), "--hosts: expected a file of hosts, got the folder {}", name);
  return parse_host_file(read_file(name), name);
}

}  // namespace fsdp::tools
