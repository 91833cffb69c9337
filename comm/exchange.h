// Every rank tells all others something small, as values instead of text: numbers, structs of
// numbers, lists of either, lists of texts. All of it is collective over `group`, on the host, and
// returns what was said by rank. Not here: data of tensors (communicator.h).
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"

namespace fsdp::comm {

// The lists may differ in length between ranks.
template <typename T>
std::vector<std::vector<T>> exchange_lists(Communicator& group, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>, "travels as its bytes");
  std::vector<std::vector<T>> all;
  for (const std::string& bytes : group.exchange(
           std::string(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(T)))) {
    FSDP_CHECK(bytes.size() % sizeof(T) == 0, "[exchange] values of {} bytes: got {} bytes",
               sizeof(T), bytes.size());
    all.emplace_back(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(all.back().data(), bytes.data(), bytes.size());
  }
  return all;
}

template <typename T>
std::vector<T> exchange_values(Communicator& group, const T& mine) {
  std::vector<T> all;
  for (const std::vector<T>& one : exchange_lists(group, std::vector<T>{mine})) {
    FSDP_CHECK(one.size() == 1, "[exchange] expected one value of each rank, got {}", one.size());
    all.push_back(one.front());
  }
  return all;
}

// Lists of texts, with any bytes in them.
std::vector<std::vector<std::string>> exchange_texts(Communicator& group,
                                                     const std::vector<std::string>& mine);

// What rank 0 says; the others' texts are not looked at.
std::string from_first_rank(Communicator& group, const std::string& mine);

struct Said {
  int rank = 0;
  std::string text;
};
// The lowest rank with something to say, the same on every rank. "": nothing.
std::optional<Said> first_to_say(Communicator& group, const std::string& mine);

}  // namespace fsdp::comm
