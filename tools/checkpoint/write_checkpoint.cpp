// Contract: tools/checkpoint/write_checkpoint.h.
#include "tools/checkpoint/write_checkpoint.h"

#include <algorithm>
#include <cstring>

#include "comm/exchange.h"
#include "comm/fsdp/fully_sharded.h"
#include "core/io/safetensors.h"
#include "core/io/shard_index.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

constexpr size_t kStretchBytes = size_t{4} << 20;
constexpr size_t kAlignment = 64;  // a cache line; of any dtype

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// In the order of the file, so that the file is written from its beginning to its end: that is what
// its checksums go over.
ShardContents write_shard(const fs::path& file, const StateToWrite& state, StateHasher& hasher,
                          comm::WorkProgress& progress) {
  std::map<std::string, size_t> by_name;
  std::vector<SafetensorsSpec> specs;
  for (const StatePartOwned& part : state.parts) {
    by_name[part.name] = specs.size();
    specs.push_back({part.name, part.values.dtype(), part.values.shape().extents()});
  }
  const SafetensorsLayout layout = safetensors_layout(specs, {{"format", "pt"}}, file);
  ShardContents shard;
  BlockWriter writer(file);
  writer.write(layout.head);
  for (size_t i = 0; i < layout.tensors.size(); ++i) {
    const size_t number = by_name.at(layout.tensors[i].name);
    const StatePartOwned& part = state.parts[number];
    shard.tensors[part.name] = {
        .dtype = part.values.dtype(),
        .shape = part.shape,
        .pieces = {{0, part.first, part.values.numel(), layout.offsets[i]}}};
    hasher.begin(part);
    read_part(state, number, [&](const std::byte* data, size_t bytes) {
      hasher.add(data, bytes);
      progress.during([&] { writer.write(data, bytes); });
    });
    hasher.end();
  }
  shard.file = progress.during([&] { return writer.commit(); });
  return shard;
}

}  // namespace

StateToWrite state_to_write(Session& session) {
  StateToWrite state = {.parts = owned_state(session),
                        .staged = {},
                        .updates = session.sharded().updates(),
                        .loss_scale = {}};
  if (const optim::LossScaler* scaler = session.loss_scaler()) state.loss_scale = scaler->state();
  return state;
}

void read_part(const StateToWrite& state, size_t part,
               const std::function<void(const std::byte* data, size_t bytes)>& use) {
  const Tensor& values = state.parts[part].values;
  if (state.staged.empty()) return read_in_stretches(values, use);
  for (size_t done = 0; done < values.bytes(); done += kStretchBytes) {
    use(state.staged[part] + done, std::min(kStretchBytes, values.bytes() - done));
  }
}

StagingMemory::StagingMemory(Session& session) : session_(session) {
  for (const StatePartOwned& part : owned_state(session)) bytes_ += aligned(part.values.bytes());
  // Zeros: its pages are there before the first checkpoint needs them.
  memory_ =
      Tensor::zeros(session.host_memory(), Shape{static_cast<int64_t>(bytes_ / sizeof(int32_t))},
                    DType::kI32, MemoryCategory::kWorkspace);
}

StateToWrite StagingMemory::copy() {
  StateToWrite state = state_to_write(session_);
  auto* place = static_cast<std::byte*>(memory_.data());
  Backend* waited_for = nullptr;
  for (const StatePartOwned& part : state.parts) {
    Backend& backend = part.values.backend();
    if (backend.host_reaches_memory()) {
      if (&backend != waited_for) backend.synchronize(backend.compute_stream());
      waited_for = &backend;
      std::memcpy(place, part.values.data(), part.values.bytes());
    } else {
      part.values.read(place);
    }
    state.staged.push_back(place);
    place += aligned(part.values.bytes());
  }
  return state;
}

Manifest write_checkpoint(Session& session, const fs::path& folder, const Manifest& facts) {
  return write_checkpoint(session.world(), state_to_write(session), folder, facts);
}

Manifest write_checkpoint(comm::Communicator& world, const StateToWrite& state,
                          const fs::path& folder, const Manifest& facts,
                          const IoPatience& patience) {
  comm::WorkProgress& progress = *world.rings()->progress();
  const auto rank = static_cast<size_t>(world.rank()), ranks = static_cast<size_t>(world.size());
  std::optional<AtomicFolder> made;  // of rank 0
  agree(world, [&] {
    if (rank != 0) return;
    patiently(patience, [&] { made.emplace(folder, AtomicFolder::Existing::kReplaced); });
  });
  const fs::path place = comm::from_first_rank(world, made ? made->temporary().string() : "");
  std::optional<StateHasher> hasher;
  std::string mine;
  agree(world, [&] {
    const fs::path file = place / numbered_file("shard", rank, ranks);
    // A file that could not be written is begun anew: after a failed fsync nobody knows what of it
    // is on the disk.
    mine = patiently(patience,
                     [&] { return to_text(write_shard(file, state, hasher.emplace(), progress)); });
  });
  Manifest manifest = facts;
  manifest.hash = hash_over_ranks(world, hasher->sum());
  manifest.world_size = world.size();
  manifest.updates = state.updates;
  manifest.loss_scale = state.loss_scale;
  const std::vector<std::string> texts = world.exchange(mine);
  agree(world, [&] {
    std::vector<ShardContents> shards;
    for (const std::string& text : texts) shards.push_back(shard_from_text(text));
    add_shards(manifest, shards);
    if (!made) return;
    patiently(patience, [&] {
      progress.during(
          [&] { write_file_atomically(place / kManifestName, manifest_text(manifest)); });
    });
    patiently(patience, [&] { progress.during([&] { made->commit(); }); });
  });
  return manifest;
}

}  // namespace fsdp::tools
