// Contract: tools/checkpoint/write_checkpoint.h.
#include "tools/checkpoint/write_checkpoint.h"

#include <optional>

#include "comm/exchange.h"
#include "core/io/safetensors.h"
#include "core/io/shard_index.h"
#include "tools/launch/launch.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

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
