// What the page shows of a plan: the jobs of a file that `fsdp plan --json` wrote, and how they
// scale. Not here: how a plan is made (tools/plan).
#pragma once

#include <filesystem>
#include <string>

#include "core/io/json.h"

namespace fsdp::tools {

struct PlanView {
  std::filesystem::path file;
  Json plan;
};

// Error for a file that is none of `fsdp plan --json`.
PlanView read_plan_view(const std::filesystem::path& file);

std::string plan_html(const PlanView& view);

}  // namespace fsdp::tools
