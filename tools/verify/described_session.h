// A session that is set up as a reference folder describes, and what the verification of a pass and
// that of a training run share. Used inside tools/verify only.
#pragma once

#include <memory>
#include <string>

#include "tools/engine/session.h"
#include "tools/verify/verification.h"

namespace fsdp::tools {

class DescribedSession {
 public:
  // All must outlive it.
  DescribedSession(RankContext& rank, const ExpectedResults& expected,
                   const VerificationOptions& options)
      : rank_(rank), expected_(expected), options_(options) {}

  // An adapter's terms beside the base, or merged into its weights.
  enum class Adapter : uint8_t { kApart, kMerged };
  // Ends the session before it; gives the parameters the folder's values. Collective; AgreedError.
  void start(const ExpectedTraining& trajectory, DType dtype, Adapter adapter = Adapter::kApart);
  void end() { session_.reset(); }

  Session& session() { return *session_; }
  comm::Communicator& world() { return rank_.world; }
  const ExpectedResults& expected() const { return expected_; }
  const VerificationOptions& options() const { return options_; }

  Batch my_part(const Batch& batch) const;
  // Leaves out what the events of a step say; the rank's part of the batch.
  Batch begin_step(const Batch& batch, const StepEvents& events);

  // An adapter's folder has expected values only of its own tensors.
  bool is_compared(const Parameter& parameter) const;
  std::string file_name(const Parameter& parameter) const;  // in the folder
  // AgreedError unless every parameter has a reference of its shape, and every reference a
  // parameter. `may_lack`: gradients, of a step that leaves blocks out.
  void check_tensors(const ExpectedTensors& tensors, bool may_lack = false);

 private:
  models::FillFunction values(Adapter adapter);

  RankContext& rank_;
  const ExpectedResults& expected_;
  const VerificationOptions& options_;
  std::unique_ptr<Session> session_;
};

// One forward and backward pass with all that the folder holds: logits, gradients, merged
// weights, texts continued.
Report verify_pass(DescribedSession& run);
// A training run: every step, and the parameters after the last one.
Report verify_training(DescribedSession& run, const ExpectedTraining& trajectory);

}  // namespace fsdp::tools
