// Inputs of pieces of the model that backward runs again (core/recompute.h), in the memory of
// another backend, the host, between forward and backward.
//
//            send()              the next send()            the take() before its own
//   device -----------> SENDING -----------------> ON HOST --------------------------> COMING
//                          |                          |                                   |
//                          |       take()             |  take()                           | take()
//                          +-------------------------->+----------------------------------> taken
//
//   SENDING  both have it: the device's memory stays until the copy is done. The newest input is
//            here, so that the last one of a forward, which backward wants first, need not come
//            back
//   ON HOST  the device's memory is free
//   COMING   it is copied back, while the piece behind it runs again and goes through backward
//
// The device makes the copies, each direction on a stream of its own, beside its computation:
//   out      waits for compute: the input is written; and for inputs: the host's memory is free
//   in       waits for compute: the device's memory is free, and the input was sent, for which
//            compute waited before the memory was given back
//   compute  waits for out before the device's memory is given back, for in before its use
//   inputs   of the host, in whose order the host's memory is: waits for out or in before that is
//            given back. It does nothing else. On the host's compute stream the optimizer may be at
//            work for long
// Not here: what is computed again; the offload of parameters (comm/fsdp).
#pragma once

#include <memory>
#include <vector>

#include "core/tensor.h"

namespace fsdp {

class HostInputs {
 public:
  HostInputs(Backend& device, Backend& host);  // which outlive it
  ~HostInputs();                               // every input is gone by then
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;

  class Sent {  // one input
   public:
    Sent(HostInputs& all, const Tensor& input);
    // Without a take(), its backward never came: the memory waits for the copies all the same.
    ~Sent();
    Sent(const Sent&) = delete;
    Sent& operator=(const Sent&) = delete;
    Tensor take();  // once: the input, on the device, for kernels of the compute stream

   private:
    friend class HostInputs;
    void fetch();
    void leave_device();
    void leave_host();

    HostInputs& all_;
    Shape shape_;
    DType dtype_;
    Tensor device_, host_;  // undefined where it is not
    EventPtr copied_;       // since when the last copy is done
  };
  // `input` is on the device and complete in the order of its compute stream.
  std::shared_ptr<Sent> send(const Tensor& input);

  // After a step that threw: waits for all copies, forgets their errors.
  void recover();

 private:
  Backend& device_;
  Backend& host_;
  std::unique_ptr<Stream> out_, in_, inputs_;
  std::vector<Sent*> sent_;  // in order; backward takes the last first
};

}  // namespace fsdp
