// Contract: tools/data/sequences.h.
#include "tools/data/sequences.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/ranges.h>

#include "core/error.h"
#include "core/rng.h"
#include "core/text/numbers.h"
#include "tools/data/packing.h"
#include "tools/data/sampler.h"

namespace fsdp::data {

Untrained count_untrained(const Sequences& sequences, int64_t count, int64_t length,
                          const InputRules& rules) {
  Untrained out;
  for (int64_t index = 0; index < count; ++index) {
    if (sequences.is_trained(index, length, rules)) continue;
    if (out.count++ == 0) out.first = index;
  }
  return out;
}

int64_t TokenRows::tokens_of_row(int64_t row) const {
  const auto at = static_cast<size_t>(row);
  return static_cast<int64_t>(examples[at].end - (at == 0 ? 0 : examples[at - 1].end));
}

Example TokenRows::example(int64_t row) const {
  const ExampleSpan& span = examples[static_cast<size_t>(row)];
  const auto count = static_cast<size_t>(tokens_of_row(row));
  const size_t first = static_cast<size_t>(span.end) - count;
  if (before_use && count > 0) before_use(first, count);
  const bool chat = !first_turns.empty();
  return {tokens.subspan(first, count), span.kept, chat ? 0 : span.answer, turns_of_row(row)};
}

void TokenRows::set_turns(std::span<const RowTurn> all) {
  turns = all;
  size_t first = 0;
  for (const ExampleSpan& span : examples) {
    first_turns.push_back(first);
    first += span.answer;
  }
  FSDP_CHECK(first == all.size(), "[data] the rows have {} turns, the file has {}", first,
             all.size());
}

std::span<const RowTurn> TokenRows::turns_of_row(int64_t row) const {
  if (first_turns.empty()) return {};
  const auto at = static_cast<size_t>(row);
  return turns.subspan(first_turns[at], examples[at].answer);
}

namespace {

// Sequences without padding: every token is trained, and all have one length.
class FullSequences : public Sequences {
 public:
  int64_t tokens_of(int64_t, int64_t length) const override { return length; }
  int64_t label_tokens(int64_t, int64_t length, const InputRules& rules) const override {
    return rules.targets_of_row(length);
  }
  void append(int64_t index, int64_t length, const InputRules&, LabelledRows& out) const override {
    const size_t before = out.tokens.size();
    append_tokens(index, length, out.tokens);
    out.labels.insert(out.labels.end(), out.tokens.begin() + static_cast<std::ptrdiff_t>(before),
                      out.tokens.end());
  }

 protected:
  virtual void append_tokens(int64_t index, int64_t length, std::vector<int32_t>& out) const = 0;
};

class StreamSequences final : public FullSequences {
 public:
  StreamSequences(const TokenRows& rows, int64_t length)
      : rows_(rows), packing_{rows.tokens, length} {}
  int64_t count() const override { return packing_.sequences(); }
  std::string summary() const override { return fmt::format("{} tokens", rows_.tokens.size()); }

 protected:
  void append_tokens(int64_t index, int64_t length, std::vector<int32_t>& out) const override {
    const auto first = static_cast<size_t>(index * length);
    if (rows_.before_use) rows_.before_use(first, static_cast<size_t>(length));
    const std::span<const int32_t> sequence = packing_.sequence(index);
    out.insert(out.end(), sequence.begin(), sequence.end());
  }

 private:
  TokenRows rows_;
  Packing packing_;
};

class ExampleSequences final : public Sequences {
 public:
  ExampleSequences(const TokenRows& rows, int64_t length, const RowLayout& layout)
      : rows_(rows), length_(length), layout_(layout) {}
  int64_t count() const override { return static_cast<int64_t>(rows_.examples.size()); }
  int64_t tokens_of(int64_t index, int64_t length) const override {
    return std::min(asked(index), length);
  }
  int64_t label_tokens(int64_t index, int64_t length, const InputRules& rules) const override {
    return label_tokens_of(rows_.example(index), length, layout_, rules);
  }
  // Most rows are decided without making their labels: of two tokens that are trained one is
  // predicted, whatever the rules and the side of the padding are.
  bool is_trained(int64_t index, int64_t length, const InputRules& rules) const override {
    const ExampleSpan& row = span(index);
    const int64_t there = tokens_of(index, length);
    int64_t trained = 0;  // at least
    if (layout_.objective == Objective::kLm && !is_chat()) trained = there;
    if (layout_.objective == Objective::kCompatAll) trained = length;
    if (is_chat()) {
      trained = trained_tokens(row_of(index), there, layout_);
    } else if (layout_.objective == Objective::kSft && row.kept <= there) {
      trained = row.answer;
    }
    return trained >= 2 || label_tokens(index, length, rules) > 0;
  }
  void append(int64_t index, int64_t length, const InputRules& rules,
              LabelledRows& out) const override {
    append_row(rows_.example(index), length, layout_, rules, out);
    if (!layout_.hides_padding()) out.mask.clear();
  }
  std::string summary() const override {
    int64_t cut = 0, first_cut = -1, answers_cut = 0, untrained = 0;
    for (int64_t row = 0; row < count(); ++row) {
      if (asked(row) > length_ && cut++ == 0) first_cut = row;
      if (layout_.objective != Objective::kSft || span(row).kept <= length_) continue;
      ++answers_cut;
      untrained += label_tokens(row, length_, {}) == 0;
    }
    std::string out = fmt::format("{} rows, {} of them cut to {} tokens", format_count(count()),
                                  format_count(cut), length_);
    if (answers_cut > 0) out += fmt::format(", {} within the answer", format_count(answers_cut));
    if (is_chat() && cut > 0) out += fmt::format(" (the first is row {})", first_cut + 1);
    if (is_chat()) out += ", " + trained_text();
    if (untrained > 0) {
      out += fmt::format(", {} before the answer: nothing of {} is trained",
                         format_count(untrained), untrained == 1 ? "that row" : "these rows");
    }
    return out;
  }

