// What a run is, under the names that the scripts of the Mistral guide keep in their run_args.json
// and metrics.json, so that what reads such files reads ours. Everything else about a run:
// run_directory.h, metrics.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/io/json.h"

namespace fsdp::tools {

struct RunFacts {
  std::string model;    // folder, or what it is
  std::string dataset;  // the training text, as given
  std::string run_name;
  std::string sharding_strategy;
  int64_t max_steps = 0;
  int64_t seq_len = 0;
  int64_t bsz = 0;  // rows of a rank in a micro-step
  int64_t grad_accum = 1;
  double lr = 0;
  int64_t seed = 0;
  std::optional<int64_t> subset_size;  // of the rows; none: all
  bool fsdp = true;                    // something is sharded
  bool bf16 = false;
  bool use_lora = false;
  bool gradient_checkpointing = false;
  std::string cpu;  // the model of rank 0's host
  std::string gpu;  // of rank 0; "": the CPU computes
};
Json to_json(const RunFacts& facts);

}  // namespace fsdp::tools
