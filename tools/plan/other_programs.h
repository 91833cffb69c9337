// What other programs' kernels do otherwise than this one's, for the comparison of predictions with
// their published steps: products and attention are timed by the same model of the device
// (tools/predict/call_rates.h), in the order of this program's own step; but what their
// memory-bound kernels move is theirs, and what they compute again.
//
// Bytes that a token moves in a block's forward or backward:
//   hidden * C + kv * (C + C_kv) + ffn * F + scores * heads * T
// for C channels, C_kv of all key heads, F of the MLP, T tokens of a row. They are counted from the
// operations that the program's source does in a block, each once read and once written where it
// runs as a kernel of its own. The numbers are data: tools/predict/machines/programs.json.
#pragma once

#include <string>
#include <string_view>

#include "models/config.h"
#include "tools/predict/call_rates.h"

namespace fsdp {
class Tape;
}

namespace fsdp::tools {

struct BlockBytes {
  double hidden = 0, kv = 0, ffn = 0, scores = 0;
};

// What a program computes again of a block in full recompute.
enum class Again : uint8_t {
  kAll,
  kToLastSaved,  // PyTorch from 2.1: ends at the last tensor that backward needs, before the last
                 // product
  kHalf,         // every second product, no attention
};

struct ProgramKernels {
  std::string name;        // with which names of sets begin
  std::string model_type;  // of its models
  BlockBytes forward, backward;
  double logits = 0;                  // bytes of a token and word of the vocabulary
  double gradients = 0;               // bytes of a parameter and micro-step
  double gradients_16 = 0;            // the same where gradients are reduced in 16 bits
  double update = 0, update_own = 0;  // bytes of a parameter; of one that the rank updates
  double host_us = 0;  // of the host for a kernel, where steps wait for it; 0: as the machine's
  int block_kernels_forward = 0, block_kernels_backward = 0, other_kernels = 0;  // of a pass
  Again again = Again::kAll;
  bool selective_keeps_half = false;   // Again::kHalf
  bool products_of_attention = false;  // two in forward, four in backward, of all pairs of tokens
  bool reduces_last = false;           // gradients of micro-steps add up before they are reduced
};

// Null: this program's own kernels are what there is.
const ProgramKernels* program_of(std::string_view set);

// The times of a program's calls. Its calls are those of this program's step: a block's bytes are
// moved where its attention is, the loss's where the loss is, the update's where the update is.
class ProgramRates final : public CallRates {
 public:
  struct Job {
    int64_t tokens = 0;  // of a pass
    int64_t length = 0;  // of a row
    int shards = 1;      // among which the optimizer's state is divided
    bool reduces_16 = false;
    Again again = Again::kAll;
  };
  ProgramRates(Rates rates, const ProgramKernels& program, models::ModelConfig model, Job job);
  // Of the session that is timed: whether it computes again.
  void watch(const Tape& tape) { tape_ = &tape; }

  double kernel_seconds(const meta::KernelCall& call) override;
  double issue_seconds() override;

 private:
  double block_bytes(const BlockBytes& block) const;
  double attention_seconds(const meta::KernelCall& call);
  bool is_left_out(const MatmulExtents& extents);
  double attention_bytes(bool forward) const;

  const ProgramKernels& program_;
  models::ModelConfig model_;
  Job job_;
  const Tape* tape_ = nullptr;
  int64_t products_again_ = 0;
  double host_s_ = 0;  // of the block whose attention was asked for
};

}  // namespace fsdp::tools
