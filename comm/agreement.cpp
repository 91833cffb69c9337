// Hashes first; texts only when they differ.
#include "comm/agreement.h"

#include <algorithm>
#include <sstream>

#include "core/rng.h"

namespace fsdp::comm {
namespace {

constexpr char kEnd = '\0';  // of an entry, which may have several lines

std::string text_of(const std::vector<std::string>& entries) {
  std::string text;
  for (const std::string& entry : entries) text += entry + kEnd;
  return text;
}

std::string entry_of(const std::string& text, size_t index) {
  std::istringstream entries(text);
  std::string entry;
  for (size_t i = 0; i <= index; ++i) {
    if (!std::getline(entries, entry, kEnd)) return "nothing more";
  }
  return entry;
}

size_t first_difference(const std::string& a, const std::string& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return static_cast<size_t>(std::count(a.begin(), end, kEnd));
}

}  // namespace

std::optional<Difference> difference_between(Communicator& group,
                                             const std::vector<std::string>& entries) {
  const std::string mine = text_of(entries);
  const std::string hash = std::to_string(hash_name(mine));
  const std::vector<std::string> hashes = group.exchange(hash);
  if (std::count(hashes.begin(), hashes.end(), hashes[0]) == group.size()) return std::nullopt;

  const std::vector<std::string> texts = group.exchange(mine);  // all ranks know that they differ
  const auto other = std::find_if(texts.begin(), texts.end(),
                                  [&](const std::string& text) { return text != texts[0]; });
  const size_t index = first_difference(texts[0], *other);
  return Difference{static_cast<int>(other - texts.begin()), index, entry_of(texts[0], index),
                    entry_of(*other, index)};
}

void check_same_on_all(Communicator& group, std::string_view what,
                       const std::vector<std::string>& entries) {
  const auto found = difference_between(group, entries);
  if (!found) return;
  const std::string message = fmt::format(
      "the ranks have different {}; the first difference is entry {}: rank {}: {}; rank 0: {}",
      what, found->index, found->rank, found->other, found->first);
  group.abort(message);
  throw Error(message);
}

std::vector<std::string> order_of_calls(const std::vector<const Communicator*>& communicators) {
  std::vector<std::string> out;
  for (const Communicator* communicator : communicators) {
    const std::vector<std::string> calls = communicator->ring().order();
    out.insert(out.end(), calls.begin(), calls.end());
  }
  return out;
}

}  // namespace fsdp::comm
