// What can be on the disk when the power goes while files are written. It records the calls for
// what is below a folder (io_faults.h) and builds the folders that could be left: at every moment
// each write, and each change of a folder, is there or not, in any combination, unless an fsync of
// its file or folder has followed it. As ALICE does (Pillai et al., OSDI 2014), with no promise of
// a file system but that one call's change of a folder is there as a whole. Not here: errors of
// calls.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/support/io_faults.h"

namespace fsdp::test {

class PowerLoss : public IoWitness {
 public:
  // The folder is empty.
  explicit PowerLoss(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void before_call() override { note_names(); }  // of calls that are not wrapped
  void after_call(const IoCall& call) override;
  void report(int64_t number);  // what the program believes to be on the disk from now on

  struct Search {
    size_t exhaustive = 5;  // open changes up to which every combination is built
    int samples = 12;       // combinations of more
    uint64_t seed = 1;
    bool honours_sync = true;  // false: a disk whose fsync does nothing
  };
  struct Result {
    int64_t outcomes = 0;  // different ones
    std::string problem;   // the first; "": none
  };
  // `problem` sees each outcome in `place`, with the number that was reported before it.
  Result search(const std::filesystem::path& place, const Search& how,
                const std::function<std::string(int64_t reported)>& problem) const;

 private:
  using Names = std::map<std::string, int>;  // of a folder; each file and folder has a number
  struct Change {
    enum Kind : uint8_t { kWrite, kNames, kSync, kReport } kind = kWrite;
    int of = 0;  // the file or folder
    std::map<std::string, std::optional<int>> names = {};
    int64_t offset = 0;  // of kReport: what is reported
    std::string bytes = {};
  };
  struct Disk {
    std::map<int, Names> folders = {{0, {}}};
    std::map<int, std::string> files;
  };

  void walk(const std::filesystem::path& path, int folder, std::map<int, Names>& found,
            std::map<ino_t, int>& numbers);
  void note_names();
  void note_changes_of(int folder, const Names& before, const Names& now);
  std::vector<size_t> open_at(size_t end, bool honours_sync) const;
  Disk disk_at(size_t end, const std::vector<size_t>& lost) const;
  std::string text_of(const Disk& disk, int number) const;
  void build(const Disk& disk, int folder, const std::filesystem::path& place) const;

  std::filesystem::path folder_;
  std::map<ino_t, int> numbers_;
  std::map<int, Names> folders_ = {{0, {}}};
  std::set<int> is_folder_ = {0};
  std::map<int, int> opened_;  // descriptors
  int next_ = 1;
  std::vector<Change> changes_;
};

}  // namespace fsdp::test
