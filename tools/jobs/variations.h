// The jobs of a small sweep: every combination of the values of some keys, each with a run
// directory of its own. Read next: batch_file.h, which makes an array of them. Not here: jobs of
// this machine, one after the other (tools/sweep).
#pragma once

#include <string>
#include <vector>

namespace fsdp::tools {

struct VariedKey {
  std::string key;
  std::vector<std::string> values;  // as --set takes them; at least one
};
struct Combination {
  std::string name;                 // of a directory, after the values: "lr=1e-4,seed=2"
  std::vector<std::string> values;  // of each key
};
// All of them. The last key varies fastest. `what` begins the error where there are too many. Names
// may be equal: what a path cannot hold is another character in them.
std::vector<Combination> combinations_of(const std::vector<VariedKey>& keys,
                                         const std::string& what);

// The texts of --set that make one job out of a configuration: "train.lr=1e-4", ...,
// "runtime.run_dir=...".
using Variation = std::vector<std::string>;

// `given`: "train.lr=[1e-4, 3e-4]" each, a list of YAML. A run's directory is
// the one of `directory` that has the name of the combination. Error that
// names what was given, for what is no list, or a key that is there twice.
std::vector<Variation> variations_of(const std::vector<std::string>& given,
                                     const std::string& directory);

}  // namespace fsdp::tools
