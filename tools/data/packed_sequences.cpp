// Contract: tools/data/packed_sequences.h.
#include "tools/data/packed_sequences.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"
#include "core/layer_values.h"
#include "core/text/numbers.h"
#include "tools/data/bins.h"

namespace fsdp::data {
namespace {

int64_t whole_tokens(const Sequences& rows, int64_t row) { return rows.tokens_of(row, INT32_MAX); }

class PackedSequences final : public Sequences {
 public:
  PackedSequences(std::shared_ptr<const Sequences> rows, const PackedOptions& options)
      : rows_(std::move(rows)), options_(options) {
    const bool drops = options.long_rows == LongRows::kDrop;
    std::vector<uint32_t> lengths(static_cast<size_t>(rows_->count()));
    for (size_t row = 0; row < lengths.size(); ++row) {
      const int64_t whole = whole_tokens(*rows_, static_cast<int64_t>(row));
      const int64_t lost = std::max<int64_t>(whole - options.length, 0);
      longest_ = std::max(longest_, whole);
      long_rows_ += lost > 0;
      empty_ += whole == 0;
      lost_ += lost > 0 && drops ? whole : lost;
      lengths[row] = static_cast<uint32_t>(lost > 0 && drops ? 0 : whole - lost);
      tokens_ += lengths[row];
    }
    bins_ = pack_rows(lengths, options.length, options.window);
  }

  int64_t count() const override { return bins_.count(); }
  int64_t tokens_of(int64_t index, int64_t length) const override {
    int64_t out = 0;
    for (const uint32_t row : bins_.rows_of(index)) out += tokens_of_row(row);
    return std::min(out, length);
  }
  int64_t label_tokens(int64_t index, int64_t, const InputRules& rules) const override {
    int64_t out = 0;
    for (const uint32_t row : bins_.rows_of(index)) {
      out += rows_->label_tokens(row, tokens_of_row(row), rules);
    }
    return out;
  }
  bool is_trained(int64_t index, int64_t, const InputRules& rules) const override {
    return std::ranges::any_of(bins_.rows_of(index), [&](uint32_t row) {
      return rows_->is_trained(row, tokens_of_row(row), rules);
    });
  }
  // Each row in the length that it has: so none is padded.
  void append(int64_t index, int64_t length, const InputRules& rules,
              LabelledRows& out) const override {
    FSDP_CHECK(length == options_.length, "[data] packed for sequences of {}, asked for {}",
               options_.length, length);
    const size_t begin = out.tokens.size(), end = begin + static_cast<size_t>(length);
    const auto documents_begin = [&] { return static_cast<int32_t>(out.tokens.size() - begin); };
    for (const uint32_t row : bins_.rows_of(index)) {
      const int32_t first_key = documents_begin();
      const size_t first = out.tokens.size();
      rows_->append(row, tokens_of_row(row), rules, out);
      out.first_key.resize(out.tokens.size(), first_key);
      if (rules.shifted_labels) out.labels[first] = kIgnoreIndex;  // nobody predicts it
    }
    out.first_key.resize(end, documents_begin());
    out.tokens.resize(end, options_.pad_token);
    out.labels.resize(end, kIgnoreIndex);
  }
  std::string summary() const override {
    const auto room = static_cast<double>(std::max<int64_t>(count() * options_.length, 1));
    std::string out =
        fmt::format("{} in {} of {} tokens, {:.1f} % filled", counted_text(rows_->count(), "row"),
                    counted_text(count(), "sequence"), options_.length,
                    100 * static_cast<double>(tokens_) / room);
    if (long_rows_ > 0) {
      out +=
          fmt::format("; {} {}, {} lost, the longest row has {}", counted_text(long_rows_, "row"),
                      options_.long_rows == LongRows::kDrop ? "left out" : "cut",
                      counted_text(lost_, "token"), format_count(longest_));
    }
    if (empty_ > 0) out += fmt::format("; {} without a token", counted_text(empty_, "row"));
    return out;
  }

 private:
  static std::string counted_text(int64_t count, const char* what) {
    return fmt::format("{} {}{}", format_count(count), what, count == 1 ? "" : "s");
  }
  int64_t tokens_of_row(uint32_t row) const { return rows_->tokens_of(row, options_.length); }

  std::shared_ptr<const Sequences> rows_;
  PackedOptions options_;
  Bins bins_;
  int64_t long_rows_ = 0, empty_ = 0;  // rows
  int64_t longest_ = 0, lost_ = 0, tokens_ = 0;
};

class PartedSequences final : public Sequences {
 public:
  PartedSequences(std::shared_ptr<const Sequences> stream, int32_t document_end)
      : stream_(std::move(stream)), document_end_(document_end) {}

  int64_t count() const override { return stream_->count(); }
  int64_t tokens_of(int64_t index, int64_t length) const override {
    return stream_->tokens_of(index, length);
  }
  int64_t label_tokens(int64_t index, int64_t length, const InputRules& rules) const override {
    LabelledRows row;
    append(index, length, rules, row);
    return std::ssize(row.labels) - std::ranges::count(row.labels, kIgnoreIndex);
  }
  // Unless documents are empty; to know would take the whole stream.
  bool is_trained(int64_t, int64_t length, const InputRules& rules) const override {
    return rules.targets_of_row(length) > 0;
  }
  void append(int64_t index, int64_t length, const InputRules& rules,
              LabelledRows& out) const override {
    const size_t begin = out.tokens.size();
    stream_->append(index, length, rules, out);
    size_t first = begin;
    for (size_t i = begin; i < out.tokens.size(); ++i) {
      if (i > begin && out.tokens[i - 1] == document_end_) first = i;
      out.first_key.push_back(static_cast<int32_t>(first - begin));
      if (rules.shifted_labels && i == first) out.labels[i] = kIgnoreIndex;  // nobody predicts it
    }
  }
  std::string summary() const override { return stream_->summary(); }

 private:
  std::shared_ptr<const Sequences> stream_;
  int32_t document_end_;
};

}  // namespace

std::shared_ptr<const Sequences> parted_sequences(std::shared_ptr<const Sequences> stream,
                                                  int32_t document_end) {
  return std::make_shared<PartedSequences>(std::move(stream), document_end);
}

std::shared_ptr<const Sequences> packed_sequences(std::shared_ptr<const Sequences> rows,
                                                  const PackedOptions& options) {
  return std::make_shared<PackedSequences>(std::move(rows), options);
}

int64_t first_long_row(const Sequences& rows, int64_t length) {
  for (int64_t row = 0; row < rows.count(); ++row) {
    if (whole_tokens(rows, row) > length) return row;
  }
  return -1;
}

double borders_of_documents(std::span<const int32_t> tokens, int32_t separator, int64_t length) {
  if (tokens.empty()) return 0;
  const auto borders = std::ranges::count(tokens.first(tokens.size() - 1), separator);
  return static_cast<double>(borders) * static_cast<double>(length) /
         static_cast<double>(tokens.size());
}

}  // namespace fsdp::data
