// How much of a job's time is work when its machines fail now and then, and how often it should
// save. Failures come at random, with a mean time M between them; a checkpoint takes d, a restart
// R; a failure loses the work since the last checkpoint.
//
//   best interval   sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 2M / 9) - d, or M where d >= 2M
//   share of work   t / (M e^(R/M) (e^((t + d)/M) - 1)), for an interval of t seconds of work
//
// Sources: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
// dumps", Future Generation Computer Systems 22 (2006), equations 37 and 20; its first term is
// J. W. Young's of 1974. Not here: what a checkpoint takes (tools/predict).
#pragma once

namespace fsdp::tools {

struct Failures {
  double mean_s = 0;        // between two of the job: 1 / (rate of a GPU x GPUs)
  double checkpoint_s = 0;  // above 0
  double restart_s = 0;     // until the job works again
};

double best_interval_s(const Failures& failures);
// 0 to 1, with a checkpoint after every `interval_s` of work.
double useful_share(const Failures& failures, double interval_s);

}  // namespace fsdp::tools
