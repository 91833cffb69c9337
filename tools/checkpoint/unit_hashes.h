// Hashes of what each unit has in each step, kept in unit_hashes.bin of the run directory
// (checkpoint.unit_hashes): by them a replay finds the unit in which a difference began. Equal
// values have equal hashes, on any number of ranks. Not here: what follows from two hashes that
// differ (tools/run/replay.h).
//
// [Note: the file] A line of JSON, {"version": 1, "units": [names]}, then a record for each step:
// its number, from 1, as int64, and for each unit the hashes of its weights and of its gradient as
// uint64; the lowest byte first. A record at the end that was cut counts as none. Of a step that
// was done twice the last record counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tools/checkpoint/owned_state.h"
#include "tools/report/line_log.h"

namespace fsdp::tools {

// Of a unit between backward and update.
struct UnitHash {
  uint64_t weights = 0;   // that are trained, as the step began with them
  uint64_t gradient = 0;  // reduced, as the clipper finds it: still times the loss scale
  bool operator==(const UnitHash&) const = default;
};

class UnitHasher {
 public:
  explicit UnitHasher(Session& session);  // which outlives this
  // Those that are trained, in the order in which backward is done with them: the root is the last.
  const std::vector<std::string>& units() const { return names_; }
  // Of all units, on all ranks. Between backward and update. Waits for the gradients. Collective.
  std::vector<UnitHash> hash();

 private:
  comm::Communicator& world_;
  std::vector<OwnedUnit> units_;
  std::vector<std::string> names_;
};

// On every rank; rank 0 keeps the file.
class UnitHashLog {
 public:
  // Goes on with a file of the same units; one of other units is begun anew.
  UnitHashLog(Session& session, const std::filesystem::path& run_directory);
  void note(int64_t step) { append(step, hasher_.hash()); }  // see UnitHasher::hash
  std::string sync() { return log_.sync(); }                 // see LineLog
  std::string problem() const { return log_.problem(); }

 private:
  void append(int64_t step, const std::vector<UnitHash>& hashes);

  UnitHasher hasher_;
  LineLog log_;
};

struct UnitHashes {
  std::vector<std::string> units;  // none: there is no file of hashes
  std::map<int64_t, std::vector<UnitHash>> steps;
};
// Of the steps from `first` to `last`.
UnitHashes read_unit_hashes(const std::filesystem::path& run_directory, int64_t first,
                            int64_t last);
// For a run that goes on after `step`: its directory gets the records up to there of `run_before`,
// which may be the same directory.
void keep_unit_hashes(const std::filesystem::path& run_directory,
                      const std::filesystem::path& run_before, int64_t step);

}  // namespace fsdp::tools
