// How long the calls of a training step take on a machine: a kernel takes what its row of the rates
// says. A kernel without a row is measured where a meter is given; else its time is estimated
// (device_model.h). Collectives: fabric_model.h.
// Not here: the numbers of a machine (rates.h), their file (rates_file.h), measuring
// (call_meter.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "comm/meta_transport.h"
#include "kernels/meta/call_times.h"
#include "tools/predict/rates.h"

namespace fsdp::tools {

// Seconds of a call on this machine; nothing where that would take too much time or memory.
using MeasureCall = std::function<std::optional<double>(const meta::KernelCall& call)>;

class CallRates : public meta::CallTimes {
 public:
  // `percentile`: of the time of collectives, where that was measured (fabric_model.h).
  explicit CallRates(Rates rates, MeasureCall measure = {}, double percentile = 50);

  double kernel_seconds(const meta::KernelCall& call) override;
  double host_kernel_seconds(const meta::KernelCall& call) override;
  bool host_is_device() const override { return rates_.host_memory_bytes_per_s == 0; }
  double host_copy_seconds(int64_t bytes) override;
  double file_seconds(int64_t bytes, bool writes) override;
  double issue_seconds() override { return rates_.issue_us * 1e-6; }
  double interference() const override { return rates_.interference; }
  double collective_seconds(const comm::MetaCollective& collective) const;

  // With the rows that were measured.
  const Rates& rates() const { return rates_; }
  // Of the calls that were asked for: how many had a row, were measured, were estimated.
  struct Sources {
    int64_t rows = 0, measured = 0, estimated = 0;
  };
  const Sources& distinct_calls() const { return sources_; }

 private:
  Rates rates_;
  MeasureCall measure_;
  double percentile_;
  std::map<CallKey, double> known_;  // microseconds, of calls that were asked for
  Sources sources_;
};

}  // namespace fsdp::tools
