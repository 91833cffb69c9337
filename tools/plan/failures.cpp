// Contract: tools/plan/failures.h.
#include "tools/plan/failures.h"

#include <cmath>

namespace fsdp::tools {

double best_interval_s(const Failures& failures) {
  const double share = failures.checkpoint_s / (2 * failures.mean_s);
  if (share >= 1) return failures.mean_s;
  return std::sqrt(2 * failures.checkpoint_s * failures.mean_s) *
             (1 + std::sqrt(share) / 3 + share / 9) -
         failures.checkpoint_s;
}

double useful_share(const Failures& failures, double interval_s) {
  const double mean_s = failures.mean_s;
  return interval_s / (mean_s * std::exp(failures.restart_s / mean_s) *
                       std::expm1((interval_s + failures.checkpoint_s) / mean_s));
}

}  // namespace fsdp::tools
