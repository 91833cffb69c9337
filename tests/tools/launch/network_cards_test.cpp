// Which cards a host has, which of them are taken, and what MPI and NCCL then read.
// Requirements: S3.13.
#include "tools/launch/network_cards.h"

#include <cstdlib>
#include <map>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

const std::vector<NetworkCard> kHost = {
    {.name = "lo", .up = true, .loopback = true, .addresses = {"127.0.0.1"}},
    {.name = "eth0", .up = true, .addresses = {"10.0.0.1", "fe80::1"}},
    {.name = "eth1", .addresses = {"10.1.0.1"}},
    {.name = "ib0", .up = true, .addresses = {"10.2.0.1"}, .adapters = {"mlx5_0:1"}},
    {.name = "ib1", .up = true}};

std::string refused(const std::string& interface) {
  return test::error_of([&] { chosen_cards(interface, kHost, "rank 2 on node1"); });
}

std::map<std::string, std::string> variables_for(const std::string& interface) {
  const auto list = network_variables(chosen_cards(interface, kHost, ""), kHost);
  return {list.begin(), list.end()};
}

std::vector<std::string> adapters_of_loopback(const std::filesystem::path& classes) {
  for (const NetworkCard& card : network_cards(classes)) {
    if (card.name == "lo") return card.adapters;
  }
  return {"no loopback"};
}

TEST_CASE("network cards: those of this host") {
  const auto cards = network_cards();
  const auto loopback = std::find_if(cards.begin(), cards.end(),
                                     [](const NetworkCard& card) { return card.name == "lo"; });
  REQUIRE(loopback != cards.end());
  CHECK(loopback->loopback);
  CHECK(loopback->adapters.empty());
}

TEST_CASE("network cards: the adapter of a card and its port") {
  const test::TempFolder classes;
  for (const char* port : {"1", "2"}) {
    std::filesystem::create_directories(classes / "lo/device/infiniband/mlx4_0/ports" / port);
    classes.write("lo/dev_port", "1\n");
    CHECK(adapters_of_loopback(classes.path()) ==
          std::vector<std::string>{std::string("mlx4_0:") + port});
  }
}

TEST_CASE("network cards: a bond has the adapters of the cards below it") {
  const test::TempFolder classes;
  for (const char* below : {"lower_eth2", "lower_eth3"}) {
    std::filesystem::create_directories(classes / "lo" / below /
                                        "device/infiniband/mlx5_bond_0/ports/1");
  }
  CHECK(adapters_of_loopback(classes.path()) == std::vector<std::string>{"mlx5_bond_0:1"});
}

TEST_CASE("network cards: what a host lacks is refused with rank, host and what there is") {
  const std::string list =
      "; the host has lo (127.0.0.1), eth0 (10.0.0.1), eth1 (down), ib0 (10.2.0.1), ib1 (no "
      "address)";
  CHECK(refused("eth7") == "launch.interface: rank 2 on node1 has no network card eth7" + list);
  CHECK(refused("ib0,eth1") ==
        "launch.interface: rank 2 on node1: the network card eth1 is down" + list);
  CHECK(refused("ib1") ==
        "launch.interface: rank 2 on node1: the network card ib1 has no address" + list);
  CHECK(refused("eth0") == "");
  CHECK(refused("eth7,eth0") == "");  // the other hosts may have it
  CHECK(test::contains(refused("eth7,eth8"), "has no network card eth7,eth8;"));
  for (const char* wrong : {"eth0,", ",eth0", "eth0, ib0", "=eth0", "^docker0"}) {
    CHECK(test::contains(refused(wrong), "expected names of network cards"));
  }
}

TEST_CASE("network cards: what MPI and NCCL read") {
  auto both = variables_for("ib0,eth0");
  CHECK(both["OMPI_MCA_btl_tcp_if_include"] == "ib0,eth0");
  CHECK(both["UCX_NET_DEVICES"] == "mlx5_0:1,ib0,eth0");
  CHECK(both["FI_TCP_IFACE"] == "ib0");
  CHECK(both["MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE"] == "ib0");
  CHECK(both["NCCL_SOCKET_IFNAME"] == "=ib0,eth0");
  CHECK(both["NCCL_IB_HCA"] == "=mlx5_0:1");
  CHECK(!both.contains("NCCL_IB_DISABLE"));
  auto sockets = variables_for("eth0");
  CHECK(sockets["UCX_NET_DEVICES"] == "eth0");
  CHECK(sockets["NCCL_IB_DISABLE"] == "1");
  CHECK(!sockets.contains("NCCL_IB_HCA"));
  ::setenv("NCCL_IB_HCA", "mlx5_0", 1);
  CHECK(!variables_for("eth0").contains("NCCL_IB_DISABLE"));
  ::unsetenv("NCCL_IB_HCA");
  const std::vector<NetworkCard> plain = {kHost[1]};
  for (const auto& [name, value] : network_variables(plain, plain))
    CHECK(name != "NCCL_IB_DISABLE");
}

TEST_CASE("network cards: what the user has set stays, and is said") {
  const std::vector<NetworkCard> chosen = {kHost[1]};
  for (const auto& [name, value] : network_variables(chosen, chosen)) ::unsetenv(name.c_str());
  ::setenv("NCCL_SOCKET_IFNAME", "eth0", 1);  // the same, as a beginning
  CHECK(set_network(chosen, chosen).empty());
  CHECK(std::string(std::getenv("OMPI_MCA_btl_tcp_if_include")) == "eth0");
  ::setenv("NCCL_SOCKET_IFNAME", "ib0", 1);
  CHECK(set_network(chosen, chosen) ==
        std::vector<std::string>{"launch.interface: NCCL_SOCKET_IFNAME=ib0 is already set and "
                                 "stays, instead of =eth0"});
  CHECK(std::string(std::getenv("NCCL_SOCKET_IFNAME")) == "ib0");
  for (const auto& [name, value] : network_variables(chosen, chosen)) ::unsetenv(name.c_str());
  ::setenv("OMPI_MCA_btl_tcp_if_exclude", "docker0", 1);
  CHECK(set_network(chosen, chosen) ==
        std::vector<std::string>{
            "launch.interface replaces OMPI_MCA_btl_tcp_if_exclude=docker0: Open MPI accepts "
            "only one of the two"});
  CHECK(!std::getenv("OMPI_MCA_btl_tcp_if_exclude"));
  for (const auto& [name, value] : network_variables(chosen, chosen)) ::unsetenv(name.c_str());
}

TEST_CASE("network cards: what is said at the start") {
  const auto unset = [](const char*) -> const char* { return nullptr; };
  CHECK(network_note({kHost[3]}, kHost, unset) ==
        "network between the hosts: ib0 (10.2.0.1) with mlx5_0:1, for MPI, NCCL and the heartbeat");
  CHECK(network_note({kHost[1]}, kHost, unset) ==
        "network between the hosts: eth0 (10.0.0.1), for MPI, NCCL and the heartbeat; mlx5_0:1 "
        "without use "
        "(NCCL_IB_DISABLE)");
  CHECK(network_note({}, kHost, unset) ==
        "network between the hosts: MPI and NCCL choose among eth0 (10.0.0.1), ib0 (10.2.0.1); "
        "launch.interface names one");
  CHECK(test::contains(network_note({}, kHost,
                                    [](const char* name) {
                                      return name == std::string("NCCL_SOCKET_IFNAME") ? "ib0"
                                                                                       : nullptr;
                                    }),
                       "names one; NCCL_SOCKET_IFNAME=ib0"));
}

}  // namespace
}  // namespace fsdp::tools
