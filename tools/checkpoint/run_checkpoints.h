// The checkpoints of one run: when they are written, what they hold besides the session's state,
// which ones are kept, and which one is the best. Next: write_checkpoint.h. Not here: their folder
// and its lock (run_folder.h), going on from one (resume.h).
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/checkpoint/manifest.h"
#include "tools/checkpoint/write_checkpoint.h"
#include "tools/config/config.h"
#include "tools/engine/session.h"

namespace fsdp::tools {

// In Manifest::data: of the text that validation losses are of.
inline constexpr const char* kValidationTokens = "tokens of data.validation";
// Whether both validation losses are of the same text, and of as much of it.
bool validated_alike(const Manifest& before, const std::string& validation_hash,
                     int64_t eval_batches);

// What the shards of one checkpoint hold, over all ranks. Collective.
uint64_t checkpoint_bytes(Session& session);

// How many more checkpoints must find room at least. A new one is written before an old one goes.
// With keep: 0 the number of them may be large, and who asks for that may remove some: two count.
// `steps`: that the run has left. `there`: how many are in the folder.
int64_t checkpoints_to_come(const config::CheckpointSection& config, int64_t steps, int64_t there);

// [Note: who writes] Without checkpoint.async, start() writes. With it start() copies the state
// (write_checkpoint.h), and a thread of every rank writes the copy, with a group of ranks of its
// own, publishes the folder and removes old ones. There is one such write at a time, and finish()
// ends it. What finish() says is agreed between the ranks, so they may call it at different
// moments.
class RunCheckpoints {
 public:
  // `facts`: what is the same in all checkpoints of the run. `session` outlives this. Collective.
  RunCheckpoints(Session& session, const config::TrainConfig& config,
                 std::filesystem::path run_directory, Manifest facts);
  ~RunCheckpoints();  // waits for a write
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;

  struct Written {
    int64_t step = 0;
    std::filesystem::path folder;
    double seconds = 0;  // that this rank wrote, until it was complete on the disk
    std::vector<std::string> warnings = {};  // old ones that cannot be removed; on rank 0
  };
  // After finish(). Collective.
  void start(const TrainTotals& totals);
  // Of the write that was started last; none: it is known already. Waits for it. AgreedError when
  // it failed; nothing is left of its folder then.
  std::optional<Written> finish();
  bool is_done() const { return done_; }     // finish() does not wait
  int64_t step_of_write() const;             // -1: there is none
  Written write(const TrainTotals& totals);  // both
  struct Best {
    int64_t step;
    double value;
  };
  const std::optional<Best>& best() const { return best_; }
  // For a run that goes on: from which checkpoint, with what in its manifest. Returns what happens
  // to the best one, where that is not what was expected; else "".
  std::string go_on(const std::filesystem::path& checkpoint, const Manifest& manifest);
  std::filesystem::path folder_of(int64_t step) const;
  // Of the last complete one; empty: there is none.
  std::string last() const { return last_; }

 private:
  struct Write;  // one that was started
  void judge(const TrainTotals& totals);
  void carry_out(comm::Communicator& world, Write& write) const;
  bool judged_alike(const Manifest& before) const;

  Session& session_;
  config::CheckpointSection config_;
  int64_t eval_batches_;
  IoPatience patience_;
  std::filesystem::path run_directory_, folder_;
  Manifest facts_;
  std::optional<Best> best_;
  std::string last_;
  std::unique_ptr<comm::Communicator> writers_;  // null: not asynchronous
  std::optional<StagingMemory> staging_;
  std::unique_ptr<Write> write_;  // null: none
  std::thread thread_;
  std::atomic<bool> done_ = true;
};

}  // namespace fsdp::tools
