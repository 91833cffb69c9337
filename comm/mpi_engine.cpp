// The MPI calls. Every rank first says what it is about to do through a small nonblocking gather,
// asleep; the blocking call that moves the data then finds all ranks there and does not spin long.
#include "comm/mpi_engine.h"

#include <cstring>

#include "comm/host_reduce.h"
#include "comm/patience.h"

namespace fsdp::comm {
namespace {

constexpr int64_t kBroadcastPiece = int64_t{1} << 30;  // bytes; MPI counts are 32-bit

// `bytes` bytes at the beginning of every `stride`: rank r's piece of slot r, without index
// arithmetic in 32 bits.
class StridedPiece {
 public:
  StridedPiece(int64_t bytes, int64_t stride) {
    MPI_Datatype piece = MPI_DATATYPE_NULL;
    check_mpi(MPI_Type_contiguous(static_cast<int>(bytes), MPI_BYTE, &piece),
              "MPI_Type_contiguous");
    const int code = MPI_Type_create_resized(piece, 0, stride, &type_);
    MPI_Type_free(&piece);
    check_mpi(code, "MPI_Type_create_resized");
    check_mpi(MPI_Type_commit(&type_), "MPI_Type_commit");
  }
  ~StridedPiece() { MPI_Type_free(&type_); }
  StridedPiece(const StridedPiece&) = delete;
  StridedPiece& operator=(const StridedPiece&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

int64_t width(const HostCall& call) { return static_cast<int64_t>(size_of(call.dtype)); }

}  // namespace

MpiEngine::MpiEngine(std::shared_ptr<MpiGroup> group, Options options)
    : group_(std::move(group)),
      options_(std::move(options)),
      rank_(group_->rank()),
      size_(group_->size()) {}

size_t MpiEngine::staging_bytes() const {
  return 2 * static_cast<size_t>(size_) * options_.piece_bytes;
}

std::byte* MpiEngine::scratch(int half) {
  scratch_.resize(staging_bytes());
  return scratch_.data() + static_cast<size_t>(half) * staging_bytes() / 2;
}

int64_t MpiEngine::piece_elements(const HostCall& call) const {
  return static_cast<int64_t>(options_.piece_bytes) / width(call);
}

void MpiEngine::run(const HostCall& call) {
  rendezvous(call);
  switch (call.collective) {
    case Collective::kAllGather:
      return gather(call);
    case Collective::kReduceScatter:
      return reduce_scatter(call);
    case Collective::kAllReduce:
      return all_reduce(call);
    case Collective::kBroadcast:
      return broadcast(call);
  }
}

void MpiEngine::rendezvous(const HostCall& call) {
  struct Buffers {
    Announcement mine;
    std::vector<Announcement> said;
  };
  const auto buffers = std::make_shared<Buffers>();
  buffers->mine = call.announcement();
  buffers->said.resize(static_cast<size_t>(size_));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&buffers->mine, sizeof(Announcement), MPI_BYTE, buffers->said.data(),
                           sizeof(Announcement), MPI_BYTE, group_->comm(), &request),
            "MPI_Iallgather");
  Patience patience(options_.timeout, options_.progress);
  wait_asleep(request, buffers, [&] {
    options_.abort_list->check(name_of(call.collective));
    FSDP_CHECK(!patience.over(), "[{}] {}: rank {} waited {} s for the other ranks of {}",
               name_of(call.collective), options_.name,
               group_->world_ranks()[static_cast<size_t>(rank_)],
               static_cast<double>(options_.timeout.count()) / 1000, size_);
  });
  check_same_call(buffers->said, options_.name, group_->world_ranks());
}

void MpiEngine::gather(const HostCall& call) {
  const int64_t slot = call.numel / size_;
  for (int64_t done = 0; done < slot; done += piece_elements(call)) {
    const int64_t n = std::min(piece_elements(call), slot - done);
    const StridedPiece piece(n * width(call), slot * width(call));
    check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call.data + done * width(call), 1,
                            piece.type(), group_->comm()),
              "MPI_Allgather");
  }
}

