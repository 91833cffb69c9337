// The algorithms; see [Note: who reads what] in the header.
#include "comm/host_collectives.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/host_reduce.h"

namespace fsdp::comm {
namespace {

constexpr size_t kAlignment = 64;  // of pieces in the staging area, bytes

int64_t bytes_of(const HostCall& call, int64_t elements) {
  return elements * static_cast<int64_t>(size_of(call.dtype));
}

void copy_bytes(std::byte* destination, const std::byte* source, int64_t bytes) {
  if (bytes > 0) std::memcpy(destination, source, static_cast<size_t>(bytes));
}

}  // namespace

Announcement HostCall::announcement() const {
  Announcement said = {collective, op, dtype, root, numel, window ? window->id : 0, offset};
  // The end of a long name says more than its beginning.
  const size_t kept = std::min(unit.size(), sizeof said.unit - 1);
  unit.copy(said.unit, kept, unit.size() - kept);
  return said;
}

void HostCall::reduce(std::vector<const std::byte*> sources, std::byte* output_of_slot,
                      int64_t first, int64_t count) const {
  const int64_t offset = first * static_cast<int64_t>(size_of(output_dtype()));
  if (terms == 0) return reduce_in_order(dtype, op, sources, output_of_slot + offset, count);
  sources.resize(static_cast<size_t>(terms));
  add_in_order(dtype, start ? start + offset : nullptr, sources, output_of_slot + offset, count);
}

DirectEngine::DirectEngine(HostGroup group, Staging staging)
    : group_(std::move(group)), staging_(std::move(staging)) {
  FSDP_CHECK(
      !staging_.window || staging_.half_bytes >= static_cast<size_t>(group_.size()) * kAlignment,
      "{}: staging: expected {} bytes a rank, got {}", group_.name(), kAlignment,
      staging_.half_bytes / static_cast<size_t>(group_.size()));
}

void DirectEngine::run(const HostCall& call) {
  const HostGroup::Visit visit(group_);
  const auto said = group_.enter(name_of(call.collective), call.announcement());
  try {
    check_same_call(said, group_.name(), group_.members());
  } catch (const Error& error) {
    group_.abort(error.what());  // the group is out of step: nothing later can be right
    throw;
  }
  const bool reachable = call.window && std::all_of(said.begin(), said.end(), [&](const auto& a) {
                           return a.window == call.window->id;
                         });
  if (!reachable) return run_staged(call);
  Peers peers;
  for (size_t r = 0; r < said.size(); ++r) {
    peers.push_back(reinterpret_cast<const std::byte*>(call.window->bases[r] + said[r].offset));
  }
  peers[static_cast<size_t>(group_.rank())] = call.data;
  run_direct(call, peers);
}

// ---------------------------------------------------------------------------- Direct

void DirectEngine::run_direct(const HostCall& call, const Peers& peers) {
  switch (call.collective) {
    case Collective::kAllGather:
      gather_direct(call, peers);
      break;
    case Collective::kReduceScatter:
      reduce_direct(call, peers, call.output);
      break;
    case Collective::kAllReduce: {
      const Slots slots(call.numel, group_.size());
      reduce_direct(call, peers, call.data + bytes_of(call, slots.begin(group_.rank())));
      meet(call);  // all slots are reduced, and nobody needs the old values
      gather_direct(call, peers);
      break;
    }
    case Collective::kBroadcast:
      if (group_.rank() != call.root) {
        copy_bytes(call.data, peers[static_cast<size_t>(call.root)], bytes_of(call, call.numel));
      }
      break;
  }
  meet(call);  // nobody reads this rank's buffer any more
}

void DirectEngine::gather_direct(const HostCall& call, const Peers& peers) {
  const Slots slots(call.numel, group_.size());
  for (int step = 1; step < group_.size(); ++step) {  // each starts at another peer
    const int peer = (group_.rank() + step) % group_.size();
    const int64_t begin = bytes_of(call, slots.begin(peer));
    copy_bytes(call.data + begin, peers[static_cast<size_t>(peer)] + begin,
               bytes_of(call, slots.count(peer)));
  }
}

void DirectEngine::reduce_direct(const HostCall& call, const Peers& peers, std::byte* output) {
  const Slots slots(call.numel, group_.size());
  const int slot = call.slot_of(group_.rank(), group_.size());
  const int64_t begin = bytes_of(call, slots.begin(slot));
  Peers sources;
  for (const std::byte* peer : peers) sources.push_back(peer + begin);
  call.reduce(std::move(sources), output, 0, slots.count(slot));
}

// ---------------------------------------------------------------------------- Staged
// [Note: one meeting a turn] In a turn every rank fills its current half, all meet, and all read.
// The next turn uses the other halves, so a half is written again only after the next meeting,
// which a rank reaches when it has finished reading. Private buffers need no meeting on exit.

std::byte* DirectEngine::half(int rank) const {
  const uintptr_t base = staging_.window->bases[static_cast<size_t>(rank)];
  return reinterpret_cast<std::byte*>(base + (turns_ % 2) * staging_.half_bytes);
}

void DirectEngine::run_staged(const HostCall& call) {
  FSDP_CHECK(staging_.window, "[{}] {}: ranks gave buffers of different windows",
             name_of(call.collective), group_.name());
  const Slots slots(call.numel, group_.size());
  switch (call.collective) {
    case Collective::kAllGather:
      return gather_staged(call);
    case Collective::kReduceScatter:
      return reduce_staged(call, call.output);
    case Collective::kAllReduce:
      reduce_staged(call, call.data + bytes_of(call, slots.begin(group_.rank())));
      return gather_staged(call);
    case Collective::kBroadcast:
      return broadcast_staged(call);
  }
}

void DirectEngine::gather_staged(const HostCall& call) {
  const Slots slots(call.numel, group_.size());
  const int64_t piece = static_cast<int64_t>(staging_.half_bytes / size_of(call.dtype));
  const auto piece_of = [&](int rank, int64_t done) {
    return bytes_of(call, std::clamp<int64_t>(slots.count(rank) - done, 0, piece));
  };
  for (int64_t done = 0; done < slots.per_rank; done += piece, ++turns_) {
    const int rank = group_.rank();
    copy_bytes(half(rank), call.data + bytes_of(call, slots.begin(rank) + done),
               piece_of(rank, done));
    meet(call);
    for (int step = 1; step < group_.size(); ++step) {
      const int peer = (rank + step) % group_.size();
      copy_bytes(call.data + bytes_of(call, slots.begin(peer) + done), half(peer),
                 piece_of(peer, done));
    }
  }
}

void DirectEngine::reduce_staged(const HostCall& call, std::byte* output) {
  const Slots slots(call.numel, group_.size());
  const auto ranks = static_cast<size_t>(group_.size());
  const size_t stride = staging_.half_bytes / ranks / kAlignment * kAlignment;  // one per reader
  const int64_t piece = static_cast<int64_t>(stride / size_of(call.dtype));
  const auto slot_of = [&](int rank) { return call.slot_of(rank, group_.size()); };
  const auto piece_of = [&](int rank, int64_t done) {
    return std::clamp<int64_t>(slots.count(slot_of(rank)) - done, 0, piece);
  };
  const auto part = [&](int writer, int reader) {
    return half(writer) + static_cast<size_t>(reader) * stride;
  };
  Peers sources(ranks);
  for (int64_t done = 0; done < slots.per_rank; done += piece, ++turns_) {
    const int rank = group_.rank();
    for (int reader = 0; reader < group_.size(); ++reader) {
      if (reader == rank || (call.terms > 0 && rank >= call.terms)) continue;
      copy_bytes(part(rank, reader),
                 call.data + bytes_of(call, slots.begin(slot_of(reader)) + done),
                 bytes_of(call, piece_of(reader, done)));
    }
    meet(call);
    for (int writer = 0; writer < group_.size(); ++writer) {
      sources[static_cast<size_t>(writer)] = part(writer, rank);
    }
    sources[static_cast<size_t>(rank)] =
        call.data + bytes_of(call, slots.begin(slot_of(rank)) + done);
    call.reduce(sources, output, done, piece_of(rank, done));
  }
}

void DirectEngine::broadcast_staged(const HostCall& call) {
  const int64_t bytes = bytes_of(call, call.numel);
  const auto piece = static_cast<int64_t>(staging_.half_bytes);
  for (int64_t done = 0; done < bytes; done += piece, ++turns_) {
    const int64_t n = std::min(piece, bytes - done);
    if (group_.rank() == call.root) copy_bytes(half(call.root), call.data + done, n);
    meet(call);
    if (group_.rank() != call.root) copy_bytes(call.data + done, half(call.root), n);
  }
}

// ---------------------------------------------------------------------------- On streams

void HostCommunicator::do_all_gather(Stream& stream, const Tensor& buffer) {
  enqueue(stream, buffer, {.collective = Collective::kAllGather});
}

void HostCommunicator::do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor& output,
                                         ReduceOp op) {
  enqueue(stream, input,
          {.collective = Collective::kReduceScatter,
           .op = op,
           .output = static_cast<std::byte*>(output.data())});
}

