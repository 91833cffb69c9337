// The parts of a verification, one after the other. Contract: tools/verify/verification.h.
#include "tools/verify/verification.h"

#include "tools/verify/described_session.h"

namespace fsdp::tools {

Report verify(RankContext& rank, const ExpectedResults& expected,
              const VerificationOptions& options) {
  DescribedSession run(rank, expected, options);
  Report report;
  if (expected.pass) report.append(verify_pass(run));
  for (const ExpectedTraining& trajectory : expected.trajectories) {
    report.append(verify_training(run, trajectory));
  }
  run.end();
  agree_on_report(rank.world, report);
  return report;
}

}  // namespace fsdp::tools
