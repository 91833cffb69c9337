// The part of a session's state that one rank keeps in a checkpoint: every element of every
// trained parameter and of its optimizer state belongs to exactly one rank, also where ranks are
// replicas of each other. Hashes of the state go over the same parts. Next: write_checkpoint.h.
// Not here: state that is the same on all ranks (manifest.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/checkpoint/manifest.h"
#include "tools/engine/session.h"

namespace fsdp::tools {

struct StatePartOwned {
  std::string name;      // in the checkpoint
  bool weights = false;  // else of the optimizer
  const Parameter* parameter = nullptr;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t first = 0;
  Tensor values;  // (n), elements [first, first + n) of it
};

// In the checkpoint: a parameter's value, and with `state` one of the optimizer's.
std::string stored_name(Session& session, const Parameter& parameter, std::string_view state = "");

// Trained parameters and their optimizer state.
std::vector<StatePartOwned> owned_state(Session& session);
// Parameters that are not trained.
std::vector<StatePartOwned> owned_frozen(Session& session);
// All that this rank holds of the trained parameters, and with `optimizer` of their state: what
// replicas share is on each of them.
std::vector<StatePartOwned> held_state(Session& session, bool optimizer);

// A unit that is trained: the weights that this rank keeps, and their reduced gradients where the
// clipper finds them, between backward and update. `access`: what is read of the gradients comes
// between begin and end.
struct OwnedUnit {
  std::string name;
  std::vector<StatePartOwned> weights, gradients;
  std::shared_ptr<ShardAccess> access;
};
std::vector<OwnedUnit> owned_units(Session& session);  // in unit order

// Copies the values to the host, a stretch at a time; `use` gets them in order.
void read_in_stretches(const Tensor& values,
                       const std::function<void(const std::byte* data, size_t bytes)>& use);

// Hashes one part after the other.
class StateHasher {
 public:
  void begin(const StatePartOwned& part);
  void add(const std::byte* data, size_t bytes);  // of the part begun last
  void end();
  StateHash sum() const { return sum_; }  // of this rank's parts

 private:
  StateHash sum_;
  uint64_t name_ = 0;
  uint64_t block_ = 0;  // number of the current one
  size_t block_bytes_ = 0;
  bool weights_ = false;
  std::string pending_;
};

StateHash hash_of(const std::vector<StatePartOwned>& parts);  // of this rank's

// Of all ranks' parts. Collective.
StateHash hash_over_ranks(comm::Communicator& world, const StateHash& mine);
StateHash hash_state(Session& session);
uint64_t hash_frozen(Session& session);  // 0: all parameters are trained
// Of every parameter, trained or not; also of a session without an optimizer.
uint64_t hash_weights(Session& session);

}  // namespace fsdp::tools
