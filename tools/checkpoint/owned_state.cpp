// Which rank keeps what, and hashes. Contract: tools/checkpoint/owned_state.h.
#include "tools/checkpoint/owned_state.h"

#include <algorithm>

#include "comm/exchange.h"
#include "comm/fsdp/fully_sharded.h"
#include "core/io/checksum.h"
#include "models/adapter_folder.h"
#include "models/names.h"

namespace fsdp::tools {
namespace {

// Elements of a parameter that are hashed together. Parts begin at multiples: the layout aligns
// parameters and shards to as many.
constexpr int64_t kHashed = kFlatAlignment;
constexpr size_t kStretchBytes = size_t{4} << 20;

// Replicas hold the same: of `count` elements each takes a share, cut between hashed blocks.
struct Share {
  int64_t first, count;
};
Share share_of(int64_t count, int replica, int replicas) {
  const int64_t blocks = (count + kHashed - 1) / kHashed;
  const auto cut = [&](int64_t i) { return std::min(blocks * i / replicas * kHashed, count); };
  return {cut(replica), cut(replica + 1) - cut(replica)};
}

class Collector {
 public:
  // `shared`: each replica takes a part of what all of them hold.
  Collector(Session& session, bool shared)
      : session_(session),
        shared_(shared),
        replica_(shared ? session.sharded().mesh().across_replicas().rank() : 0),
        replicas_(shared ? session.sharded().mesh().replicas() : 1) {}

  void add(const Parameter& parameter, std::string_view state, int64_t first,
           const Tensor& values) {
    const Share share = share_of(values.numel(), replica_, replicas_);
    if (share.count == 0) return;
    parts.push_back({.name = stored_name(session_, parameter, state),
                     .weights = state.empty(),
                     .parameter = &parameter,
                     .shape = parameter.shape().extents(),
                     .first = first + share.first,
                     .values = values.slice(share.first, Shape{share.count})});
  }

  // `shard`: (n), of the segment: its master or gradient.
  void add_shard(const comm::ParameterSegment& segment, const Tensor& shard) {
    for (const ShardPiece& piece : segment.layout.pieces(session_.sharded().mesh().shard_index())) {
      const auto index = static_cast<size_t>(piece.parameter);
      add(*segment.layout.parameters()[index].parameter, "", piece.parameter_begin,
          shard.slice(piece.shard_begin, Shape{piece.count}));
    }
  }

  void add_masters(bool trainable) {
    for (const auto& unit : session_.sharded().units()) {
      for (const comm::ParameterSegment& segment : unit->parameters.segments()) {
        if (segment.trainable == trainable) add_shard(segment, segment.master);
      }
    }
  }

  void add_optimizer() {
    session_.optimizer().visit_state([&](const optim::StatePart& part) {
      if (part.values.shape().rank() == 0) return add_scalar(part);
      add(part.parameter, part.name, part.first, part.values);
    });
  }

  std::vector<StatePartOwned> parts;

 private:
  // What is the same on all ranks is rank 0's.
  void add_scalar(const optim::StatePart& part) {
    if (shared_ && session_.world().rank() != 0) return;
    parts.push_back({.name = stored_name(session_, part.parameter, part.name),
                     .weights = false,
                     .parameter = &part.parameter,
                     .shape = {},
                     .first = 0,
                     .values = part.values});
  }

