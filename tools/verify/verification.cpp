// The parts of a verification, one after the other. Contract: tools/verify/verification.h.
#include "tools/verify/verification.h"

#include "tools/verify/reference_session.h"

namespace fsdp::tools {

Report verify(RankContext& rank, const Reference& reference, const VerificationOptions& options) {
  ReferenceSession run(rank, reference, options);
  Report report;
  if (reference.pass) report.append(verify_pass(run));
  for (const ReferenceTrajectory& trajectory : reference.trajectories) {
    report.append(verify_training(run, trajectory));
  }
  run.end();
  agree_on_report(rank.world, report);
  return report;
}

}  // namespace fsdp::tools
