// What sharding will do, from the shapes alone: which units there are, how many bytes each takes
// sharded and unsharded, and in which order one step gathers and reduces them. No values are
// allocated and no ranks are needed, so any number of ranks can be asked about.
// The timeline repeats the rules of comm/fsdp/fully_sharded.h for a model whose blocks run in
// order, each a unit; a test compares it with what real steps do.
#pragma once

#include <string>
#include <vector>

#include "comm/fsdp/options.h"
#include "comm/fsdp/unit_options.h"
#include "tools/runtime/memory_formula.h"

namespace fsdp::tools {

struct UnitRow {
  std::string name;
  std::vector<Shape> shapes = {};       // of its parameters
  int64_t parameters = 0;               // elements, without padding
  int depth = 0;                        // how many units are around it
  std::vector<SegmentExtent> segments;  // trainable, frozen: as they are flattened and sharded
  int64_t norm_blocks = 0;              // of the trainable ones, with fixed_order
  int64_t place = 0;                    // in the order of use
  bool is_table = false;                // of an embedding
  bool backward_comes = true;           // something in it or before it is trained
  bool input_has_gradient = true;       // something before it is
  comm::FsdpOptions options = {};       // its own
  int64_t shard_numel() const;
};

struct GroupSizes {
  int shards = 1;    // ranks of a shard group
  int replicas = 1;  // shard groups
};
GroupSizes group_sizes(const comm::FsdpOptions& options, int world);

// Root first.
std::vector<UnitRow> unit_rows(Module& root, const comm::WrapPolicy& wrap,
                               const comm::FsdpOptions& options, int shards);
MemoryPlan memory_plan(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                       int shards, const WideGradients& wide);

struct PlannedCall {
  size_t unit = 0;
  std::string kind;   // "all_gather"
  int64_t bytes = 0;  // of the full buffer
};

// What the host issues between one computation and the next.
struct StepRow {
  std::vector<PlannedCall> gathers;
  std::string compute;  // "forward blocks.2"; "" when compute waits for the gathers
  size_t unit = 0;      // of compute
  std::vector<PlannedCall> reduces;
};
// Whether the timeline's rules hold: token and position table are not units of their own, which
// would be used within each other.
bool has_timeline(const std::vector<UnitRow>& units);
// All micro-steps of a step, one after the other.
std::vector<std::vector<StepRow>> step_timeline(const std::vector<UnitRow>& units,
                                                const comm::FsdpOptions& options,
                                                GroupSizes groups);

// Texts of several lines. Units in a row that are alike become one line, which ends with what they
// do otherwise than `options` say; of many units the timeline shows the first and the last ones.
std::string format_units(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                         int shards);
// Elements per rank as PyTorch's FSDP1 or FSDP2 would have them, beside ours.
enum class PyTorchLayout : uint8_t { kFsdp1, kFsdp2 };
std::string format_layout(const std::vector<UnitRow>& units, PyTorchLayout layout, int shards,
                          DType dtype);
std::string format_traffic(const std::vector<std::vector<StepRow>>& micro_steps);
std::string format_timeline(const std::vector<UnitRow>& units, const std::vector<StepRow>& rows);

}  // namespace fsdp::tools
