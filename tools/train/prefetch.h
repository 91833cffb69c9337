// The batches of a run, made ahead of its steps by a thread of their own: a step does not wait for
// rows to be read, cut and padded. Not here: what is in a batch (tools/data), its way to the device
// (tools/engine/session.h).
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "tools/train/evaluation.h"

namespace fsdp::tools {

class Prefetch {
 public:
  // At most `ahead` batches wait to be taken; 0: each is made when it is asked for. `batches.get`
  // is called by one thread at a time, and not after this is gone.
  Prefetch(BatchSource batches, int64_t ahead);
  ~Prefetch();
  Prefetch(const Prefetch&) = delete;

  // Its batches are asked for one after the other, from any first one. An error that making one
  // threw is thrown where this batch is asked for. Must not outlive this.
  BatchSource source();

  // Of the batches that were taken but the first one, which no step could hide.
  struct Times {
    double made_s = 0;    // spent on making them
    double waited_s = 0;  // while a step waited for one
  };
  Times times() const { return times_; }

 private:
  struct Made {
    Batch batch;
    double seconds = 0;
    std::exception_ptr error;
  };

  Made make(int64_t index) const;
  Batch take(int64_t index);
  void work(int64_t first);

  BatchSource batches_;
  size_t ahead_;
  Times times_;
  int64_t next_ = -1;  // to be taken; -1: any
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Made> made_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace fsdp::tools
