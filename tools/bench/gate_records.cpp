// One list of keys for reading and writing.
#include "tools/bench/gate_records.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

#include <fmt/ranges.h>

#include "core/text/counted.h"
#include "tools/predict/record_file.h"

namespace fsdp::tools {

// A line of the file.
struct GateLine {
  GateCase at;
  GateRecord record;
};

template <typename File>
void visit(File& file, GateLine& line) {
  file("transport", line.at.place.transport);
  file("memory", line.at.place.memory);
  file("device", line.at.place.device);
  file("ranks", line.at.place.ranks);
  file("hosts", line.at.place.hosts);
  file("most_on_a_host", line.at.place.most_on_a_host);
  file("collective", line.at.collective);
  file("op", line.at.op);
  file("dtype", line.at.dtype);
  file("buffer", line.at.buffer);
  file("bytes", line.at.bytes);
  file("busbw_gb_per_s", line.record.busbw_gb_per_s);
  file("us", line.record.us);
}

namespace {

std::string describe(const GatePlace& at) {
  const std::string hosts =
      at.hosts == 1 ? "1 host"
                    : fmt::format("{} hosts (at most {} on one)", at.hosts, at.most_on_a_host);
  return fmt::format("{} on {} by {}, memory of {} ({})", counted(at.ranks, "rank"), hosts,
                     at.transport, at.memory, at.device);
}

GateRecord record_of(CommResult result, double seconds) {
  result.seconds.median = seconds;
  return {.busbw_gb_per_s = result.busbw() * 1e-9, .us = seconds * 1e6};
}

bool of_bandwidth(const CommCase& what) { return what.bytes >= kBandwidthBytes; }

std::string shortfall(const HeldCase& held, double share) {
  const GateRecord &record = held.record, &got = held.best;
  if (of_bandwidth(held.what)) {
    const double least = share * record.busbw_gb_per_s;
    if (got.busbw_gb_per_s >= least) return "";
    return fmt::format("expected at least {:.4g} GB/s on the bus ({} of {:.4g}), got {:.4g}", least,
                       share, record.busbw_gb_per_s, got.busbw_gb_per_s);
  }
  const double most = record.us / share + kInterruptionUs;
  if (got.us <= most) return "";
  return fmt::format("expected at most {:.4g} us ({:.4g} / {} + {}), got {:.4g}", most, record.us,
                     share, kInterruptionUs, got.us);
}

// A try more.
void add(HeldCase& held, const CommResult& result, double share) {
  const GateRecord got = record_of(result, result.seconds.least);
  if (held.tries++ == 0 || got.us < held.best.us) held.best = got;
  held.wrong = std::max(held.wrong, result.wrong);
  held.shortfall = shortfall(held, share);
}

}  // namespace

GateCase gate_case(const CommCase& what, const GatePlace& place) {
  return {.place = place,
          .collective = std::string(comm::name_of(what.collective)),
          .op = std::string(op_name(what)),
          .dtype = std::string(name_of(what.dtype)),
          .buffer = std::string(buffer_name(what)),
          .bytes = what.bytes};
}

GateRecords parse_gate_records(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  const Json* const cases = json.is_object() ? json.find("cases") : nullptr;
  FSDP_CHECK(cases && cases->is_array() && json.size() == 1,
             "{}: expected the file of a gate, {{\"cases\": [...]}} and nothing else", source);
  std::vector<GateLine> lines;
  RecordReader::read(*cases, source + ": cases", lines);
  GateRecords records;
  for (size_t i = 0; i < lines.size(); ++i) {
    FSDP_CHECK(records.emplace(std::move(lines[i].at), lines[i].record).second,
               "{}: cases[{}]: the same case again", source, i);
  }
  return records;
}

std::string gate_text(const GateRecords& records) {
  std::vector<std::string> lines;
  for (const auto& [at, record] : records) {
    lines.push_back("  " + RecordWriter::write(GateLine{at, record}).dump());
  }
  return fmt::format("{{\"cases\": [\n{}\n]}}\n", fmt::join(lines, ",\n"));
}

void set_records(GateRecords& records, const GatePlace& place,
                 const std::vector<CommResult>& results) {
  for (const CommResult& result : results) {
    records[gate_case(result.what, place)] = record_of(result, result.seconds.median);
  }
}

GateVerdict check_recorded(const GateRecords& records, const GatePlace& place,
                           const std::vector<CommCase>& cases, const std::string& source) {
  const std::string here = describe(place);
  std::set<std::string> places;
  for (const auto& [at, record] : records) places.insert(describe(at.place));
  if (!places.contains(here)) {
    return {kNothingValid,
            fmt::format("{}: no records exist for {}; recorded: {}", source, here,
                        places.empty() ? "nothing" : fmt::to_string(fmt::join(places, "; ")))};
  }
  for (CommCase what : cases) {
    what.bytes = whole_slots(what, static_cast<int>(place.ranks));
    if (records.contains(gate_case(what, place))) continue;
    return {kNothingValid, fmt::format("{}: no record of {} for {}; --update adds it", source,
                                       describe(what), here)};
  }
  return {};
}

std::vector<HeldCase> hold_to_records(const std::vector<CommResult>& results,
                                      const GateRecords& records, const GatePlace& place,
                                      double share, std::chrono::milliseconds pause,
                                      const std::function<CommResult(const CommCase&)>& again) {
  std::vector<HeldCase> held;
  for (const CommResult& result : results) {
    held.push_back({.what = result.what, .record = records.at(gate_case(result.what, place))});
    add(held.back(), result, share);
  }
  for (int tries = 2; tries <= kGateTries && worst_of(held); ++tries) {
    std::this_thread::sleep_for(pause);
    for (HeldCase& one : held) {
      if (!one.shortfall.empty()) add(one, again(one.what), share);
    }
  }
  return held;
}

const HeldCase* worst_of(const std::vector<HeldCase>& held) {
  const HeldCase* worst = nullptr;
  const auto rank = [](const HeldCase& one) {
    return std::pair(!of_bandwidth(one.what), one.record.us / one.best.us);
  };
  for (const HeldCase& one : held) {
    if (!one.shortfall.empty() && (!worst || rank(one) < rank(*worst))) worst = &one;
  }
  return worst;
}

GateVerdict check_held(const std::vector<HeldCase>& held, const std::string& source) {
  for (const HeldCase& one : held) {
    if (one.wrong == 0) continue;
    return {kNothingValid, fmt::format("{}: {} elements are wrong", describe(one.what), one.wrong)};
  }
  const HeldCase* const worst = worst_of(held);
  if (!worst) return {};
  const auto slow =
      std::count_if(held.begin(), held.end(), [](const auto& one) { return one.shortfall != ""; });
  return {kTooSlow,
          fmt::format("{}: {}: {} at best of {}; too slow: {} of {} cases", source,
                      describe(worst->what), worst->shortfall, worst->tries, slow, held.size())};
}

}  // namespace fsdp::tools
