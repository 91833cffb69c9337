// A plan for people and programs: the table of its jobs, why the first beats the second, the
// configuration that runs it. Not here: the numbers (planned_job.h).
#pragma once

#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/plan/plan_search.h"

namespace fsdp::tools {

struct Plan {
  PlanQuestion question;
  std::string model;               // in a line
  std::vector<std::string> notes;  // what was assumed
  SearchResult found;              // without a search: one job for each number of nodes
  bool searched = false;
  Best best = Best::kCheapest;  // of a search
};

// Of which it is of interest how they scale: of each number of nodes one.
const std::vector<PlannedJob>& scaling_jobs(const Plan& plan);

std::string format_plan(const Plan& plan);
Json plan_json(const Plan& plan);

// "-12.3 ms waiting for gathers, ...": what `b` takes more than `a` in a step. Of jobs on other
// numbers of GPUs: in as much time of GPUs, where the cheapest is sought.
std::string why_better(const PlannedJob& a, const PlannedJob& b, Best best);
// Only the keys that are not as by default.
std::string short_yaml(const config::TrainConfig& config);

// ---- How a plan scales, as a picture (SVG): tokens/s of all GPUs over their number, both as
// logarithms, beside what as many times the GPUs as in the first job would give.

struct PlanPoint {
  int gpus = 0;
  double tokens_per_s = 0;  // of all GPUs
  std::string label;        // what the job is, for whoever points at it
};

// The points by rising number of GPUs; of several with the same number the fastest. "": fewer than
// two numbers.
std::string scaling_plot(std::vector<PlanPoint> points);

}  // namespace fsdp::tools
