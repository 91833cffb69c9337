// Follows a text through the stages that change it: its lead (normalizer.h, [Note: lead]), and the
// origins of its bytes if they are asked for. Read next: trace.cpp, tokenizer.h (EncodedText). Not
// here: the bytes of a piece that a token stands for (bpe.h).
//
// [Note: origins]
// The origin of a byte is a span of the text that was given to the tokenizer. A byte that no step
// changes comes from that byte alone. If a step replaces a span, each byte of the replacement comes
// from the whole span. An inserted byte has an empty span at its place. The origin of several bytes
// reaches from the begin of the first byte's origin to the end of the last byte's.
#pragma once

#include <algorithm>
#include <vector>

#include "tools/data/tokenizer/span.h"

namespace fsdp::data {

class Trace;

// A part of a normalised text.
struct Piece {
  std::string_view text;
  size_t lead = 0;               // bytes
  const Trace* trace = nullptr;  // of the text; null: origins are not asked for
  size_t at = 0;                 // where the part begins in it

  Piece part(Span span) const {
    return {span.of(text), lead - std::min(lead, span.begin), trace, at + span.begin};
  }
  Span origin(Span span) const;
};

// A step reports from left to right how it changes the text. Its spans are in the text before the
// step.
class Trace {
 public:
  explicit Trace(size_t lead = 0) : lead_(lead) {}
  // Continues the piece's trace. The piece outlives this one.
  explicit Trace(const Piece& text)
      : lead_(text.lead), follows_bytes_(text.trace != nullptr), before_(&text) {}
  // Also the origins, of a text that begins at byte `place` of the one that was given.
  void follow_bytes(size_t place) {
    follows_bytes_ = true;
    place_ = place;
  }

  // These bytes stay as they are.
  void keep(Span span) {
    if (span.begin < lead_) next_lead_ += std::min(span.end, lead_) - span.begin;
    if (follows_bytes_) next_.add(span, span.end - span.begin, true);
  }
  // So many bytes replace the span. Bytes that are neither kept nor replaced are dropped.
  void replace(Span span, size_t bytes) {
    if (span.end <= lead_) next_lead_ += bytes;
    if (follows_bytes_) next_.add(span, bytes, bytes == 1 && span.end == span.begin + 1);
  }
  // So many bytes come in front of the text: the first thing that a step says.
  void prepend(size_t bytes) {
    replace({0, 0}, bytes);
    if (lead_ == 0) next_lead_ = 0;
  }
  void set_lead(size_t lead) { next_lead_ = lead; }  // whatever the step said so far
  void end_step();

  bool follows_bytes() const { return follows_bytes_; }
  size_t lead() const { return lead_; }
  // The text behind all steps.
  Piece piece(std::string_view text) const {
    return {text, lead_, follows_bytes_ ? this : nullptr};
  }
  Span origin(Span span) const;

 private:
  // The `bytes` bytes of a step's result that begin at `at` replace the span `from` of the text
  // before. Behind them the texts are equal up to the next change.
  struct Change {
    size_t at = 0, bytes = 0;
    Span from;
  };
  class Step {
   public:
    void add(Span span, size_t bytes, bool kept);
    bool changes() const { return !changes_.empty(); }
    Span before(Span span) const;

   private:
    const Change& change_at(size_t byte) const;  // the last one that begins there or before

    std::vector<Change> changes_;  // the first one at byte 0
    size_t bytes_ = 0, used_ = 0;  // of the result and of the text, up to now
    mutable size_t cursor_ = 0;    // the change that was asked for last: the next one is near
  };

  size_t lead_, next_lead_ = 0;
  bool follows_bytes_ = false;
  size_t place_ = 0;
  const Piece* before_ = nullptr;
  std::vector<Step> steps_;
  Step next_;
};

inline Span Piece::origin(Span span) const {
  return trace->origin({at + span.begin, at + span.end});
}

}  // namespace fsdp::data
