// What all transports share: the checks, the counts, and the order of collectives across streams.
#include "comm/communicator.h"

#include <algorithm>

#include "core/layer_args.h"
#include "core/shard_args.h"

namespace fsdp::comm {
namespace {

// Errors of collectives begin "[all_gather] gather: ", with the name of the communicator.
std::string at(Collective collective, const Communicator& communicator) {
  return fmt::format("[{}] {}", name_of(collective), communicator.name());
}

void check_backend(Collective collective, const Communicator& communicator, const Stream& stream,
                   const Tensor& tensor) {
  FSDP_CHECK(tensor.defined(), "{}: the tensor is undefined", at(collective, communicator));
  FSDP_CHECK(&tensor.backend() == &stream.backend(),
             "{}: stream {}: expected a stream of the tensor's backend ({}), got one of another "
             "({})",
             at(collective, communicator), stream.name(), tensor.backend().name(),
             stream.backend().name());
}

void check_op(Collective collective, const Communicator& communicator, const Tensor& tensor,
              ReduceOp op) {
  FSDP_CHECK(op != ReduceOp::kAverage || is_floating(tensor.dtype()),
             "{}: average: expected a floating dtype, got {}", at(collective, communicator),
             name_of(tensor.dtype()));
}

void check_slots(Collective collective, const Communicator& communicator, const Tensor& tensor) {
  FSDP_CHECK(tensor.numel() % communicator.size() == 0,
             "{}: elements: expected a multiple of {} (one slot per rank), got {}",
             at(collective, communicator), communicator.size(), tensor.numel());
}

// `own`: number of this rank's slot.
void check_output(const Communicator& communicator, const Tensor& input, const Tensor& output,
                  DType dtype, int own_slot) {
  const std::string where = at(Collective::kReduceScatter, communicator);
  const int64_t slot = input.numel() / communicator.size();
  FSDP_CHECK(output.dtype() == dtype, "{}: output: expected {} {}, got {}", where, name_of(dtype),
             dtype == input.dtype() ? "as the input" : "to accumulate in", name_of(output.dtype()));
  FSDP_CHECK(output.numel() == slot, "{}: output: expected {} elements (one slot), got {}", where,
             slot, output.numel());
  if (slot == 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(input.data());
  const auto out = reinterpret_cast<uintptr_t>(output.data());
  const bool apart = out + output.bytes() <= begin || begin + input.bytes() <= out;
  const size_t own = static_cast<size_t>(own_slot) * output.bytes();
  FSDP_CHECK(apart || (out == begin + own && output.dtype() == input.dtype()),
             "{}: output: expected other memory than the input or this rank's slot at byte {} of "
             "it, got byte {}",
             where, own, static_cast<int64_t>(out - begin));
}

}  // namespace

std::string_view name_of(Collective collective) {
  constexpr std::array<std::string_view, kCollectives> kNames = {"all_gather", "reduce_scatter",
                                                                 "all_reduce", "broadcast"};
  return kNames[static_cast<size_t>(collective)];
}

EventPtr Communicator::all_gather(Stream& stream, Tensor buffer) {
  check_backend(Collective::kAllGather, *this, stream, buffer);
  check_slots(Collective::kAllGather, *this, buffer);
  const bool enqueue = !nothing_to_do(buffer);
  if (enqueue) {
    count_call(Collective::kAllGather, buffer);
    order_after_last(stream);
    do_all_gather(stream, buffer);
  }
  return finish(stream, enqueue);
}

EventPtr Communicator::reduce_scatter(Stream& stream, Tensor input, Tensor output, ReduceOp op) {
  check_backend(Collective::kReduceScatter, *this, stream, input);
  check_backend(Collective::kReduceScatter, *this, stream, output);
  check_slots(Collective::kReduceScatter, *this, input);
  check_op(Collective::kReduceScatter, *this, input, op);
  check_output(*this, input, output, input.dtype(), rank_);
  const bool enqueue = !nothing_to_do(input);
  if (enqueue) {
    count_call(Collective::kReduceScatter, input);
    order_after_last(stream);
    do_reduce_scatter(stream, input, output, op);
  } else if (output.bytes() > 0 && output.data() != input.data()) {
    stream.backend().copy(stream, output.data(), input.data(), output.bytes());
  }
  return finish(stream, enqueue);
}

int slot_in_order(int rank, int ranks, int columns) {
  return rank % columns * (ranks / columns) + rank / columns;
}

void Communicator::check_ordered(const Tensor& input, const Tensor& output,
                                 const OrderedSum& sum) const {
  const std::string where = at(Collective::kReduceScatter, *this);
  FSDP_CHECK(sum.columns >= 1 && size_ % sum.columns == 0,
             "{}: columns: expected a divisor of {} ranks, got {}", where, size_, sum.columns);
  FSDP_CHECK(sum.terms >= 0 && sum.terms <= size_, "{}: terms: expected 0 to {}, got {}", where,
             size_, sum.terms);
  FSDP_CHECK(!sum.start.defined() ||
                 (sum.start.dtype() == output.dtype() && sum.start.numel() == output.numel()),
             "{}: start: expected {} elements of {} as the output", where, output.numel(),
             name_of(output.dtype()));
  check_output(*this, input, output, accumulation_dtype(input.dtype()),
               slot_in_order(rank_, size_, sum.columns));
}

EventPtr Communicator::sum_in_order(Stream& stream, Tensor input, Tensor output,
                                    const OrderedSum& sum) {
  check_backend(Collective::kReduceScatter, *this, stream, input);
  check_backend(Collective::kReduceScatter, *this, stream, output);
  check_slots(Collective::kReduceScatter, *this, input);
  check_ordered(input, output, sum);
  Backend& backend = stream.backend();
  const bool from_start = sum.start.defined();
  if (sum.terms == 0 && output.bytes() > 0) {  // the same on every rank: nobody is waited for
    if (!from_start) {
      backend.fill_zero(stream, output.data(), output.bytes());
    } else if (sum.start.data() != output.data()) {
      backend.copy(stream, output.data(), sum.start.data(), output.bytes());
    }
    return finish(stream, false);
  }
  const bool enqueue = !nothing_to_do(input);
  if (enqueue) {
    count_call(Collective::kReduceScatter, input);
    order_after_last(stream);
    do_sum_in_order(stream, input, output, sum);
  } else if (output.bytes() > 0 && from_start) {
    backend.run(stream, AddArgs{sum.start, input, output});
  } else if (output.bytes() > 0 && output.data() != input.data()) {
    backend.run(stream, CastArgs{input, output});
  }
  return finish(stream, enqueue);
}

void Communicator::do_sum_in_order(Stream&, const Tensor&, const Tensor&, const OrderedSum&) {
  fail("{}: this transport orders sums in its own way", at(Collective::kReduceScatter, *this));
}

EventPtr Communicator::all_reduce(Stream& stream, Tensor buffer, ReduceOp op) {
  check_backend(Collective::kAllReduce, *this, stream, buffer);
  check_op(Collective::kAllReduce, *this, buffer, op);
  const bool enqueue = !nothing_to_do(buffer);
  if (enqueue) {
    count_call(Collective::kAllReduce, buffer);
    order_after_last(stream);
    do_all_reduce(stream, buffer, op);
  }
  return finish(stream, enqueue);
}

EventPtr Communicator::broadcast(Stream& stream, Tensor buffer, int root) {
  check_backend(Collective::kBroadcast, *this, stream, buffer);
  FSDP_CHECK(root >= 0 && root < size_, "{}: root: expected a rank below {}, got {}",
             at(Collective::kBroadcast, *this), size_, root);
  const bool enqueue = !nothing_to_do(buffer);
  if (enqueue) {
    count_call(Collective::kBroadcast, buffer);
    order_after_last(stream);
    do_broadcast(stream, buffer, root);
  }
  return finish(stream, enqueue);
}

bool Communicator::nothing_to_do(const Tensor& buffer) const {
  return size_ == 1 || buffer.numel() == 0;
}

void Communicator::count_call(Collective collective, const Tensor& buffer) {
  CollectiveCount& count = counts_[static_cast<size_t>(collective)];
  ++count.calls;
  count.bytes += static_cast<int64_t>(buffer.bytes());
  last_call_ = ring_->issue({.kind = std::string(name_of(collective)),
                             .unit = buffer.backend().scope(),
                             .dtype = std::string(name_of(buffer.dtype())),
                             .bytes = static_cast<int64_t>(buffer.bytes())});
}

std::vector<std::string> Communicator::exchange(const std::string& mine) {
  if (size_ == 1) return {mine};
  const int64_t call = ring_->issue({.kind = "exchange"});
  ring_->start(call);
  std::vector<std::string> all = do_exchange(mine);
  ring_->finish(call);
  return all;
}

Communicator::SplitGroup Communicator::group_of_split(const SplitRule& rule) const {
  SplitGroup group = {.color = rule(rank_).color, .rank = 0, .members = {}};
  FSDP_CHECK(group.color >= 0, "[split] {}: color: expected 0 or more, got {}", name_, group.color);
  std::vector<std::pair<int, int>> places;  // (key, rank)
  for (int r = 0; r < size_; ++r) {
    const auto [color, key] = rule(r);
    if (color == group.color) places.emplace_back(key, r);
  }
  std::sort(places.begin(), places.end());
  for (const auto& [key, r] : places) {
    if (r == rank_) group.rank = static_cast<int>(group.members.size());
    group.members.push_back(ring_->members()[static_cast<size_t>(r)]);
  }
  return group;
}

// Two collectives of one communicator on two streams could otherwise start in one order on this
// rank and in the other on its peer.
void Communicator::order_after_last(Stream& stream) {
  if (last_ && last_stream_ != &stream) stream.backend().wait(stream, last_);
}

EventPtr Communicator::finish(Stream& stream, bool enqueued) {
  EventPtr done = stream.backend().record(stream);
  if (enqueued) {
    last_stream_ = &stream;
    last_ = done;
  }
  return done;
}

}  // namespace fsdp::comm