void HostCommunicator::do_sum_in_order(Stream& stream, const Tensor& input, const Tensor& output,
                                       const OrderedSum& sum) {
  enqueue(
      stream, input,
      {.collective = Collective::kReduceScatter,
       .op = ReduceOp::kSum,
       .output = static_cast<std::byte*>(output.data()),
       .terms = sum.terms,
       .columns = sum.columns,
       .start = sum.start.defined() ? static_cast<const std::byte*>(sum.start.data()) : nullptr});
}

void HostCommunicator::do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp op) {
  enqueue(stream, buffer, {.collective = Collective::kAllReduce, .op = op});
}

void HostCommunicator::do_broadcast(Stream& stream, const Tensor& buffer, int root) {
  enqueue(stream, buffer, {.collective = Collective::kBroadcast, .root = root});
}

HostCommunicator::~HostCommunicator() {
  try {
    if (staged_until_) staged_until_->wait();
  } catch (const std::exception&) {  // whoever waits for the stream hears of it
  }
}

void HostCommunicator::enqueue(Stream& stream, const Tensor& buffer, HostCall call) {
  call.dtype = buffer.dtype();
  call.numel = buffer.numel();
  call.data = static_cast<std::byte*>(buffer.data());
  call.unit = stream.backend().scope();
  if (stream.backend().host_reaches_memory()) {
    put_on(stream, buffer, std::move(call), nullptr);
  } else {
    put_staged_on(stream, buffer, std::move(call));
  }
}