void MpiEngine::reduce_scatter(const HostCall& call) {
  const int64_t slot = call.numel / size_;
  std::vector<const std::byte*> sources(static_cast<size_t>(size_));
  for (int64_t done = 0; done < slot; done += piece_elements(call)) {
    const int64_t n = std::min(piece_elements(call), slot - done);
    const int64_t bytes = n * width(call);
    exchange_pieces(call, done, bytes);
    for (size_t r = 0; r < sources.size(); ++r) {
      sources[r] = scratch(0) + r * static_cast<size_t>(bytes);
    }
    call.reduce(sources, call.output, done, n);
  }
}

// `bytes` of this rank's slot, from element `done` of it, come from every rank into scratch(0).
void MpiEngine::exchange_pieces(const HostCall& call, int64_t done, int64_t bytes) {
  const int64_t slot = call.numel / size_ * width(call);
  const std::byte* const first = call.data + done * width(call);
  if (call.slot_of(1 % size_, size_) == 1 % size_) {  // rank r gets slot r
    const StridedPiece piece(bytes, slot);
    check_mpi(MPI_Alltoall(first, 1, piece.type(), scratch(0), static_cast<int>(bytes), MPI_BYTE,
                           group_->comm()),
              "MPI_Alltoall");
    return;
  }
  for (int r = 0; r < size_; ++r) {  // MPI sends in rank order
    std::memcpy(scratch(1) + r * bytes, first + call.slot_of(r, size_) * slot,
                static_cast<size_t>(bytes));
  }
  check_mpi(MPI_Alltoall(scratch(1), static_cast<int>(bytes), MPI_BYTE, scratch(0),
                         static_cast<int>(bytes), MPI_BYTE, group_->comm()),
            "MPI_Alltoall");
}

// In pieces of size() equal parts; the last piece is padded.
void MpiEngine::all_reduce(const HostCall& call) {
  std::vector<const std::byte*> sources(static_cast<size_t>(size_));
  for (int64_t done = 0; done < call.numel; done += size_ * piece_elements(call)) {
    const int64_t n = std::min(size_ * piece_elements(call), call.numel - done);
    const int64_t part = (n + size_ - 1) / size_;  // elements
    const int64_t part_bytes = part * width(call);
    std::byte* const data = call.data + done * width(call);
    std::byte* const ours = scratch(0);
    std::byte* const theirs = scratch(1);
    std::memcpy(ours, data, static_cast<size_t>(n * width(call)));
    std::memset(ours + n * width(call), 0,
                static_cast<size_t>(size_ * part_bytes - n * width(call)));
    check_mpi(MPI_Alltoall(ours, static_cast<int>(part_bytes), MPI_BYTE, theirs,
                           static_cast<int>(part_bytes), MPI_BYTE, group_->comm()),
              "MPI_Alltoall");
    for (int r = 0; r < size_; ++r) sources[static_cast<size_t>(r)] = theirs + r * part_bytes;
    reduce_in_order(call.dtype, call.op, sources, ours + rank_ * part_bytes, part);
    check_mpi(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, ours, static_cast<int>(part_bytes),
                            MPI_BYTE, group_->comm()),
              "MPI_Allgather");
    std::memcpy(data, ours, static_cast<size_t>(n * width(call)));
  }
}

void MpiEngine::broadcast(const HostCall& call) {
  const int64_t bytes = call.numel * width(call);
  for (int64_t done = 0; done < bytes; done += kBroadcastPiece) {
    const int64_t n = std::min(kBroadcastPiece, bytes - done);
    check_mpi(MPI_Bcast(call.data + done, static_cast<int>(n), MPI_BYTE, call.root, group_->comm()),
              "MPI_Bcast");
  }
}

}  // namespace fsdp::comm
