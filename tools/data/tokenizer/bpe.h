// The BPE model of a tokenizer.json: a piece of text to token ids.
// Read next: bpe.cpp ([Note: merging], [Note: cutting a long piece], [Note: bytes of a token]),
// word_cache.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tools/data/tokenizer/flat_map.h"
#include "tools/data/tokenizer/span.h"
#include "tools/data/tokenizer/word_cache.h"

namespace fsdp::data {

class JsonNode;

class Bpe {
 public:
  // `byte_level`: pieces are bytes, written in the vocabulary as the characters of
  // byte_characters().
  Bpe(const JsonNode& node, bool byte_level);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the ids of a piece. Characters that the vocabulary lacks become bytes, the unknown
  // token or nothing, as the file says. One thread at a time (buffers and a cache of words).
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;
  // Also appends the bytes of the piece that each of these tokens stands for, at least one. An
  // unknown token may stand after one whose bytes come later.
  void encode(std::string_view piece, std::vector<int32_t>& ids, std::vector<Span>& bytes) const;

  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }  // entries
  int32_t largest_id() const { return static_cast<int32_t>(contents_.size()) - 1; }
  std::optional<int32_t> id_of(std::string_view content) const;
  const std::string* content_of(int32_t id) const;  // null: no such token
  // Whether a piece may be cut between any Latin letter and the character that `space` begins with.
  bool parts_before(std::string_view space) const;

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // positions; -1: none
    bool merged = false;     // into the one before it
  };
  struct Candidate {
    int32_t rank, position, id;
    bool operator>(const Candidate& o) const {
      return rank != o.rank ? rank > o.rank : position > o.position;
    }
  };
  void read_vocabulary(const JsonNode& node);
  void read_merges(const JsonNode& node);
  void prepare_units();
  void prepare_lengths();
  void prepare_joins(const JsonNode& merges);
  size_t class_of(std::string_view text, size_t begin) const;

  void encode_long(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_cached(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_merging(std::string_view piece, std::vector<int32_t>& ids) const;
  void append_units(std::string_view piece) const;
  void append_unit(int32_t id, Span bytes) const;
  void append_unknown(Span& unknown) const;
  void append_missing(std::string_view piece, Span bytes, Span& unknown) const;
  void merge_by_scan() const;
  void merge_by_heap() const;
  void push_candidate(int32_t position) const;
  void trace_merging(std::string_view piece, std::vector<Span>& bytes) const;
  const int32_t* whole_piece(std::string_view piece) const;
  const Merge* merge_of(int32_t left, int32_t right) const {
    return merges_.find(static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right));
  }

  static constexpr int32_t kNoUnknown = -2;  // named, but not in the vocabulary

  bool byte_level_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;
  int32_t unknown_ = -1;

  std::vector<std::string> contents_;                      // by id
  std::vector<bool> exists_;                               // by id
  std::unordered_map<std::string_view, int32_t> ids_;      // views of contents_
  std::unordered_map<std::string, int32_t> whole_pieces_;  // for ignore_merges: what a piece holds
  FlatMap<Merge> merges_;
  bool one_merge_per_token_ = true;
  std::array<int32_t, 256> units_;        // ids of bytes, or of ASCII characters; -1: none
  std::array<int32_t, 256> byte_tokens_;  // ids of <0x00> to <0xFF>; -1: none

  std::vector<uint32_t> lengths_;  // by id: see [Note: bytes of a token]

  // By classes of neighbours: whether a merge may reach across them.
  std::array<std::array<bool, 256>, 256> joins_{};

  mutable std::vector<int32_t> word_;     // the symbols of the piece at hand
  mutable std::vector<Span> unit_bytes_;  // of the symbols that the piece starts as
  mutable std::vector<Merge> next_;       // how each one joins the next one
  mutable std::vector<Symbol> symbols_;
  mutable std::vector<Candidate> heap_;
  mutable WordCache cache_;
};

}  // namespace fsdp::data
