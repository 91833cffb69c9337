// A rule that needs whole matrices: it steps all parameters of some roles (Muon the hidden
// matrices), while an element-wise rule (core/optimizer_rules) steps the rest. Each rank has a
// piece of a matrix; gather() gives it the whole of any value that is kept by piece.
//
// Every rank of the group steps the same matrices in the same order, one after another. Where a
// rank has no element of a matrix, its piece is empty. What a rule computes of a whole matrix it
// computes on every rank, from the same bits, so that the weights do not depend on the number of
// ranks. [Note: memory of whole matrices] gather() takes one matrix, in the dtype of what is
// gathered, and gives it back when the rule drops the tensor: a rule that holds one at a time needs
// the memory of the largest, in MemoryCategory::kCommunication.
// Not here: which parameter has which role (core/autograd.h; models say it).
#pragma once

#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/flat_layout.h"

namespace fsdp {
struct ShardUpdate;
}

namespace fsdp::optim {

// One matrix in one step. `piece`: this rank's elements, (n) each, n may be 0, as the kernels of
// the element-wise rules take them; its gradient is to be multiplied by gradient_scale.
struct MatrixUpdate {
  const Parameter& parameter;
  const ShardUpdate& piece;
  std::vector<Tensor>& state;   // (n) each, in the order of the rule's state_names()
  int64_t first;                // element of the parameter with which the piece begins
  comm::Communicator* group;    // ranks with the other pieces; null: this rank has them all
  std::vector<int64_t> counts;  // elements that each of them has, in rank order

  // From every rank's piece the whole, in the parameter's shape. Collective over the group: a
  // broadcast of each piece that is not empty, without padding. `values`: (n).
  Tensor gather(const Tensor& values) const;
  // This rank's elements of a whole: (n), a view.
  Tensor piece_of(const Tensor& whole) const;
};

class MatrixRule {
 public:
  virtual ~MatrixRule() = default;
  // Names of the values that are kept for every element of a matrix.
  virtual std::vector<std::string_view> state_names() const { return {}; }
  virtual void update(MatrixUpdate& matrix) = 0;
};

// What an optimizer needs besides its shards to step whole matrices.
struct WholeMatrices {
  std::shared_ptr<MatrixRule> rule;  // null: the element-wise rule steps everything
  std::vector<ParameterRole> roles = {ParameterRole::kHiddenMatrix};
  // Of the shards of one buffer, rank = shard; null or one rank: nothing is sharded.
  comm::Communicator* group = nullptr;
  Backend* collectives = nullptr;  // on whose memory the group works; null: on the masters'
};

}  // namespace fsdp::optim