 private:
  const ExampleSpan& span(int64_t index) const {
    return rows_.examples[static_cast<size_t>(index)];
  }
  bool is_chat() const { return !rows_.first_turns.empty(); }
  // Without its tokens, which nobody reads.
  Example row_of(int64_t index) const { return {.tokens = {}, .turns = rows_.turns_of_row(index)}; }
  std::string trained_text() const {
    int64_t trained = 0, all = 0;
    for (int64_t row = 0; row < count(); ++row) {
      const int64_t there = tokens_of(row, length_);
      all += there;
      trained += trained_tokens(row_of(row), there, layout_);
    }
    return fmt::format(
        "{:.1f} % of {} tokens trained",
        100.0 * static_cast<double>(trained) / static_cast<double>(std::max<int64_t>(all, 1)),
        format_count(all));
  }
  // Tokens that the model reads of a row that is not cut.
  int64_t asked(int64_t index) const {
    const bool pair = layout_.objective == Objective::kApart;
    return rows_.tokens_of_row(index) - (pair ? int64_t{span(index).answer} : 0);
  }

  TokenRows rows_;
  int64_t length_;
  RowLayout layout_;
};

class WikitextSequences final : public FullSequences {
 public:
  static constexpr int64_t kGroup = 1000;  // rows; the default of datasets' map()

  WikitextSequences(const TokenRows& rows, int64_t length) : rows_(rows), length_(length) {
    const auto count = static_cast<int64_t>(rows.examples.size());
    for (int64_t first = 0; first < count; first += kGroup) {
      int64_t tokens = 0;
      for (int64_t row = first; row < std::min(first + kGroup, count); ++row) {
        tokens += cut_length(row);
        cut_ += rows_.tokens_of_row(row) > length_;
      }
      dropped_ += tokens % length;
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + tokens / length);
    }
  }
  int64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::string summary() const override {
    std::vector<int64_t> of_groups;
    for (size_t i = 0; i < std::min<size_t>(ends_.size(), 8); ++i) {
      of_groups.push_back(ends_[i] - (i == 0 ? 0 : ends_[i - 1]));
    }
    const auto rows = static_cast<int64_t>(rows_.examples.size());
    const std::string groups =
        rows <= kGroup ? ""
                       : fmt::format(" ({}{} of {}{} rows each)", fmt::join(of_groups, ", "),
                                     ends_.size() > 8 ? ", ..." : "",
                                     rows % kGroup == 0 ? "" : "up to ", format_count(kGroup));
    return fmt::format("{} rows, {} of them cut to {} tokens; {} sequences{}, {} tokens dropped",
                       format_count(rows), format_count(cut_), length_, format_count(count()),
                       groups, format_count(dropped_));
  }

 protected:
  void append_tokens(int64_t index, int64_t length, std::vector<int32_t>& out) const override {
    const auto group = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    const int64_t before = group == 0 ? 0 : ends_[static_cast<size_t>(group) - 1];
    int64_t skipped = (index - before) * length, missing = length;
    for (int64_t row = group * kGroup; missing > 0; ++row) {
      const int64_t there = cut_length(row);
      const int64_t first = std::min(skipped, there), taken = std::min(there - first, missing);
      if (taken > 0) {
        const auto tokens = rows_.example(row).tokens.subspan(static_cast<size_t>(first),
                                                              static_cast<size_t>(taken));
        out.insert(out.end(), tokens.begin(), tokens.end());
      }
      skipped -= first;
      missing -= taken;
    }
  }

 private:
  int64_t cut_length(int64_t row) const { return std::min(rows_.tokens_of_row(row), length_); }

  TokenRows rows_;
  int64_t length_;
  std::vector<int64_t> ends_;  // of each group: sequences of it and of the groups before it
  int64_t cut_ = 0, dropped_ = 0;
};

class SyntheticSequences final : public FullSequences {
 public:
  SyntheticSequences(int64_t count, int64_t vocabulary, uint64_t seed)
      : count_(count), vocabulary_(static_cast<uint64_t>(vocabulary)), seed_(seed) {}
  int64_t count() const override { return count_; }
  std::string summary() const override { return fmt::format("{} sequences", count_); }

