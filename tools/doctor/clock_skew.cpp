// Contract: tools/doctor/clock_skew.h.
#include "tools/doctor/clock_skew.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "comm/exchange.h"

namespace fsdp::tools::doctor {
namespace {

double unix_time() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace

std::vector<std::vector<Stamps>> stamp_exchanges(comm::Communicator& world, int exchanges) {
  std::vector<Stamps> mine;
  for (int i = 0; i < exchanges; ++i) {
    Stamps stamps = {.before = unix_time()};
    world.barrier();
    stamps.after = unix_time();
    mine.push_back(stamps);
  }
  return comm::exchange_lists(world, mine);
}

// Offset o = own clock - other clock. Own `after` is later than the other's `before`:
// own.after - o >= other.before; and the other way round.
ClockOffset clock_offset(const std::vector<Stamps>& own, const std::vector<Stamps>& other) {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (size_t i = 0; i < own.size(); ++i) {
    most = std::min(most, own[i].after - other[i].before);
    least = std::max(least, own[i].before - other[i].after);
  }
  return {.seconds = (least + most) / 2, .uncertainty = std::max(0.0, (most - least) / 2)};
}

}  // namespace fsdp::tools::doctor
