// See [Note: where it began].
#include "tools/run/difference_origin.h"

#include <fmt/ranges.h>

namespace fsdp::tools {
namespace {

using Names = std::vector<std::string>;

Names that_differ(const Names& units, const ComparedStep& step, uint64_t UnitHash::*hash) {
  Names out;
  for (size_t i = 0; i < units.size(); ++i) {
    if (step.recorded[i].*hash != step.computed[i].*hash) out.push_back(units[i]);
  }
  return out;
}

std::string origin_of_weights(const Names& units, const ComparedStep& step, const Names& differ) {
  const bool all = differ.size() == units.size() && units.size() > 1;
  const std::string where =
      all ? "all units"
          : fmt::format("unit{} {}", differ.size() == 1 ? "" : "s", fmt::join(differ, ", "));
  std::string why = fmt::format("there are no hashes of step {}", step.step - 1);
  if (step.before == StepBefore::kCheckpoint) {
    why = "they are those of the checkpoint that the replay began with";
  } else if (step.before == StepBefore::kEqual) {
    why = fmt::format(
        "the gradients of step {} are equal, so its update has done it, or the "
        "optimizer's state",
        step.step - 1);
  }
  return fmt::format("the difference began in {}: weights differ before step {}; {}", where,
                     step.step, why);
}

}  // namespace

std::string origin_of(const Names& units, const ComparedStep& step) {
  const Names weights = that_differ(units, step, &UnitHash::weights);
  if (!weights.empty()) return origin_of_weights(units, step, weights);
  const Names gradients = that_differ(units, step, &UnitHash::gradient);
  if (gradients.empty()) return "";
  const bool all = gradients.size() == units.size();
  if (!all || step.equal_loss == true) {
    return fmt::format(
        "the difference began in unit {}: of step {} its gradient is the first in backward that "
        "differs; weights are equal",
        gradients.front(), step.step);
  }
  const std::string unless =
      step.equal_loss ? "" : fmt::format(", or in unit {}, the first in backward", units.front());
  return fmt::format(
      "the difference began in the forward pass of step {}{}: weights are equal, the gradients of "
      "all units are not",
      step.step, unless);
}

}  // namespace fsdp::tools
