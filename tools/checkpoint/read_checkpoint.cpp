// Contract: tools/checkpoint/read_checkpoint.h.
#include "tools/checkpoint/read_checkpoint.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "core/io/safetensors.h"
#include "core/shape.h"
#include "core/shard_args.h"
#include "tools/checkpoint/owned_state.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kStretch = int64_t{1} << 20;  // elements that are on the host at a time

// Where nothing else can: on its way into a file.
std::vector<std::byte> converted(const std::vector<std::byte>& values, DType from, DType to,
                                 int64_t count) {
  std::vector<std::byte> out(static_cast<size_t>(count) * size_of(to));
  dispatch_floating(from, "checkpoint", [&]<typename From>(TypeTag<From>) {
    dispatch_floating(to, "checkpoint", [&]<typename To>(TypeTag<To>) {
      const auto* in = reinterpret_cast<const From*>(values.data());
      std::transform(in, in + count, reinterpret_cast<To*>(out.data()), [](From value) {
        return static_cast<To>(static_cast<Accumulate<To>>(value));
      });
    });
  });
  return out;
}

}  // namespace

Checkpoint::Checkpoint(std::filesystem::path folder, bool verify, const IoPatience& patience)
    : folder_(std::move(folder)),
      verify_(verify),
      patience_(patience),
      manifest_(patiently(patience_, [this] { return read_manifest(folder_); })) {
  readers_.resize(manifest_.files.size());
}

BlockReader& Checkpoint::reader(size_t file) {
  auto& reader = readers_[file];
  if (!reader)
    reader = std::make_unique<BlockReader>(folder_, manifest_.files[file], verify_, patience_);
  return *reader;
}

struct Checkpoint::Range {
  size_t file;
  uint64_t offset;  // bytes
  DType stored;
  Tensor values;
};

std::vector<Checkpoint::Range> Checkpoint::ranges_of(const std::vector<Target>& targets) const {
  std::vector<Range> ranges;
  for (const Target& target : targets) {
    const auto found = manifest_.tensors.find(target.tensor);
    FSDP_CHECK(found != manifest_.tensors.end(), "{}: no tensor {}", folder_.string(),
               target.tensor);
    const StoredTensor& tensor = found->second;
    FSDP_CHECK(tensor.dtype == target.values.dtype() ||
                   (is_floating(tensor.dtype) && is_floating(target.values.dtype())),
               "{}: {}: expected {}, got {}", folder_.string(), target.tensor,
               fsdp::name_of(target.values.dtype()), fsdp::name_of(tensor.dtype));
    for (const StoredPiece& piece : tensor.pieces) {
      const int64_t begin = std::max(target.first, piece.first);
      const int64_t end = std::min(target.first + target.values.numel(), piece.first + piece.count);
      if (begin >= end) continue;
      const uint64_t skipped = static_cast<uint64_t>(begin - piece.first) * size_of(tensor.dtype);
      ranges.push_back({piece.file, piece.offset + skipped, tensor.dtype,
                        target.values.slice(begin - target.first, Shape{end - begin})});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  return ranges;
}

void Checkpoint::read(const std::vector<Target>& targets, comm::WorkProgress* progress) {
  std::vector<std::byte> host;
  for (const Range& range : ranges_of(targets)) read_range(range, host, progress);
}

void Checkpoint::read_range(const Range& range, std::vector<std::byte>& host,
                            comm::WorkProgress* progress) {
  const size_t size = size_of(range.stored);
  for (int64_t done = 0; done < range.values.numel(); done += kStretch) {
    const int64_t count = std::min(kStretch, range.values.numel() - done);
    Tensor part = range.values.slice(done, Shape{count});
    host.resize(static_cast<size_t>(count) * size);
    const auto read = [&] {
      reader(range.file)
          .read(range.offset + static_cast<uint64_t>(done) * size, host.data(), host.size());
    };
    progress ? progress->during(read) : read();
    if (range.stored == part.dtype()) {
      part.write(host.data());
      continue;
    }
    if (!part.backend().computes()) {
      part.write(converted(host, range.stored, part.dtype(), count).data());
      continue;
    }
    Backend& backend = part.backend();
    const Tensor exact =
        Tensor::empty(backend, Shape{count}, range.stored, MemoryCategory::kWorkspace);
    exact.write(host.data());
    backend.run(backend.compute_stream(), CastArgs{exact, part});
  }
}

uint64_t Checkpoint::bytes_read() const {
  uint64_t bytes = 0;
  for (const auto& reader : readers_) bytes += reader ? reader->bytes_read() : 0;
  return bytes;
}

// That the file, read as safetensors by anybody, has the tensors of the manifest where the manifest
// says, and no others.
void Checkpoint::check_entries(size_t number) const {
  const BlockChecksums& sums = manifest_.files[number];
  const SafetensorsFile file = SafetensorsFile::open(folder_ / sums.name);
  uint64_t data = 0;
  for (const auto& [name, entry] : file.entries()) data = std::max<uint64_t>(data, entry.end);
  size_t listed = 0;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const StoredPiece& piece : tensor.pieces) {
      if (piece.file != number) continue;
      ++listed;
      const bool same = file.contains(name) && file.entry(name).dtype == tensor.dtype &&
                        file.entry(name).numel == piece.count &&
                        sums.bytes - data + file.entry(name).begin == piece.offset;
      FSDP_CHECK(same, "{}: {}: not as {} says", file.path().string(), name, kManifestName);
    }
  }
  FSDP_CHECK(listed == file.entries().size(), "{}: expected {} tensors as in {}, got {}",
             file.path().string(), listed, kManifestName, file.entries().size());
}

