// What the libraries read: Open MPI's run-time parameters; UCX and NCCL, their manuals; MPICH and
// Intel MPI, libfabric's provider for TCP, or MPICH's own one.
#include "tools/launch/network_cards.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include "core/error.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOpenMpi = "OMPI_MCA_btl_tcp_if_include";
constexpr const char* kOpenMpiExcludes = "OMPI_MCA_btl_tcp_if_exclude";
constexpr const char* kNcclSockets = "NCCL_SOCKET_IFNAME";

// Of a bond, a VLAN or a bridge: those of the cards below it.
void add_adapters(const fs::path& card, std::set<std::string>& out) {
  int port = 0;  // of the adapter, from 0
  std::ifstream(card / "dev_port") >> port;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(card / "device" / "infiniband", none)) {
    const bool has = fs::exists(entry.path() / "ports" / std::to_string(port + 1), none);
    out.insert(fmt::format("{}:{}", entry.path().filename().string(), has ? port + 1 : 1));
  }
  for (const auto& entry : fs::directory_iterator(card, none)) {
    if (entry.path().filename().string().starts_with("lower_")) add_adapters(entry.path(), out);
  }
}

std::vector<std::string> adapters_of(const fs::path& card) {
  std::set<std::string> out;
  add_adapters(card, out);
  return {out.begin(), out.end()};
}

std::string text_of(const sockaddr& address) {
  const bool four = address.sa_family == AF_INET;
  if (!four && address.sa_family != AF_INET6) return "";
  // Every card with a cable has one: it says nothing about a network.
  if (!four && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr))
    return "";
  char text[NI_MAXHOST] = "";
  const socklen_t bytes = four ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  ::getnameinfo(&address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::vector<std::string> names_in(const std::string& interface) {
  std::vector<std::string> names(1);
  for (const char c : interface) {
    if (c == ',') {
      names.emplace_back();
    } else {
      names.back() += c;
    }
  }
  for (const std::string& name : names) {
    FSDP_CHECK(!name.empty() && name.find_first_of(" \t=^:/") == std::string::npos,
               "launch.interface: expected names of network cards such as eth0 or ib0,eth0, got "
               "\"{}\"",
               interface);
  }
  return names;
}

std::vector<std::string> names_of(const std::vector<NetworkCard>& cards) {
  std::vector<std::string> names;
  for (const NetworkCard& card : cards) names.push_back(card.name);
  return names;
}

std::vector<std::string> adapters_of(const std::vector<NetworkCard>& cards) {
  std::vector<std::string> adapters;
  for (const NetworkCard& card : cards) {
    adapters.insert(adapters.end(), card.adapters.begin(), card.adapters.end());
  }
  return adapters;
}

}  // namespace

std::vector<NetworkCard> network_cards(const fs::path& classes) {
  std::vector<NetworkCard> cards;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return cards;
  for (const ifaddrs* each = all; each; each = each->ifa_next) {
    auto card = std::find_if(cards.begin(), cards.end(),
                             [&](const NetworkCard& c) { return c.name == each->ifa_name; });
    if (card == cards.end()) {
      cards.push_back({.name = each->ifa_name,
                       .up = (each->ifa_flags & IFF_UP) != 0,
                       .loopback = (each->ifa_flags & IFF_LOOPBACK) != 0,
                       .adapters = adapters_of(classes / each->ifa_name)});
      card = cards.end() - 1;
    }
    const std::string address = each->ifa_addr ? text_of(*each->ifa_addr) : "";
    if (!address.empty()) card->addresses.push_back(address);
  }
  ::freeifaddrs(all);
  return cards;
}

