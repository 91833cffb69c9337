// checkpoint.json, the manifest of a checkpoint: which tensors lie where, the checksums of all
// files, and everything that a run needs besides tensors to go on. It is written last, so that a
// folder with a manifest is a complete checkpoint. Tensors are addressed by (name, element range):
// a parameter's value has the name that it has in Hugging Face's files (PEFT's, of an adapter), its
// optimizer state that name and "/exp_avg", "/step", ... Next: write_checkpoint.h,
// read_checkpoint.h. Not here: which checkpoints a run keeps (run_checkpoints.h).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "optim/loss_scaler.h"
#include "tools/checkpoint/block_file.h"
#include "tools/report/train_totals.h"

namespace fsdp::tools {

inline constexpr const char* kManifestName = "checkpoint.json";

// Elements [first, first + count) of a tensor: bytes from `offset` on of a file.
struct StoredPiece {
  size_t file = 0;  // index into Manifest::files
  int64_t first = 0;
  int64_t count = 0;
  uint64_t offset = 0;
  bool operator==(const StoredPiece&) const = default;
};

struct StoredTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;       // of the whole parameter
  std::vector<StoredPiece> pieces;  // in order, without gaps
  bool operator==(const StoredTensor&) const = default;
};

// Sums over blocks of (name, index, value): equal for equal states, however they are sharded.
struct StateHash {
  uint64_t weights = 0;
  uint64_t optimizer = 0;
  bool operator==(const StateHash&) const = default;
};
std::string hex(uint64_t value);  // 16 digits

struct Manifest {
  // ---- what the run is ----
  std::string program;                      // commit that wrote it
  std::string device;                       // kind of processor or GPU that computed, of rank 0
  std::string config;                       // YAML, every key
  std::string model;                        // config.json of the model
  std::string run;                          // id; "": written before runs had one
  std::string run_directory;                // as an absolute path, of that time
  std::string working_directory;            // that relative paths of `config` begin at
  int64_t total_steps = 0;                  // of the run, epochs counted in steps; 0: not known
  std::map<std::string, std::string> data;  // hashes of tokens and tokenizer, by what they are of
  std::string base_path;                    // of parameters that are not trained; empty: none are
  uint64_t base_hash = 0;
  int world_size = 1;

  // ---- where it is ----
  TrainTotals progress;
  uint32_t updates = 0;  // calls of the optimizer: the number that stochastic rounding draws by
  std::optional<optim::LossScalerState> loss_scale;
  std::map<std::string, double> metrics;  // the last ones, by name

  // ---- its state ----
  StateHash hash;
  std::map<std::string, StoredTensor> tensors;
  std::vector<BlockChecksums> files;

  int64_t step() const { return progress.steps; }
  uint64_t state_bytes() const;
};

// A checkpoint that another version of this program has written: it is whole, but not for this one.
class OtherFormat : public Error {
 public:
  using Error::Error;
};

std::string manifest_text(const Manifest& manifest);
// Error, which begins with `source`, unless the text is as it was written: its own checksum comes
// first; OtherFormat. Then the pieces of every tensor are all of it, and lie in files that the
// manifest names.
Manifest parse_manifest(std::string_view text, const std::string& source);
// Error for a folder without a manifest: it is incomplete.
Manifest read_manifest(const std::filesystem::path& checkpoint);

// ---- parts, for the exchange between the ranks that write ----
// What one file holds: tensors of which the others hold the rest.
struct ShardContents {
  BlockChecksums file;
  std::map<std::string, StoredTensor> tensors;  // one piece each, of file 0
};
std::string to_text(const ShardContents& shard);
ShardContents shard_from_text(const std::string& text);
// Sets tensors and files.
void add_shards(Manifest& manifest, const std::vector<ShardContents>& shards);

}  // namespace fsdp::tools
