// Contract: comm/exchange.h.
#include "comm/exchange.h"

namespace fsdp::comm {

// Each text behind its length.
std::vector<std::vector<std::string>> exchange_texts(Communicator& group,
                                                     const std::vector<std::string>& mine) {
  std::string packed;
  for (const std::string& text : mine) {
    const uint64_t length = text.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof length);
    packed += text;
  }
  std::vector<std::vector<std::string>> all;
  for (const std::string& from : group.exchange(packed)) {
    std::vector<std::string>& texts = all.emplace_back();
    for (size_t at = 0; at < from.size();) {
      uint64_t length = 0;
      std::memcpy(&length, from.data() + at, sizeof length);
      at += sizeof length;
      texts.push_back(from.substr(at, length));
      at += length;
    }
  }
  return all;
}

std::string from_first_rank(Communicator& group, const std::string& mine) {
  return group.exchange(mine).front();
}

std::optional<Said> first_to_say(Communicator& group, const std::string& mine) {
  const std::vector<std::string> all = group.exchange(mine);
  for (int rank = 0; rank < group.size(); ++rank) {
    const std::string& text = all[static_cast<size_t>(rank)];
    if (!text.empty()) return Said{rank, text};
  }
  return {};
}

}  // namespace fsdp::comm
