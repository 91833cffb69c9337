// A communicator that has nobody to talk to.
#include "comm/meta_transport.h"

#include <numeric>

#include "comm/host_collectives.h"

namespace fsdp::comm {
namespace {

class MetaCommunicator final : public Communicator {
 public:
  MetaCommunicator(int rank, const std::string& name, const std::vector<int>& members,
                   std::shared_ptr<CollectiveRings> rings, PutCollective put)
      : Communicator(rank, name, members, std::move(rings)), put_(std::move(put)) {}

  std::shared_ptr<CommBuffer> allocate(Backend& backend, size_t bytes,
                                       MemoryCategory category) override {
    return std::make_shared<BackendBuffer>(backend, bytes, category);
  }
  std::unique_ptr<Communicator> split(const SplitRule& rule, const std::string& name) override {
    const SplitGroup part = group_of_split(rule);
    return std::make_unique<MetaCommunicator>(part.rank, name, part.members, rings(), put_);
  }
  bool abort(const std::string&) override { return true; }

 private:
  std::vector<std::string> do_exchange(const std::string& mine) override {
    return std::vector<std::string>(static_cast<size_t>(size()), mine);
  }
  // Put on the stream, so that a record of the stream's work has them.
  void put_on(Stream& stream, Collective collective, const Tensor& buffer) {
    const auto bytes = static_cast<int64_t>(buffer.bytes());
    if (put_) return put_(stream, {collective, bytes, ring().members()});
    stream.backend().host_task(stream, name_of(collective), bytes, [] {});
  }
  void do_all_gather(Stream& stream, const Tensor& buffer) override {
    put_on(stream, Collective::kAllGather, buffer);
  }
  void do_reduce_scatter(Stream& stream, const Tensor& input, const Tensor&, ReduceOp) override {
    put_on(stream, Collective::kReduceScatter, input);
  }
  void do_sum_in_order(Stream& stream, const Tensor& input, const Tensor&,
                       const OrderedSum&) override {
    put_on(stream, Collective::kReduceScatter, input);
  }
  void do_all_reduce(Stream& stream, const Tensor& buffer, ReduceOp) override {
    put_on(stream, Collective::kAllReduce, buffer);
  }
  void do_broadcast(Stream& stream, const Tensor& buffer, int) override {
    put_on(stream, Collective::kBroadcast, buffer);
  }

  PutCollective put_;
};

}  // namespace

std::unique_ptr<Communicator> make_meta_world(int ranks, int rank, PutCollective put) {
  FSDP_CHECK(ranks >= 1, "[meta world] number of ranks: expected at least 1, got {}", ranks);
  FSDP_CHECK(rank >= 0 && rank < ranks, "[meta world] rank: expected one below {}, got {}", ranks,
             rank);
  std::vector<int> members(static_cast<size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<MetaCommunicator>(rank, "world", members,
                                            std::make_shared<CollectiveRings>(), std::move(put));
}

}  // namespace fsdp::comm