std::vector<std::string> Checkpoint::verify_all() {
  std::vector<std::string> problems;
  for (size_t i = 0; i < readers_.size(); ++i) {
    try {
      BlockReader(folder_, manifest_.files[i], true, patience_).verify_all();
      check_entries(i);
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  }
  return problems;
}

// ---------------------------------------------------------------------------- Into a session

void check_tensors(Session& session, const Checkpoint& checkpoint, MissingState missing) {
  const auto& stored = checkpoint.manifest().tensors;
  std::vector<std::string> problems;  // all at once: a model that differs differs in more than one
  std::set<std::string> known;
  for (const Parameter* p : session.parameters()) {
    if (!p->trainable()) continue;
    const std::string name = stored_name(session, *p);
    known.insert(name);
    const auto found = stored.find(name);
    if (found == stored.end()) {
      problems.push_back(name + " is missing");
    } else if (found->second.shape != p->shape().extents()) {
      problems.push_back(fmt::format("{}: expected {}, got {}", name, p->shape().str(),
                                     Shape(found->second.shape).str()));
    }
  }
  for (const auto& [name, tensor] : stored) {
    const std::string parameter = name.substr(0, name.find('/'));
    if (known.count(parameter) == 0) problems.push_back(name + " is not trained here");
  }
  for (const StatePartOwned& part : held_state(session, missing == MissingState::kError)) {
    if (!part.weights && !checkpoint.contains(part.name)) {
      problems.push_back(part.name + " is missing");
    }
  }
  constexpr size_t kShown = 10;
  const size_t all = problems.size();
  if (all > kShown) problems.resize(kShown);
  FSDP_CHECK(all == 0, "{}: its tensors are not those of the model ({}): {}",
             checkpoint.folder().string(), all, fmt::join(problems, "; "));
}

namespace {

void read_held(Session& session, Checkpoint& checkpoint, bool optimizer, MissingState missing) {
  check_tensors(session, checkpoint, optimizer ? missing : MissingState::kZero);
  std::vector<Checkpoint::Target> targets;
  for (const StatePartOwned& part : held_state(session, optimizer)) {
    const bool absent = missing == MissingState::kZero && !part.weights;
    if (absent && !checkpoint.contains(part.name)) continue;
    targets.push_back({part.name, part.first, part.values.view(Shape{part.values.numel()})});
  }
  session.sharded().before_masters_are_written();
  checkpoint.read(targets, session.world().rings()->progress().get());
  session.sharded().masters_written();
}

}  // namespace

void walk_restored(Session& session) {
  session.sharded().before_masters_are_written();
  session.sharded().masters_written();
}

void restore_weights(Session& session, Checkpoint& checkpoint) {
  read_held(session, checkpoint, false, MissingState::kError);
}

void restore(Session& session, Checkpoint& checkpoint, MissingState missing) {
  const Manifest& manifest = checkpoint.manifest();
  session.sharded().set_updates(manifest.updates);  // what masters are rounded by
  read_held(session, checkpoint, true, missing);
  if (optim::LossScaler* scaler = session.loss_scaler(); scaler && manifest.loss_scale) {
    scaler->restore(*manifest.loss_scale);
  }
}

}  // namespace fsdp::tools
