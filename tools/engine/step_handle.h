// Results of a training step that may still be running: where a stream writes them, and a wait.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "core/shard_values.h"
#include "core/tensor.h"

namespace fsdp {

struct StepValues {
  double loss = 0;       // before the update
  double grad_norm = 0;  // global, unscaled, before clipping
  double loss_scale = 1;
  StepSkip skipped = kNotSkipped;               // no update, and why
  bool scale_at_minimum = false;                // the loss scale cannot fall further
  std::chrono::steady_clock::time_point ended;  // when the device was done with the step
};

// Of a step that was dropped before its update only the loss lands.
class StepHandle {
 public:
  StepValues read() const;  // waits for what was asked for before this handle was copied

  // Where the stream writes the results; lives until it has.
  struct Landing {
    double loss = 0;
    double norm = 0;
    float loss_scale = 1;
    int32_t skipped = 0;
    int32_t scale_at_minimum = 0;
    // By the streams of two backends, where the masters live elsewhere.
    std::atomic<std::chrono::steady_clock::time_point> written = {};
  };
  // Reads a scalar into its place when the compute stream gets there. T: the scalar's type.
  template <typename T>
  void read_later(T Landing::*place, const Tensor& scalar) {
    read_later(&(*landing_.*place), scalar, sizeof(T));
  }

 private:
  void read_later(void* place, const Tensor& scalar, size_t bytes);

  std::shared_ptr<Landing> landing_ = std::make_shared<Landing>();
  std::vector<EventPtr> done_;  // of every read: they may be of several backends
};

}  // namespace fsdp
