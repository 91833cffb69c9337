// The units of a sharded model as a table: their parameters and padding, and what a rank holds of
// each. Not here: when they are gathered and reduced (unit_timeline.h), what a run takes besides
// (meta_run.h).
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "comm/fsdp/fully_sharded.h"
#include "core/shape.h"

namespace fsdp::tools {

// Parameters of a unit that are all trainable or all frozen.
struct SegmentExtent {
  int64_t shard_numel = 0;
  int64_t parameters = 0;
  bool trainable = true;
  bool operator==(const SegmentExtent&) const = default;
};

struct UnitRow {
  std::string name;
  std::vector<Shape> shapes = {};  // of its parameters, trainable ones first
  int64_t parameters = 0;          // elements, without padding
  int depth = 0;                   // how many units are around it
  bool awaits_backward = false;    // comm/fsdp/plan.h
  std::vector<SegmentExtent> segments = {};
  comm::UnitPolicy policy = {};
  int64_t shard_numel() const;
};

// Root first.
std::vector<UnitRow> unit_rows(const comm::FullySharded& sharded);

int64_t bytes_of(int64_t numel, DType dtype);
// "1.50" of a number of bytes.
std::string mib(std::integral auto bytes) {
  return fmt::format("{:.2f}", static_cast<double>(bytes) / (1 << 20));
}

// Texts of several lines. Units in a row that are alike become one line, which ends with what they
// do otherwise than `options` say.
std::string format_units(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                         comm::GroupSizes groups);
// Elements per rank as PyTorch's FSDP1 or FSDP2 would have them, beside ours.
enum class PyTorchLayout : uint8_t { kFsdp1, kFsdp2 };
std::string format_layout(const std::vector<UnitRow>& units, PyTorchLayout layout, int shards,
                          DType dtype);

// ---- Predicted times for people: three digits, because a prediction has no more.

// "9.68 s", "12.3 ms", "845 us"; "0 s".
std::string duration_text(double seconds);

// ---- How many elements of a unit each rank would hold under PyTorch FSDP, whose padding differs
// from ours (core/flat_layout.h): for comparing plans. Nothing here is ever allocated.

// FSDP1, use_orig_params=False: one flat parameter, padded to a multiple of the ranks.
int64_t fsdp1_shard(const std::vector<Shape>& parameters, int ranks);
// FSDP1, use_orig_params=True: every parameter begins at a multiple of 16 bytes of the compute
// dtype.
int64_t fsdp1_original_shard(const std::vector<Shape>& parameters, int ranks,
                             int64_t element_bytes);

// FSDP2: every parameter is cut along its first dimension into pieces of equally many rows, of
// which the last ranks may have fewer or none; communication pads all to the first rank's.
struct Fsdp2Shards {
  int64_t padded = 0;
  std::vector<int64_t> held;  // by rank
};
Fsdp2Shards fsdp2_shards(const std::vector<Shape>& parameters, int ranks);

}  // namespace fsdp::tools