 protected:
  void append_tokens(int64_t index, int64_t length, std::vector<int32_t>& out) const override {
    const auto number = static_cast<uint64_t>(index);
    for (int64_t t = 0; t < length; ++t) {
      const Philox4x32 words =
          philox4x32({static_cast<uint32_t>(t), static_cast<uint32_t>(number),
                      static_cast<uint32_t>(number >> 32), 0x73796e74u},  // "synt"
                     {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
      out.push_back(static_cast<int32_t>(uint64_t{words[0]} * vocabulary_ >> 32));
    }
  }

 private:
  int64_t count_;
  uint64_t vocabulary_, seed_;
};

// Some of the sequences of another set.
class PartOfSequences final : public Sequences {
 public:
  PartOfSequences(std::shared_ptr<const Sequences> all, int64_t first, int64_t count,
                  std::optional<uint64_t> seed)
      : all_(std::move(all)), first_(first), count_(count) {
    if (seed) order_.emplace(all_->count(), *seed, 0);
  }
  int64_t count() const override { return count_; }
  int64_t tokens_of(int64_t index, int64_t length) const override {
    return all_->tokens_of(at(index), length);
  }
  int64_t label_tokens(int64_t index, int64_t length, const InputRules& rules) const override {
    return all_->label_tokens(at(index), length, rules);
  }
  bool is_trained(int64_t index, int64_t length, const InputRules& rules) const override {
    return all_->is_trained(at(index), length, rules);
  }
  void append(int64_t index, int64_t length, const InputRules& rules,
              LabelledRows& out) const override {
    all_->append(at(index), length, rules, out);
  }
  std::string summary() const override { return all_->summary(); }

 private:
  int64_t at(int64_t index) const { return order_ ? (*order_)(first_ + index) : first_ + index; }

  std::shared_ptr<const Sequences> all_;
  int64_t first_, count_;
  std::optional<Permutation> order_;
};

class JoinedSequences final : public Sequences {
 public:
  explicit JoinedSequences(std::vector<std::shared_ptr<const Sequences>> sets)
      : sets_(std::move(sets)) {
    for (const auto& set : sets_) ends_.push_back(count() + set->count());
  }
  int64_t count() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t tokens_of(int64_t index, int64_t length) const override {
    const Place at = place(index);
    return at.set->tokens_of(at.index, length);
  }
  int64_t label_tokens(int64_t index, int64_t length, const InputRules& rules) const override {
    const Place at = place(index);
    return at.set->label_tokens(at.index, length, rules);
  }
  bool is_trained(int64_t index, int64_t length, const InputRules& rules) const override {
    const Place at = place(index);
    return at.set->is_trained(at.index, length, rules);
  }
  void append(int64_t index, int64_t length, const InputRules& rules,
              LabelledRows& out) const override {
    const Place at = place(index);
    at.set->append(at.index, length, rules, out);
  }
  std::string summary() const override {
    std::vector<std::string> all;
    for (const auto& set : sets_) all.push_back(set->summary());
    return fmt::format("{}", fmt::join(all, "; "));
  }

 private:
  struct Place {
    const Sequences* set;
    int64_t index;
  };
  Place place(int64_t index) const {
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto set = static_cast<size_t>(end - ends_.begin());
    return {sets_[set].get(), index - (set == 0 ? 0 : ends_[set - 1])};
  }

  std::vector<std::shared_ptr<const Sequences>> sets_;
  std::vector<int64_t> ends_;  // of each set: sequences of it and of the sets before it
};

}  // namespace

std::shared_ptr<const Sequences> joined_sequences(
    std::vector<std::shared_ptr<const Sequences>> sets) {
  return std::make_shared<JoinedSequences>(std::move(sets));
}

std::shared_ptr<const Sequences> part_of_sequences(std::shared_ptr<const Sequences> all,
                                                   int64_t first, int64_t count,
                                                   std::optional<uint64_t> seed) {
  return std::make_shared<PartOfSequences>(std::move(all), first, count, seed);
}

std::shared_ptr<const Sequences> stream_sequences(const TokenRows& rows, int64_t length) {
  return std::make_shared<StreamSequences>(rows, length);
}

std::shared_ptr<const Sequences> example_sequences(const TokenRows& rows, int64_t length,
                                                   const RowLayout& layout) {
  return std::make_shared<ExampleSequences>(rows, length, layout);
}

std::shared_ptr<const Sequences> wikitext_sequences(const TokenRows& rows, int64_t length) {
  return std::make_shared<WikitextSequences>(rows, length);
}

std::shared_ptr<const Sequences> synthetic_sequences(int64_t count, int64_t vocabulary,
                                                     uint64_t seed) {
  return std::make_shared<SyntheticSequences>(count, vocabulary, seed);
}

}  // namespace fsdp::data
