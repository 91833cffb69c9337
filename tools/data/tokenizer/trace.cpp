// Contract: tools/data/tokenizer/trace.h.
#include "tools/data/tokenizer/trace.h"

#include <utility>

namespace fsdp::data {

void Trace::Step::add(Span span, size_t bytes, bool kept) {
  if (!kept || span.begin != used_) {  // or dropped bytes stood before it
    if (changes_.empty() && bytes_ > 0) changes_.emplace_back();
    changes_.push_back(kept ? Change{bytes_, 0, {span.begin, span.begin}}
                            : Change{bytes_, bytes, span});
  }
  bytes_ += bytes;
  used_ = span.end;
}

const Trace::Change& Trace::Step::change_at(size_t byte) const {
  while (cursor_ + 1 < changes_.size() && changes_[cursor_ + 1].at <= byte) ++cursor_;
  while (changes_[cursor_].at > byte) --cursor_;
  return changes_[cursor_];
}

Span Trace::Step::before(Span span) const {
  const auto of_byte = [&](size_t byte) {
    const Change& change = change_at(byte);
    if (byte < change.at + change.bytes) return change.from;
    const size_t begin = change.from.end + (byte - change.at - change.bytes);
    return Span{begin, begin + 1};
  };
  const Span first = of_byte(span.begin);
  if (span.begin < span.end) return {first.begin, of_byte(span.end - 1).end};
  const Change& change = change_at(span.begin);
  const bool amid = span.begin > change.at && span.begin < change.at + change.bytes;
  return {first.begin, amid ? first.end : first.begin};
}

void Trace::end_step() {
  lead_ = std::exchange(next_lead_, 0);
  if (next_.changes()) steps_.push_back(std::move(next_));
  next_ = {};
}

Span Trace::origin(Span span) const {
  for (size_t i = steps_.size(); i > 0; --i) span = steps_[i - 1].before(span);
  return before_ ? before_->origin(span) : Span{place_ + span.begin, place_ + span.end};
}

}  // namespace fsdp::data
