// Contract: tools/checkpoint/checkpoint_room.h.
#include "tools/checkpoint/checkpoint_room.h"

#include <algorithm>

#include "comm/exchange.h"
#include "core/text/byte_size.h"
#include "tools/checkpoint/owned_state.h"

namespace fsdp::tools {

uint64_t checkpoint_bytes(Session& session) {
  uint64_t mine = 0, all = 0;
  for (const StatePartOwned& part : owned_state(session)) mine += part.values.bytes();
  for (const uint64_t of_rank : comm::exchange_values(session.world(), mine)) all += of_rank;
  return all;
}

int64_t checkpoints_to_come(const config::CheckpointSection& config, int64_t steps, int64_t there) {
  constexpr int64_t kWithoutLimit = 2;
  const int64_t every = config.interval().steps;
  const int64_t written = every > 0 ? (steps + every - 1) / every : INT64_MAX;
  const int64_t most = config.keep > 0 ? config.keep + 1 : kWithoutLimit;
  return std::max<int64_t>(std::min(written, most - there), 1);
}

std::string missing_room(const std::filesystem::path& folder, uint64_t bytes_of_one, int64_t count,
                         uint64_t beside) {
  std::error_code unreadable;
  std::filesystem::path place = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(place, unreadable) && place.has_relative_path()) {
    place = place.parent_path();
  }
  const std::filesystem::space_info space = std::filesystem::space(place, unreadable);
  const uint64_t needed = bytes_of_one * static_cast<uint64_t>(count) + beside;
  if (unreadable || space.available >= needed) return "";
  if (count == 0) {
    return fmt::format("{}: {} are free; the trained model needs {}", place.string(),
                       byte_size_text(space.available), byte_size_text(needed));
  }
  return fmt::format("{}: {} are free; {} checkpoint{} of {} each{} need {}", place.string(),
                     byte_size_text(space.available), count, count == 1 ? "" : "s",
                     byte_size_text(bytes_of_one), beside > 0 ? " and the trained model" : "",
                     byte_size_text(needed));
}

}  // namespace fsdp::tools
