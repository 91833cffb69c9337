// The network cards of this host, and the variables by which MPI and NCCL take those of
// launch.interface. Not here: which addresses the heartbeat uses (heartbeat.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp::tools {

struct NetworkCard {
  std::string name;
  bool up = false;
  bool loopback = false;
  std::vector<std::string> addresses = {};  // IPv4 and IPv6, as people write them
  std::vector<std::string> adapters = {};   // for RDMA, as UCX and NCCL name them: "mlx5_0:1"
};

// In the order of the system. `classes`: where the system describes cards.
std::vector<NetworkCard> network_cards(const std::filesystem::path& classes = "/sys/class/net");

// "eth0 (10.0.0.1), ib0 (no address)"; cards that are down say so.
std::string describe(const std::vector<NetworkCard>& cards);
// Those by which other hosts may be reached: they are up and have an address.
std::vector<NetworkCard> reaching(const std::vector<NetworkCard>& cards);

// For the heartbeat.
bool has_ipv4(const std::vector<NetworkCard>& cards);

// The cards of launch.interface, "ib0,eth0", that this host has: hosts may name theirs differently.
// `where`: "rank 2 on node1". Error, with the list of cards, when the host has none of them, or one
// is down or has no address.
std::vector<NetworkCard> chosen_cards(const std::string& interface,
                                      const std::vector<NetworkCard>& cards,
                                      const std::string& where);

// Name and value each, of all libraries that read one: who has another library ignores it.
// `all`: where the host has adapters for RDMA and the choice has none, NCCL uses none.
std::vector<std::pair<std::string, std::string>> network_variables(
    const std::vector<NetworkCard>& chosen, const std::vector<NetworkCard>& all);

// Sets these variables where the user has not. Returns a sentence about each that has another
// value, which stays. Error where Open MPI would refuse both. Before the first thread.
std::vector<std::string> set_network(const std::vector<NetworkCard>& chosen,
                                     const std::vector<NetworkCard>& all);

// What is said at the start of a job on several hosts. `chosen`: none, so MPI and NCCL choose.
// `getenv`: reads a variable, null: it is not set.
std::string network_note(const std::vector<NetworkCard>& chosen,
                         const std::vector<NetworkCard>& all,
                         const std::function<const char*(const char* name)>& getenv);

}  // namespace fsdp::tools
