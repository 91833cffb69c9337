// Texts of the three files.
#include "tools/bench/comm_suite.h"

#include <algorithm>
#include <map>

#include "core/io/file.h"

namespace fsdp::tools {
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
