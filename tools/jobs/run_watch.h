// What the parent of a job sees of the run in its directory: whether it lives, how far it is, and
// whether it could go on there. Each look is a thread of its own, because a call of a storage that
// is away may not come back. Read next: parent.h. Not here: what a person sees
// (tools/report/run_status.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tools/launch/end_note.h"

namespace fsdp::tools {

class RunWatch {
 public:
  struct Look {
    std::string problem = {};  // why the run cannot go on there now; "": it can
    int64_t durable_step = 0;  // of the last checkpoint, as it was seen last
    double seen = 0;           // Unix time of the last step; 0: the start has finished none
    int64_t sign_of_life = 0;  // changes while the run's process runs; 0: there is none
  };

  explicit RunWatch(std::filesystem::path run_directory);
  ~RunWatch();  // waits a moment for a look that is on its way
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  // What a look finds within this time; else what one has found since the last call; else what was
  // known then, with the problem that nothing answers. `writes`: it also tries whether a file can be
  // written there, and no earlier look counts.
  Look look(std::chrono::milliseconds limit, bool writes = false);
  // A look has found a run that has done a step: where the directory is missing later, or has no
  // run in it, it has gone. A start that fails before may remove what it has made.
  bool expects_run() const { return expects_; }
  // For who looks at the directory later, together with what the last start has left of its end.
  void leave_end(EndNote note, std::chrono::milliseconds limit);

 private:
  struct Call;  // a look of a thread
  void begin(std::function<Look()> work);
  void take();  // what the look that has come back has found

  std::filesystem::path directory_;
  std::shared_ptr<Call> call_;  // none: nobody looks
  Look last_;
  bool expects_ = false;
};

}  // namespace fsdp::tools