void HostCommunicator::put_staged_on(Stream& stream, const Tensor& buffer, HostCall call) {
  Backend& backend = stream.backend();
  std::shared_ptr<std::byte> outgrown;
  // The slot of an ordered sum is wider than that of its input: it lies behind the input.
  const size_t wide =
      call.terms > 0 ? static_cast<size_t>(call.numel / size()) * size_of(call.output_dtype()) : 0;
  if (staged_bytes_ < buffer.bytes() + wide) {
    outgrown = backend.staging_memory(buffer.bytes() + wide);
  }
  meet_hosts(call.collective);  // may throw: what is staged is kept until then
  if (outgrown) {
    outgrown.swap(staged_);
    staged_bytes_ = buffer.bytes() + wide;
  }
  const Collective call_kind = call.collective;
  std::byte* const device = std::exchange(call.data, staged_.get());
  struct Part {
    size_t begin, bytes;
  };
  const Slots slots(call.numel, size());
  const Part own = {static_cast<size_t>(bytes_of(call, slots.begin(rank()))),
                    static_cast<size_t>(bytes_of(call, slots.count(rank())))};
  Part read = {0, buffer.bytes()}, written = read;  // by the call
  std::byte* result = device;
  switch (call.collective) {
    case Collective::kAllGather:
      read = own;
      break;
    case Collective::kReduceScatter:
      written = call.terms > 0 ? Part{buffer.bytes(), wide} : own;
      result = std::exchange(call.output, call.data + written.begin);
      if (call.start) {
        backend.copy(stream, call.output, call.start, wide);
        call.start = call.output;
      }
      break;
    case Collective::kBroadcast:
      (rank() == call.root ? written : read) = {};
      break;
    case Collective::kAllReduce:
      break;
  }
  backend.copy(stream, call.data + read.begin, device + read.begin, read.bytes);
  put_on(stream, buffer, std::move(call), std::move(outgrown));
  backend.copy(stream, result, staged_.get() + written.begin, written.bytes);
  staged_until_ = backend.record(stream);
  meet_hosts(call_kind);
}

void HostCommunicator::put_on(Stream& stream, const Tensor& buffer, HostCall call,
                              std::shared_ptr<void> held) {
  locate(buffer, call);
  if (!staging_counted_ && engine_->staging_bytes() > 0) {
    // Lives as long as the communicator, which may outlive the backend: never subtracted.
    stream.backend().ledger().add(MemoryCategory::kTransportStaging, engine_->staging_bytes());
    staging_counted_ = true;
  }
  stream.backend().host_task(
      stream, name_of(call.collective), static_cast<int64_t>(buffer.bytes()),
      [engine = engine_, call = std::move(call), issued = issued_call(), held = std::move(held)] {
        issued.ring->start(issued.sequence);
        engine->run(call);
        issued.ring->finish(issued.sequence);
      });
}

}  // namespace fsdp::comm
