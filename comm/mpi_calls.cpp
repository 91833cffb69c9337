// Error texts, the sleeping wait, and the life of communicators.
#include "comm/mpi_calls.h"

#include <algorithm>
#include <chrono>
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

int MpiGroup::size_on_host() const {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  return MpiGroup(host).size();
}

void wait_asleep(MPI_Request& request, const std::function<void()>& stop) {
  auto sleep = kFirstSleep;
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return;
    stop();
    std::this_thread::sleep_for(sleep);
    sleep = std::min(2 * sleep, kLongestSleep);
  }
}

}  // namespace fsdp::comm
