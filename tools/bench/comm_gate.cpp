// Lists and limits.
#include "tools/bench/comm_gate.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/io/file.h"

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
  if (ranks == 1)
    return {kNothingValid, "one rank has nobody to communicate with; start several ranks"};
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
namespace {

constexpr const char* kFormula =
    "busbw = bytes / time x factor, the factors of nccl-tests for n ranks: all_reduce 2 (n - 1) / "
    "n,\n"
    "all_gather and reduce_scatter (n - 1) / n, broadcast 1; time: the median call on the slowest "
    "rank\n";

}  // namespace

CommCases suite_cases() {
  CommCases cases;
  cases.dtypes = {"f32"};
  cases.least_bytes = int64_t{32} << 20;
  cases.most_bytes = int64_t{1} << 30;
  cases.factor = 2;
  return cases;
}

CommTiming suite_timing() { return {.rounds = 3, .calls = 1}; }

std::string meta_text(const SuiteMeta& meta) {
  std::string text = fmt::format(
      "date: {}\ncommit: {}\nranks: {}\ntransport: {}\nmemory: {}\nthreads: {}\nrounds: {}\n"
      "calls: {}\n",
      meta.date, meta.commit, meta.machines.size(), meta.transport, meta.memory, meta.threads,
      meta.timing.rounds, meta.timing.calls);
  for (size_t rank = 0; rank < meta.machines.size(); ++rank) {
    text += fmt::format("rank {}: {}\n", rank, meta.machines[rank]);
  }
  return text;
}

std::string csv_of(const std::vector<CommResult>& results) {
  std::string text =
      "collective,op,dtype,buffer,ranks,bytes,us_least,us_median,us_upper_quartile,"
      "algbw_gb_per_s,busbw_gb_per_s,wrong\n";
  for (const CommResult& r : results) {
    text += fmt::format("{},{},{},{},{},{},{:.1f},{:.1f},{:.1f},{:.4f},{:.4f},{}\n",
                        comm::name_of(r.what.collective), op_name(r.what), name_of(r.what.dtype),
                        buffer_name(r.what), r.ranks, r.what.bytes, r.seconds.least * 1e6,
                        r.seconds.median * 1e6, r.seconds.upper_quartile * 1e6, r.algbw() * 1e-9,
                        r.busbw() * 1e-9, r.wrong);
  }
  return text;
}

std::string bandwidth_table(const std::vector<CommResult>& results) {
  std::vector<std::string> columns;
  std::map<int64_t, std::map<std::string, double>> rows;
  for (const CommResult& result : results) {
    const std::string column = name_without_size(result.what);
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
      columns.push_back(column);
    }
    rows[result.what.bytes][column] = result.busbw() * 1e-9;
  }
  std::string text = fmt::format("{:>12}", "bytes");
  for (const std::string& column : columns) text += fmt::format("  {:>22}", column);
  text += '\n';
  for (const auto& [bytes, values] : rows) {
    text += fmt::format("{:>12}", bytes);
    for (const std::string& column : columns) {
      const auto found = values.find(column);
      text += fmt::format("  {:>22}",
                          found == values.end() ? "-" : fmt::format("{:.3f}", found->second));
    }
    text += '\n';
  }
  return text;
}

CommSuite::CommSuite(std::filesystem::path folder, const SuiteMeta& meta)
    : folder_(std::move(folder)) {
  FSDP_CHECK(!std::filesystem::exists(folder_ / "meta.txt"),
             "--suite {}: has the results of another suite; expected a new folder",
             folder_.string());
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  FSDP_CHECK(!error, "--suite {}: cannot be made: {}", folder_.string(), error.message());
  write_file_atomically(folder_ / "meta.txt", meta_text(meta));
}

void CommSuite::add(const CommResult& result) {
  results_.push_back(result);
  write_file_atomically(folder_ / "results.csv", csv_of(results_));
}

void CommSuite::finish(const GateVerdict& verdict) const {
  const std::string outcome =
      verdict.status == 0 ? "passed" : fmt::format("status {}: {}", verdict.status, verdict.reason);
  // The second line from below is nccl-tests' own: scripts read its last word.
  write_file_atomically(
      folder_ / "summary.txt",
      fmt::format(
          "Bus bandwidth in GB/s on {} ranks\n{}\n{}\n# Avg bus bandwidth    : {:.4f}\n{}\n",
          results_.empty() ? 0 : results_[0].ranks, kFormula, bandwidth_table(results_),
          mean_busbw(results_) * 1e-9, outcome));
}

}  // namespace fsdp::tools
