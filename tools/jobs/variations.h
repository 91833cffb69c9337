// The jobs of a small sweep: every combination of the values of some keys, each with a run
// directory of its own. Read next: slurm_script.h, which makes an array of them.
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

// The texts of --set that make one job out of a configuration: "train.lr=1e-4", ...,
// "runtime.run_dir=...".
using Variation = std::vector<std::string>;

// `given`: "train.lr=[1e-4, 3e-4]" each, a list of YAML. The last key varies fastest. A run's
// directory is the one of `directory` that is named after its values: "lr=1e-4,seed=2". Error that
// names what was given, for what is no list, or a key that is there twice.
std::vector<Variation> variations_of(const std::vector<std::string>& given,
                                     const std::string& directory);

}  // namespace fsdp::tools
