// Which algorithm was the fastest for which kind of matrix product, in a file, so that a later run
// takes the same ones.
//
// [Note: whose choice counts]
// Two algorithms may add in another order, so a choice by time may change the bits of a result.
// What is promised: processes that use one folder, at once or one after another, on GPUs of one
// name and with one version of cuBLASLt, take the same algorithms. Each times what the file does
// not have when it meets it, and nobody waits for another's GPU while doing so; the first to write
// a kind into the file decides, and the others drop what they have found. Ranks with other folders
// or GPUs may take others, and so may one that cannot use the file (read-only, no locks, damaged
// disk: it goes by its own times) or cannot time (no memory is free, every algorithm is refused: it
// takes cuBLASLt's first one and leaves the file alone); each tells its note. That changes which
// bits a rank adds to the gradients, never whether ranks agree: what they hold in common (gathered
// parameters, reduced gradients, the loss) each gets from a collective.
//
// The file is no authority on what can be run: an entry counts only where it is one of the
// algorithms that cuBLASLt offers now for that kind. A damaged file, or an entry that is not
// offered, is told to the note and measured again.
// Not here: measuring (matmul_timing.h).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/matmul_plan.h"

namespace fsdp::cuda {

class MatmulChoices {
 public:
  using Note = std::function<void(const std::string&)>;  // may be empty

  // `machine` names the GPU and the library. The folder need not exist.
  MatmulChoices(const std::filesystem::path& folder, const std::string& machine, Note note);

  // Where the choice for this kind stands among the candidates; their number when there is none.
  size_t find(const MatmulKind& kind, const std::vector<lt::HeuristicResult>& candidates);
  // Writes that candidate `fastest` is the choice, unless another process was first, and returns
  // the one that counts. Where folder, lock or file cannot be used: `fastest`, and the note is told
  // once.
  size_t keep(const MatmulKind& kind, const std::vector<lt::HeuristicResult>& candidates,
              size_t fastest);

 private:
  using Entries = std::map<std::string, std::string>;  // text of the kind and of the algorithm

  Entries read();
  size_t keep_in_file(const MatmulKind& kind, const std::vector<lt::HeuristicResult>& candidates,
                      size_t fastest);
  void give_up(const std::string& why);
  void write(const Entries& entries) const;

  std::filesystem::path file_;
  Note note_;
  Entries entries_;
  bool unusable_ = false;  // the file, from now on
};

}  // namespace fsdp::cuda
