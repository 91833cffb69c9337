// Lists and limits.
#include "tools/bench/comm_gate.h"

#include <algorithm>
#include <array>

namespace fsdp::tools {
namespace {

using comm::Collective;
using comm::ReduceOp;

struct OpName {
  ReduceOp op;
  std::string_view name;
};
constexpr std::array kOps = {OpName{ReduceOp::kSum, "sum"}, OpName{ReduceOp::kAverage, "average"},
                             OpName{ReduceOp::kMax, "max"}};

ReduceOp op_named(const std::string& name) {
  for (const OpName& known : kOps) {
    if (known.name == name) return known.op;
  }
  fail("--ops: expected sum, average or max, got \"{}\"", name);
}

Collective collective_named(const std::string& name) {
  for (size_t i = 0; i < comm::kCollectives; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (comm::name_of(collective) == name) return collective;
  }
  fail("--collectives: expected all_gather, reduce_scatter, all_reduce or broadcast, got \"{}\"",
       name);
}

bool reduces(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllReduce;
}

std::vector<int64_t> sizes(const CommCases& cases) {
  FSDP_CHECK(cases.least_bytes <= cases.most_bytes,
             "--min-bytes: expected at most --max-bytes {}, got {}", cases.most_bytes,
             cases.least_bytes);
  std::vector<int64_t> out;
  for (int64_t bytes = cases.least_bytes;; bytes *= cases.factor) {
    out.push_back(bytes);
    if (bytes > cases.most_bytes / cases.factor) return out;
  }
}

}  // namespace

std::vector<CommCase> expand(const CommCases& cases) {
  std::vector<CommCase> out;
  const auto add = [&](Collective collective, ReduceOp op, DType dtype, const std::string& buffer) {
    FSDP_CHECK(op != ReduceOp::kAverage || is_floating(dtype),
               "--ops average: expected floating dtypes, got {}", name_of(dtype));
    for (const int64_t bytes : sizes(cases)) {
      out.push_back({collective, op, dtype, bytes, buffer == "communicator"});
    }
  };
  for (const std::string& name : cases.collectives) {
    const Collective collective = collective_named(name);
    const std::vector<std::string> ops =
        reduces(collective) ? cases.ops : std::vector<std::string>{"sum"};
    for (const std::string& op : ops) {
      for (const std::string& dtype : cases.dtypes) {
        for (const std::string& buffer : cases.buffers) {
          add(collective, op_named(op), parse_dtype(dtype), buffer);
        }
      }
    }
  }
  return out;
}

std::string_view op_name(const CommCase& what) {
  return reduces(what.collective) ? kOps[static_cast<size_t>(what.op)].name : "";
}

std::string_view buffer_name(const CommCase& what) {
  return what.registered ? "communicator" : "plain";
}

std::string name_without_size(const CommCase& what) {
  std::string name(comm::name_of(what.collective));
  if (!op_name(what).empty()) name += fmt::format(" {}", op_name(what));
  return fmt::format("{} {}{}", name, name_of(what.dtype), what.registered ? "" : " plain");
}

std::string describe(const CommCase& what) {
  return fmt::format("{} of {} bytes", name_without_size(what), what.bytes);
}

std::string check_transport(RankContext& rank, const LaunchOptions& launch,
                            const std::string& wanted) {
  const std::vector<std::string> hosts = rank.world.exchange(host_name());
  const std::string notice = rank.world.notice();
  std::string found = "threads";
  if (rank.under_launcher && launch.local_ranks == 0) {
    const bool one_host = std::count(hosts.begin(), hosts.end(), hosts[0]) == rank.world.size();
    found = launch.shared_memory && one_host && notice.empty() ? "shared" : "mpi";
  }
  agree(rank.world, [&] {
    FSDP_CHECK(wanted == "auto" || wanted == found,
               "--transport {}: these ranks communicate by {}{}", wanted, found,
               notice.empty() ? "" : " (" + notice + ")");
  });
  return found;
}

GateVerdict check_ranks(const CommGate& gate, int ranks) {
  if (gate.expected_ranks > 0 && ranks != gate.expected_ranks) {
    return {kNothingValid, fmt::format("expected {} ranks, got {}", gate.expected_ranks, ranks)};
  }
  if (ranks == 1) return {kNothingValid, "one rank communicates with nobody; start several"};
  return {};
}

GateVerdict check_results(const CommGate& gate, const std::vector<CommResult>& results) {
  for (const CommResult& result : results) {
    if (result.wrong == 0) continue;
    return {kNothingValid, fmt::format("{} of {} bytes of {}: {} elements are wrong",
                                       comm::name_of(result.what.collective), result.what.bytes,
                                       name_of(result.what.dtype), result.wrong)};
  }
  const double gb_per_s = mean_busbw(results) * 1e-9;
  if (gb_per_s < gate.least_gb_per_s) {
    return {kTooSlow, fmt::format("mean busbw: expected at least {} GB/s, got {:.3f}",
                                  gate.least_gb_per_s, gb_per_s)};
  }
  return {};
}

}  // namespace fsdp::tools