  Session& session_;
  bool shared_;
  int replica_, replicas_;
};

}  // namespace

std::string stored_name(Session& session, const Parameter& parameter, std::string_view state) {
  const models::ModelConfig& config = session.model().config();
  const std::string name = models::is_lora(parameter)
                               ? models::adapter_name(config, parameter)
                               : models::hugging_face_name(config, parameter.name());
  return state.empty() ? name : fmt::format("{}/{}", name, state);
}

std::vector<StatePartOwned> owned_state(Session& session) {
  Collector collector(session, true);
  collector.add_masters(true);
  collector.add_optimizer();
  return std::move(collector.parts);
}

std::vector<StatePartOwned> held_state(Session& session, bool optimizer) {
  Collector collector(session, false);
  collector.add_masters(true);
  if (optimizer) collector.add_optimizer();
  return std::move(collector.parts);
}

std::vector<StatePartOwned> owned_frozen(Session& session) {
  Collector collector(session, true);
  collector.add_masters(false);
  return std::move(collector.parts);
}

std::vector<OwnedUnit> owned_units(Session& session) {
  std::vector<OwnedUnit> units;
  for (const auto& unit : session.sharded().units()) {
    if (!unit->gradients) continue;
    const comm::ParameterSegment& segment = *unit->parameters.trainable();
    Collector weights(session, true), gradients(session, true);
    weights.add_shard(segment, segment.master);
    gradients.add_shard(segment, unit->gradients->shard());
    units.push_back(
        {unit->name, std::move(weights.parts), std::move(gradients.parts), segment.home});
  }
  return units;
}

void read_in_stretches(const Tensor& values,
                       const std::function<void(const std::byte* data, size_t bytes)>& use) {
  const auto stretch = static_cast<int64_t>(kStretchBytes / size_of(values.dtype()));
  std::vector<std::byte> host;
  for (int64_t first = 0; first < values.numel(); first += stretch) {
    const Tensor part = values.slice(first, Shape{std::min(stretch, values.numel() - first)});
    host.resize(part.bytes());
    part.read(host.data());
    use(host.data(), host.size());
  }
}

// ---------------------------------------------------------------------------- Hashes

void StateHasher::begin(const StatePartOwned& part) {
  FSDP_CHECK(part.first % kHashed == 0, "[checkpoint] {}: a part begins at element {}", part.name,
             part.first);
  name_ = checksum(part.name);
  block_ = static_cast<uint64_t>(part.first / kHashed);
  block_bytes_ = static_cast<size_t>(kHashed) * size_of(part.values.dtype());
  weights_ = part.weights;
}

void StateHasher::add(const std::byte* data, size_t bytes) {
  std::string_view rest(reinterpret_cast<const char*>(data), bytes);
  const auto add_block = [&](std::string_view block) {
    (weights_ ? sum_.weights : sum_.optimizer) += mixed(checksum(block) ^ mixed(name_ + block_++));
  };
  if (!pending_.empty()) {  // of a block that was cut
    const size_t taken = std::min(block_bytes_ - pending_.size(), rest.size());
    pending_ += rest.substr(0, taken);
    rest.remove_prefix(taken);
    if (pending_.size() < block_bytes_) return;
    add_block(pending_);
    pending_.clear();
  }
  for (; rest.size() >= block_bytes_; rest.remove_prefix(block_bytes_)) {
    add_block(rest.substr(0, block_bytes_));
  }
  pending_ = rest;
}

void StateHasher::end() {
  if (pending_.empty()) return;
  (weights_ ? sum_.weights : sum_.optimizer) += mixed(checksum(pending_) ^ mixed(name_ + block_));
  pending_.clear();
}

StateHash hash_over_ranks(comm::Communicator& world, const StateHash& mine) {
  StateHash all;
  for (const StateHash& rank : comm::exchange_values(world, mine)) {
    all.weights += rank.weights;
    all.optimizer += rank.optimizer;
  }
  return all;
}

StateHash hash_of(const std::vector<StatePartOwned>& parts) {
  StateHasher hasher;
  for (const StatePartOwned& part : parts) {
    hasher.begin(part);
    read_in_stretches(part.values, [&](const std::byte* data, size_t n) { hasher.add(data, n); });
    hasher.end();
  }
  return hasher.sum();
}

namespace {

StateHash hash_parts(Session& session, const std::vector<StatePartOwned>& parts) {
  return hash_over_ranks(session.world(), hash_of(parts));
}

}  // namespace

StateHash hash_state(Session& session) { return hash_parts(session, owned_state(session)); }

uint64_t hash_weights(Session& session) {
  Collector collector(session, true);
  collector.add_masters(true);
  collector.add_masters(false);
  return hash_parts(session, collector.parts).weights;
}

uint64_t hash_frozen(Session& session) {
  return hash_parts(session, owned_frozen(session)).weights;
}

}  // namespace fsdp::tools
