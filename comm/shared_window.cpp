// memfd regions, offered to peers as (pid, descriptor) and checked by device and inode: in another
// pid namespace the same numbers may name another file.
#include "comm/shared_window.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fsdp::comm {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// What a rank tells its peers about its region. As text, not by comm/exchange.h: a window is made
// with any function that exchanges texts, so that tests need no Communicator.
struct Offer {
  long pid = 0;
  int fd = -1;
  unsigned long long device = 0;
  unsigned long long inode = 0;
  size_t bytes = 0;
  std::string problem;  // not empty: there is no region

  std::string str() const {
    return fmt::format("{} {} {} {} {} {}", pid, fd, device, inode, bytes, problem);
  }
  static Offer parse(const std::string& text) {
    Offer offer;
    std::istringstream in(text);
    in >> offer.pid >> offer.fd >> offer.device >> offer.inode >> offer.bytes;
    in.ignore(1);
    std::getline(in, offer.problem, '\0');
    return offer;
  }
};

size_t mapped_bytes(size_t bytes) { return std::max<size_t>(bytes, 1); }  // mmap refuses 0

std::string system_error() { return std::strerror(errno); }

// The number after `key` in a file of lines "key number"; SIZE_MAX when it says none.
size_t number_in(const std::filesystem::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    return digit == std::string::npos ? SIZE_MAX : std::stoull(line.substr(digit));
  }
  return SIZE_MAX;
}

// What the control group (v2) of this process and those around it leave: files that were read are
// given back when memory is short.
size_t memory_left_by_cgroups() {
  std::ifstream own("/proc/self/cgroup");
  std::string line;
  while (std::getline(own, line) && !line.starts_with("0::/")) {
  }
  const std::filesystem::path root = "/sys/fs/cgroup";
  size_t left = SIZE_MAX;
  if (!line.starts_with("0::/")) return left;
  for (std::filesystem::path group = root / line.substr(4);; group = group.parent_path()) {
    const size_t limit = number_in(group / "memory.max", "");
    const size_t used = number_in(group / "memory.current", "");
    const size_t files = number_in(group / "memory.stat", "inactive_file");
    if (limit != SIZE_MAX && used != SIZE_MAX) {
      const size_t kept = files == SIZE_MAX ? used : used - std::min(used, files);
      left = std::min(left, limit - std::min(limit, kept));
    }
    if (group == root || group == group.root_path()) return left;
  }
}

// Memory that can be had without swapping, bytes.
size_t available_memory() {
  const size_t available = number_in("/proc/meminfo", "MemAvailable:");
  return std::min(available == SIZE_MAX ? available : available << 10, memory_left_by_cgroups());
}

// The kernel has to find the pages now, not at the first touch. It would go on until it kills
// processes, so we look first; all ranks reserve at the same time.
void reserve(int fd, size_t bytes, int ranks) {
  const size_t available = available_memory();
  FSDP_CHECK(bytes <= available / static_cast<size_t>(ranks),
             "{} ranks need {} bytes each, {} are available", ranks, bytes, available);
  int error = 0;
  do {
    error = ftruncate(fd, static_cast<off_t>(bytes)) != 0
                ? errno
                : posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  FSDP_CHECK(error == 0, "no memory for {} bytes: {}", bytes, std::strerror(error));
}

// This rank's part of a window while it is being made.
struct Region {
  std::unique_ptr<Descriptor> memory;  // open until all peers have mapped it
  std::unique_ptr<Mapping> mapping;
  Offer offer;
};

Region make_region(const SharedWindow::Request& request) {
  Region region;
  region.offer.bytes = request.bytes;
  region.offer.problem = request.refusal;
  if (!request.refusal.empty()) return region;
  try {
    region.memory = std::make_unique<Descriptor>(memfd_create("fsdp", MFD_CLOEXEC));
    const int fd = region.memory->get();
    FSDP_CHECK(fd >= 0, "memfd_create: {}", system_error());
    reserve(fd, mapped_bytes(request.bytes), request.ranks);
    region.mapping = std::make_unique<Mapping>(fd, mapped_bytes(request.bytes), true);
    struct stat info {};
    FSDP_CHECK(fstat(fd, &info) == 0, "fstat: {}", system_error());
    region.offer = {getpid(), fd, info.st_dev, info.st_ino, request.bytes, ""};
  } catch (const Error& error) {
    region.offer.problem = error.what();
  }
  return region;
}

std::unique_ptr<Mapping> map_peer(const Offer& offer, PeerAccess access) {
  const bool writable = access == PeerAccess::kReadWrite;
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.fd);
  const Descriptor file(open(path.c_str(), (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  FSDP_CHECK(file.get() >= 0, "cannot open {}: {}", path, system_error());
  struct stat info {};
  FSDP_CHECK(fstat(file.get(), &info) == 0, "fstat: {}", system_error());
  FSDP_CHECK(info.st_dev == offer.device && info.st_ino == offer.inode,
             "{} is another file: the ranks do not share a pid namespace", path);
  return std::make_unique<Mapping>(file.get(), mapped_bytes(offer.bytes), writable);
}

std::vector<Offer> parse_all(const std::vector<std::string>& texts) {
  std::vector<Offer> offers;
  for (const std::string& text : texts) offers.push_back(Offer::parse(text));
  return offers;
}

// The first rank's problem, as all ranks see it; empty when there is none.
std::string first_problem(const std::vector<std::string>& problems) {
  for (size_t r = 0; r < problems.size(); ++r) {
    if (!problems[r].empty()) return fmt::format("rank {}: {}", r, problems[r]);
  }
  return {};
}

}  // namespace

Mapping::Mapping(int fd, size_t bytes, bool writable) : bytes_(bytes) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  FSDP_CHECK(data != MAP_FAILED, "cannot map {} bytes: {}", bytes, system_error());
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

SharedWindow::Result SharedWindow::create(const Exchange& exchange, const Request& request) {
  Region own = make_region(request);
  const std::vector<Offer> offers = parse_all(exchange(own.offer.str()));
  std::vector<std::string> problems;
  for (const Offer& offer : offers) {
    FSDP_CHECK(offer.bytes == offers[0].bytes,
               "[allocate] bytes: expected the same on all ranks, got {} on rank 0 and {} on "
               "another",
               offers[0].bytes, offer.bytes);
    problems.push_back(offer.problem);
  }
  if (const std::string problem = first_problem(problems); !problem.empty()) {
    return {nullptr, problem};
  }
  std::shared_ptr<SharedWindow> window(new SharedWindow());
  window->bytes_ = request.bytes;
  std::string problem_here;
  try {
    for (size_t r = 0; r < offers.size(); ++r) {
      const bool self = static_cast<int>(r) == request.rank;
      window->regions_.push_back(self ? std::move(own.mapping)
                                      : map_peer(offers[r], request.access));
    }
  } catch (const Error& error) {
    problem_here = error.what();
  }
  const std::string problem = first_problem(exchange(problem_here));
  if (!problem.empty()) return {nullptr, problem};
  return {std::move(window), ""};  // and the descriptors close: the mappings keep the memory
}

}  // namespace fsdp::comm
