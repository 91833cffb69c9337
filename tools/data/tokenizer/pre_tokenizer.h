// Pre-tokenizers of a tokenizer.json: cut a normalised text into the pieces that the model encodes
// one by one. A further one: a Step in pre_tokenizer.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tools/data/tokenizer/trace.h"

namespace fsdp::data {

class JsonNode;

class PreTokenizer {
 public:
  using Use = std::function<void(const Piece& piece)>;

  PreTokenizer();  // a text is one piece
  explicit PreTokenizer(const JsonNode& node);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The pieces in order, never empty; a piece lives until `use` returns.
  void split(const Piece& text, const Use& use) const { run(0, text, use); }
  // Pieces hold bytes for a vocabulary that writes each byte as a character (characters.h).
  bool byte_level() const { return byte_level_; }

  // Whether the pieces of a text are the pieces of its parts when it is cut between a Latin letter
  // and a space that a Latin letter follows: kApart if such a place is always the end of a piece,
  // kInside if it may lie inside one.
  enum class Cut : uint8_t { kUnknown, kInside, kApart };
  Cut cut_before_space() const;

  class Step;

 private:
  void add(const JsonNode& node);
  void run(size_t step, const Piece& text, const Use& use) const;

  std::vector<std::unique_ptr<Step>> steps_;
  bool byte_level_ = false;
};

}  // namespace fsdp::data