std::string describe(const std::vector<NetworkCard>& cards) {
  std::vector<std::string> texts;
  for (const NetworkCard& card : cards) {
    const std::string address = card.addresses.empty() ? "no address" : card.addresses.front();
    texts.push_back(fmt::format("{} ({})", card.name, card.up ? address : "down"));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<NetworkCard> reaching(const std::vector<NetworkCard>& cards) {
  std::vector<NetworkCard> out;
  std::copy_if(cards.begin(), cards.end(), std::back_inserter(out), [](const NetworkCard& card) {
    return card.up && !card.loopback && !card.addresses.empty();
  });
  return out;
}

bool has_ipv4(const std::vector<NetworkCard>& cards) {
  return std::any_of(cards.begin(), cards.end(), [](const NetworkCard& card) {
    return std::any_of(card.addresses.begin(), card.addresses.end(),
                       [](const std::string& text) { return text.find(':') == std::string::npos; });
  });
}

std::vector<NetworkCard> chosen_cards(const std::string& interface,
                                      const std::vector<NetworkCard>& cards,
                                      const std::string& where) {
  std::vector<NetworkCard> chosen;
  for (const std::string& name : names_in(interface)) {
    const auto card = std::find_if(cards.begin(), cards.end(),
                                   [&](const NetworkCard& c) { return c.name == name; });
    if (card == cards.end()) continue;  // of another host
    FSDP_CHECK(card->up && !card->addresses.empty(),
               "launch.interface: {}: the network card {} {}; the host has {}", where, name,
               card->up ? "has no address" : "is down", describe(cards));
    chosen.push_back(*card);
  }
  FSDP_CHECK(!chosen.empty(), "launch.interface: {} has no network card {}; the host has {}", where,
             interface, describe(cards));
  return chosen;
}

std::vector<std::pair<std::string, std::string>> network_variables(
    const std::vector<NetworkCard>& chosen, const std::vector<NetworkCard>& all) {
  const std::vector<std::string> names = names_of(chosen), adapters = adapters_of(chosen);
  const std::string list = fmt::format("{}", fmt::join(names, ","));
  std::vector<std::string> devices = adapters;
  devices.insert(devices.end(), names.begin(), names.end());
  std::vector<std::pair<std::string, std::string>> out = {
      {kOpenMpi, list},
      {"UCX_NET_DEVICES", fmt::format("{}", fmt::join(devices, ","))},
      {"FI_TCP_IFACE", names.front()},
      {"MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE", names.front()},
      {kNcclSockets, "=" + list}};  // =: whole names, no beginnings of names
  if (!adapters.empty()) {
    out.emplace_back("NCCL_IB_HCA", fmt::format("={}", fmt::join(adapters, ",")));
  } else if (!adapters_of(all).empty() && !std::getenv("NCCL_IB_HCA")) {
    out.emplace_back("NCCL_IB_DISABLE", "1");
  }
  return out;
}

std::vector<std::string> set_network(const std::vector<NetworkCard>& chosen,
                                     const std::vector<NetworkCard>& all) {
  std::vector<std::string> notes;
  const char* const excluded = std::getenv(kOpenMpiExcludes);
  if (excluded && !std::getenv(kOpenMpi)) {
    notes.push_back(
        fmt::format("launch.interface replaces {}={}: Open MPI accepts only one of the two",
                    kOpenMpiExcludes, excluded));
    ::unsetenv(kOpenMpiExcludes);
  }
  for (const auto& [name, value] : network_variables(chosen, all)) {
    ::setenv(name.c_str(), value.c_str(), 0);
    const std::string now = std::getenv(name.c_str());
    if (now == value || "=" + now == value) continue;
    notes.push_back(fmt::format("launch.interface: {}={} is already set and stays, instead of {}",
                                name, now, value));
  }
  return notes;
}

std::string network_note(const std::vector<NetworkCard>& chosen,
                         const std::vector<NetworkCard>& all,
                         const std::function<const char*(const char*)>& getenv) {
  if (!chosen.empty()) {
    const std::vector<std::string> adapters = adapters_of(chosen), others = adapters_of(all);
    std::string note = fmt::format(
        "network between the hosts: {}{}, for MPI, NCCL and the heartbeat", describe(chosen),
        adapters.empty() ? "" : fmt::format(" with {}", fmt::join(adapters, ", ")));
    if (adapters.empty() && !others.empty()) {
      const char* const kept = getenv("NCCL_IB_HCA");
      note += kept ? fmt::format("; NCCL_IB_HCA={}", kept)
                   : fmt::format("; {} without use (NCCL_IB_DISABLE)", fmt::join(others, ", "));
    }
    return note;
  }
  std::string note = fmt::format(
      "network between the hosts: MPI and NCCL choose among {}; launch.interface names one",
      describe(reaching(all)));
  for (const char* name : {kOpenMpi, kOpenMpiExcludes, "UCX_NET_DEVICES", kNcclSockets}) {
    if (const char* value = getenv(name)) note += fmt::format("; {}={}", name, value);
  }
  return note;
}

}  // namespace fsdp::tools
