// Reads a checkpoint into a session of any number of ranks, strategy and wrap policy: every rank
// reads the ranges that its shards intersect, straight into them. No rank reads more than it needs
// and the rest of a block, and nothing gathers the model. Next: manifest.h, block_file.h. Not here:
// which checkpoint (resume.h).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/work_progress.h"
#include "models/weights.h"
#include "tools/checkpoint/manifest.h"
#include "tools/engine/session.h"

namespace fsdp::tools {

class Checkpoint {
 public:
  // Error when the folder has no manifest, or a damaged one. `verify`: what is read is compared
  // with its checksums.
  explicit Checkpoint(std::filesystem::path folder, bool verify = true,
                      const IoPatience& patience = {});

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& folder() const { return folder_; }
  bool contains(const std::string& tensor) const { return manifest_.tensors.count(tensor) != 0; }
  // Where elements [first, first + n) of a tensor go: `values` is (n), of any backend and, where
  // the stored ones are floating, any floating dtype.
  struct Target {
    std::string tensor;
    int64_t first = 0;
    Tensor values;
  };
  // In the order of the files, so that no block is read twice. Error for a tensor that is not
  // there. `progress` is told of what is read; null: nobody waits.
  void read(const std::vector<Target>& targets, comm::WorkProgress* progress = nullptr);
  // Compares sizes and checksums of all files, and that they are safetensors files with the tensors
  // of the manifest. One line for each thing that is wrong; empty: it is sound.
  std::vector<std::string> verify_all();
  uint64_t bytes_read() const;

 private:
  struct Range;  // of a file, for a part of a target
  std::vector<Range> ranges_of(const std::vector<Target>& targets) const;
  void read_range(const Range& range, std::vector<std::byte>& host, comm::WorkProgress* progress);
  BlockReader& reader(size_t file);
  void check_entries(size_t file) const;

  std::filesystem::path folder_;
  bool verify_;
  IoPatience patience_;
  Manifest manifest_;
  std::vector<std::unique_ptr<BlockReader>> readers_;  // by file; null: not opened yet
};

enum class MissingState : uint8_t {
  kError,
  kZero,  // what the checkpoint lacks of the optimizer's state starts as in a new run
};

// Error, with all that differs, when names or shapes are not those of the session.
void check_tensors(Session& session, const Checkpoint& checkpoint,
                   MissingState missing = MissingState::kError);
// Values of parameters that are trained, optimizer state, loss scale and number of updates. Frozen
// parameters stay as they are. Error when names or shapes are not those of the session.
void restore(Session& session, Checkpoint& checkpoint, MissingState missing = MissingState::kError);
// What restore() does besides reading, for a session that is only predicted.
void walk_restored(Session& session);
// The trained parameters alone.
void restore_weights(Session& session, Checkpoint& checkpoint);

}  // namespace fsdp::tools
