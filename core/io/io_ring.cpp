// A ring of submissions and completions. Contract: core/io/io_ring.h.
#include "core/io/io_ring.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <liburing.h>

#include "core/error.h"

namespace fsdp {
namespace {

constexpr unsigned kInFlight = 16;  // requests

std::string text_of(int error) { return std::generic_category().message(error); }

class LinuxRing final : public IoRing {
 public:
  LinuxRing() = default;
  ~LinuxRing() override {
    if (made_) io_uring_queue_exit(&ring_);
  }
  // 0, or what the system says.
  int init() {
    const int error = -io_uring_queue_init(kInFlight, &ring_, 0);
    made_ = error == 0;
    return error;
  }

  void run(int descriptor, std::vector<FileRequest>& requests) override {
    size_t begun = 0, done = 0;
    while (done < requests.size()) {
      for (; begun < requests.size() && begun - done < kInFlight; ++begun) {
        begin(descriptor, requests[begun]);
      }
      const int submitted = io_uring_submit_and_wait(&ring_, 1);
      if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN) {
        fail("[io_uring] submission: {}", text_of(-submitted));
      }
      io_uring_cqe* completion = nullptr;
      while (io_uring_peek_cqe(&ring_, &completion) == 0) {
        auto* request = static_cast<FileRequest*>(io_uring_cqe_get_data(completion));
        request->result = completion->res;
        io_uring_cqe_seen(&ring_, completion);
        ++done;
      }
    }
  }

 private:
  void begin(int descriptor, FileRequest& request) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    FSDP_CHECK(entry, "[io_uring] more than {} requests in flight", kInFlight);
    const auto bytes = static_cast<unsigned>(request.bytes);
    if (request.writes) {
      io_uring_prep_write(entry, descriptor, request.memory, bytes, request.offset);
    } else {
      io_uring_prep_read(entry, descriptor, request.memory, bytes, request.offset);
    }
    io_uring_sqe_set_data(entry, &request);
  }

  io_uring ring_ = {};
  bool made_ = false;
};

}  // namespace

std::unique_ptr<IoRing> IoRing::make(std::string& problem) {
  auto ring = std::make_unique<LinuxRing>();
  const int error = ring->init();
  if (error == 0) return ring;
  problem = "the system refuses io_uring (" + text_of(error) + ")";
  return nullptr;
}

}  // namespace fsdp
