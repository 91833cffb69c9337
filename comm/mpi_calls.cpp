// Error texts, the sleeping wait, and the life of communicators.
#include "comm/mpi_calls.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <numeric>
#include <thread>

#include "core/error.h"

namespace fsdp::comm {
namespace {

constexpr std::chrono::microseconds kFirstSleep{20};
constexpr std::chrono::microseconds kLongestSleep{500};

}  // namespace

void check_mpi(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail("[{}] {}", call, std::string_view(text, static_cast<size_t>(length)));
}

MpiGroup::MpiGroup(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

std::shared_ptr<MpiGroup> MpiGroup::duplicate(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  return std::shared_ptr<MpiGroup>(new MpiGroup(comm));
}

std::shared_ptr<MpiGroup> MpiGroup::split(MPI_Comm parent, int color, int key) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(parent, color, key, &comm), "MPI_Comm_split");
  return std::shared_ptr<MpiGroup>(new MpiGroup(comm));
}

MpiGroup::~MpiGroup() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!finalized) MPI_Comm_free(&comm_);
}

int MpiGroup::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiGroup::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  return size;
}

std::vector<int> MpiGroup::world_ranks() const {
  std::vector<int> here(static_cast<size_t>(size())), there(here.size());
  std::iota(here.begin(), here.end(), 0);
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(comm_, &group), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check_mpi(MPI_Group_translate_ranks(group, size(), here.data(), world, there.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return there;
}

std::shared_ptr<MpiGroup> MpiGroup::ranks_of_host() const {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  return std::shared_ptr<MpiGroup>(new MpiGroup(host));
}

void wait_asleep(MPI_Request& request, const std::shared_ptr<void>& buffers,
                 const std::function<void()>& stop) {
  auto sleep = kFirstSleep;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    try {
      stop();
    } catch (...) {
      new std::shared_ptr<void>(buffers);  // never freed, see the header
      throw;
    }
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
}

std::vector<std::string> exchange_strings(const MpiGroup& group, const std::string& mine,
                                          const std::function<void()>& stop) {
  struct Buffers {
    std::string mine;
    int length = 0;
    std::vector<int> lengths, begins;
    std::string all;
  };
  const auto buffers = std::make_shared<Buffers>();
  Buffers& b = *buffers;
  FSDP_CHECK(mine.size() <= INT_MAX, "[exchange] message: {} bytes, at most {}", mine.size(),
             INT_MAX);
  b.mine = mine;
  b.length = static_cast<int>(mine.size());
  b.lengths.resize(static_cast<size_t>(group.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(
      MPI_Iallgather(&b.length, 1, MPI_INT, b.lengths.data(), 1, MPI_INT, group.comm(), &request),
      "MPI_Iallgather");
  wait_asleep(request, buffers, stop);
  int64_t total = 0;
  for (const int length : b.lengths) {
    b.begins.push_back(static_cast<int>(total));
    total += length;
    FSDP_CHECK(total <= INT_MAX, "[exchange] messages: {} bytes, at most {}", total, INT_MAX);
  }
  b.all.resize(static_cast<size_t>(total));
  check_mpi(MPI_Iallgatherv(b.mine.data(), b.length, MPI_CHAR, b.all.data(), b.lengths.data(),
                            b.begins.data(), MPI_CHAR, group.comm(), &request),
            "MPI_Iallgatherv");
  wait_asleep(request, buffers, stop);
  std::vector<std::string> out;
  for (size_t r = 0; r < b.lengths.size(); ++r) {
    out.push_back(
        b.all.substr(static_cast<size_t>(b.begins[r]), static_cast<size_t>(b.lengths[r])));
  }
  return out;
}

}  // namespace fsdp::comm
