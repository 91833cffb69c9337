// The link of a file of rates (tools/predict/rates_file.h), from collectives that were measured.
// Not here: measuring (comm_bench.h), what a collective takes by such a link (call_rates.h).
#pragma once

#include <vector>

#include "tools/bench/comm_bench.h"
#include "tools/predict/call_rates.h"

namespace fsdp::tools {

// Latency and bandwidth with which `seconds = latency + bytes of the bus / bandwidth` comes nearest
// to the medians: the least sum of squared relative errors, so that small calls count as much as
// large ones. A latency below 0 becomes 0. Error when all calls move the same bytes, or when larger
// calls take no longer.
LinkRate fit_link(const std::vector<CommResult>& results);

// Sets the link of `rates` that ranks with these hosts use: inside_node where all of them share a
// host; else between_nodes, of which a host with n ranks has n (CallRates::collective_seconds), and
// error when hosts have different numbers of ranks. Returns the key that was set. A busbw that
// others measured for the machine goes, and so does the source of the link.
std::string set_link(Rates& rates, LinkRate link, const std::vector<std::string>& hosts);

}  // namespace fsdp::tools
