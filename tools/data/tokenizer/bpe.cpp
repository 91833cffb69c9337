// Contract: tools/data/tokenizer/bpe.h. How the file is read: bpe_file.cpp.
//
// [Note: merging]
// A piece starts as the symbols of its characters. Of all neighbours that a merge joins, the
// neighbours of the lowest rank are joined, the leftmost of equals first, until none is left. A
// heap does that in n log n for pieces of any length. The library that defines these tokenizers
// forgets to drop a candidate whose symbols have changed when what it would make now is the token
// that it would have made: it then merges at the old rank. Files in which several pairs make one
// token (files converted from SentencePiece) show it, so the heap does the same. Where every token
// comes from one pair both ways are equal, and a short piece is searched for its lowest rank
// directly.
//
// [Note: cutting a long piece]
// Without a pre-tokenizer a whole text is one piece. It may be cut wherever no merge has these two
// characters at its seam: symbols on both sides never meet. Parts are then mostly words, which the
// cache knows. Characters that the vocabulary lacks are kept away from cuts, for an unknown token
// may be written later than it occurs.
#include "tools/data/tokenizer/bpe.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "tools/data/tokenizer/characters.h"

namespace fsdp::data {
namespace {

constexpr size_t kScanLimit = 48;  // symbols; above, the heap is quicker
constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

}  // namespace

std::optional<int32_t> Bpe::id_of(std::string_view content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Bpe::content_of(int32_t id) const {
  const bool exists = id >= 0 && id <= largest_id() && exists_[static_cast<size_t>(id)];
  return exists ? &contents_[static_cast<size_t>(id)] : nullptr;
}

const int32_t* Bpe::whole_piece(std::string_view piece) const {
  if (!ignore_merges_) return nullptr;
  if (byte_level_) {
    const auto found = whole_pieces_.find(std::string(piece));
    return found == whole_pieces_.end() ? nullptr : &found->second;
  }
  const auto found = ids_.find(piece);
  return found == ids_.end() ? nullptr : &found->second;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.size() <= WordCache::kLongest) {
    encode_cached(piece, ids);
  } else if (const int32_t* whole = whole_piece(piece)) {
    ids.push_back(*whole);
  } else {
    encode_long(piece, ids);
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids,
                 std::vector<Span>& bytes) const {
  const size_t first = ids.size(), known = bytes.size();
  encode(piece, ids);
  size_t end = 0;
  for (const int32_t id : std::span(ids).subspan(first)) {
    const size_t begin = end;
    end += lengths_[static_cast<size_t>(id)];
    bytes.push_back({begin, end});
  }
  if (end == piece.size()) return;
  bytes.resize(known);
  if (whole_piece(piece)) return bytes.push_back({0, piece.size()});
  trace_merging(piece, bytes);
}

void Bpe::trace_merging(std::string_view piece, std::vector<Span>& bytes) const {
  append_units(piece);
  merge_by_heap();
  const auto count = static_cast<int32_t>(unit_bytes_.size());
  for (int32_t i = 0; i >= 0 && i < count;) {
    const int32_t next = symbols_[static_cast<size_t>(i)].next;
    Span all = unit_bytes_[static_cast<size_t>(i)];
    for (int32_t unit = i + 1; unit < (next < 0 ? count : next); ++unit) {
      const Span one = unit_bytes_[static_cast<size_t>(unit)];
      all = {std::min(all.begin, one.begin), std::max(all.end, one.end)};
    }
    bytes.push_back(all);
    i = next;
  }
}

void Bpe::encode_cached(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  const uint64_t hash = WordCache::hash_of(piece);
  if (const auto known = cache_.find(piece, hash)) {
    ids.insert(ids.end(), known->begin(), known->end());
    return;
  }
  const size_t first = ids.size();
  if (const int32_t* whole = whole_piece(piece)) {
    ids.push_back(*whole);
  } else {
    encode_merging(piece, ids);
  }
  cache_.insert(piece, hash, std::span(ids).subspan(first));
}

// See [Note: cutting a long piece].
void Bpe::encode_long(std::string_view piece, std::vector<int32_t>& ids) const {
  const auto encode_part = [&](std::string_view part) {
    // The cache holds whole pieces; with ignore_merges these are not encoded like parts.
    if (part.size() <= WordCache::kLongest && !ignore_merges_) return encode_cached(part, ids);
    encode_merging(part, ids);
  };
  size_t begin = 0;
  size_t previous = class_of(piece, 0);
  for (size_t i = byte_level_ ? 1 : character_length(piece[0]); i < piece.size();) {
    const size_t here = class_of(piece, i);
    if (!joins_[previous][here]) {
      encode_part(piece.substr(begin, i - begin));
      begin = i;
    }
    previous = here;
    i += byte_level_ ? 1 : character_length(piece[i]);
  }
  encode_part(piece.substr(begin));
}

void Bpe::encode_merging(std::string_view piece, std::vector<int32_t>& ids) const {
  append_units(piece);
  if (one_merge_per_token_ && word_.size() <= kScanLimit) {
    merge_by_scan();
  } else {
    merge_by_heap();
  }
  ids.insert(ids.end(), word_.begin(), word_.end());
}

// Fills word_ and unit_bytes_.
void Bpe::append_units(std::string_view piece) const {
  word_.clear();
  unit_bytes_.clear();
  Span unknown;  // whose token is written before the next character of the vocabulary; empty: none
  for (size_t i = 0; i < piece.size();) {
    const size_t length = byte_level_ ? 1 : character_length(piece[i]);
    const Span bytes{i, i + length};
    int32_t id = -1;
    if (length == 1) {
      id = units_[static_cast<uint8_t>(piece[i])];
    } else if (const auto found = ids_.find(bytes.of(piece)); found != ids_.end()) {
      id = found->second;
    }
    if (id >= 0) {
      append_unknown(unknown);
      append_unit(id, bytes);
    } else {
      append_missing(piece, bytes, unknown);
    }
    i = bytes.end;
  }
  append_unknown(unknown);
}

void Bpe::append_unit(int32_t id, Span bytes) const {
  word_.push_back(id);
  unit_bytes_.push_back(bytes);
}

void Bpe::append_unknown(Span& unknown) const {
  if (unknown.begin < unknown.end) append_unit(unknown_, unknown);
  unknown = {};
}

void Bpe::append_missing(std::string_view piece, Span bytes, Span& unknown) const {
  std::string character(bytes.of(piece));
  if (byte_level_) {
    character.clear();
    append_utf8(character, byte_characters()[static_cast<uint8_t>(piece[bytes.begin])]);
  }
  const auto token = [&](char byte) { return byte_tokens_[static_cast<uint8_t>(byte)]; };
  const bool as_bytes = byte_fallback_ && std::all_of(character.begin(), character.end(),
                                                      [&](char byte) { return token(byte) >= 0; });
  if (as_bytes) {
    for (size_t i = 0; i < character.size(); ++i) {
      const size_t begin = bytes.begin + i;
      append_unit(token(character[i]), byte_level_ ? bytes : Span{begin, begin + 1});
    }
  } else if (unknown_ == kNoUnknown) {
    fail("[tokenizer] \"{}\" is not in the vocabulary, nor is the unk_token of the file",
         character);
  } else if (unknown_ >= 0) {
    // One that is not fused is written when the next one comes.
    if (!fuse_unknown_) append_unknown(unknown);
    unknown = {unknown.begin < unknown.end ? unknown.begin : bytes.begin, bytes.end};
  }
}

void Bpe::merge_by_scan() const {
  const auto merge_at = [&](size_t i) {
    const Merge* merge = i + 1 < word_.size() ? merge_of(word_[i], word_[i + 1]) : nullptr;
    return merge ? *merge : Merge{kNever, 0};
  };
  next_.clear();
  for (size_t i = 0; i < word_.size(); ++i) next_.push_back(merge_at(i));
  while (word_.size() > 1) {
    const auto lowest = std::min_element(
        next_.begin(), next_.end(), [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (lowest->rank == kNever) return;
    const auto i = static_cast<size_t>(lowest - next_.begin());
    word_[i] = lowest->id;
    word_.erase(word_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    next_.erase(next_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    next_[i] = merge_at(i);
    if (i > 0) next_[i - 1] = merge_at(i - 1);
  }
}

void Bpe::push_candidate(int32_t position) const {
  const Symbol& left = symbols_[static_cast<size_t>(position)];
  const Merge* merge = merge_of(left.id, symbols_[static_cast<size_t>(left.next)].id);
  if (!merge) return;
  heap_.push_back({merge->rank, position, merge->id});
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void Bpe::merge_by_heap() const {
  const auto count = static_cast<int32_t>(word_.size());
  symbols_.clear();
  heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols_.push_back({word_[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < count; ++i) push_candidate(i);
  const auto at = [&](int32_t position) -> Symbol& {
    return symbols_[static_cast<size_t>(position)];
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Candidate top = heap_.back();
    heap_.pop_back();
    Symbol& left = at(top.position);
    if (left.merged || left.next < 0) continue;
    Symbol& right = at(left.next);
    const Merge* merge = merge_of(left.id, right.id);
    if (!merge || merge->id != top.id) continue;  // outdated; see [Note: merging]
    left.id = top.id;
    left.next = right.next;
    right.merged = true;
    if (right.next >= 0) {
      at(right.next).previous = top.position;
      push_candidate(top.position);
    }
    if (left.previous >= 0) push_candidate(left.previous);
  }
  word_.clear();
  for (int32_t i = 0; i >= 0 && i < count; i = at(i).next) word_.push_back(at(i).id);
}

}  // namespace fsdp::data
