// The one plan of all ranks: rank 0 takes the run directory, decides where the run goes on and
// tells the others, who must see the same checkpoint. Next: resume.h (how it decides),
// run_folder.h (the locks).
#pragma once

#include "comm/communicator.h"
#include "tools/checkpoint/resume.h"
#include "tools/checkpoint/run_folder.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {

struct SettledPlan {
  ResumePlan plan;  // the same on all ranks
  RunLocks locks;   // of rank 0: of the run directory; none for a new one, which is yet to be made
};

// `before`: what each rank has found by itself, when nobody held the locks: until rank 0 has them,
// another job may have written more. AgreedError when another run has the directory, or a rank does
// not see the checkpoint. Collective.
// `say` gets what rank 0 waits for. `held`: locks that this process has already.
SettledPlan settle_plan(comm::Communicator& world, const ResumeRequest& request,
                        const ResumePlan& before,
                        const std::function<void(const std::string& line)>& say = {},
                        RunLocks held = {});

// The checkpoint of a plan could not be read, and the plan allows an older one: make the plan again
// without this checkpoint.
class DamagedCheckpoint : public AgreedError {
 public:
  explicit DamagedCheckpoint(const std::string& message) : AgreedError(message, status::kMistake) {}
};

// ---- parts, for tests ----
// AgreedError when a rank does not see the checkpoint, or another one of its name; it looks for
// `limit`. Collective.
void check_sees_checkpoint(comm::Communicator& world, const ResumePlan& plan,
                           std::chrono::milliseconds limit = kLatestName);
std::string plan_text(const ResumePlan& plan);
ResumePlan plan_from_text(const std::string& text);

}  // namespace fsdp::tools
