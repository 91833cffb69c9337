// The streams of a rank.
#include "comm/fsdp/runtime.h"

namespace fsdp::comm {

CommStreams::CommStreams(Backend& backend, bool separate_reduce)
    : backend_(backend),
      gather_(backend.create_stream("gather")),
      reduce_(separate_reduce ? backend.create_stream("reduce") : nullptr),
      replicas_(backend.create_stream("replicas")) {}

std::vector<Stream*> CommStreams::all() const {
  return {&backend_.compute_stream(), gather_.get(), &reduce(), replicas_.get()};
}

void drain(const std::vector<Stream*>& streams) {
  for (Stream* stream : streams) {
    try {
      stream->backend().synchronize(*stream);
    } catch (const Error&) {
    }
  }
}

}  // namespace fsdp::comm
