// What the data of a run is, for people and for a run that goes on: remarks, rows that were
// skipped, hashes. Contract: tools/train/train_data.h.
#include <algorithm>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "core/text/numbers.h"
#include "tools/config/guests.h"
#include "tools/launch/launch.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

// "data.train: 12 files: a.txt, b.txt, c.txt and 9 more"
std::string files_text(const std::string& key, const std::vector<std::string>& files) {
  constexpr size_t kNamed = 8;
  if (files.size() == 1) return fmt::format("{}: {}", key, files[0]);
  const auto named = static_cast<std::ptrdiff_t>(std::min(files.size(), kNamed));
  const std::string more =
      files.size() > kNamed ? fmt::format(" and {} more", files.size() - kNamed) : "";
  return fmt::format("{}: {} files: {}{}", key, files.size(),
                     fmt::join(files.begin(), files.begin() + named, ", "), more);
}

}  // namespace

// Files of one part, wherever they lie.
std::string TrainData::Part::hash() const {
  if (tokens) return fmt::format("{} {:016x}", tokens->tokens, tokens->identity);
  return fmt::format("{} {:016x}", cache->unchecked().size(), cache->checksum_of_tokens());
}

std::map<std::string, std::string> TrainData::hashes() const {
  // Without a number of rows none is met twice: how many there are changes nothing.
  std::string tokens =
      fmt::format("synthetic {} {}", config_.train.seed, config_.data.synthetic_rows.value_or(0));
  if (is_mixed()) {
    std::vector<std::string> all;
    for (const Part& part : train_) {
      all.push_back(fmt::format("{} weight {}", part.hash(), part.weight));
    }
    tokens = fmt::format("{}", fmt::join(all, ", "));
  } else if (!config_.data.synthetic()) {
    tokens = train_[0].hash();
  }
  if (config_.data.held_out()) tokens += " without " + config_.data.validation[0];
  std::map<std::string, std::string> out = {
      {"tokens of data.train", tokens},
      {"tokenizer", fmt::format("{:016x}", tokenizer_->identity())}};
  if (config_.data.pads()) out["token of padding"] = fmt::format("{}", padding_);
  return out;
}

std::string TrainData::validation_hash() const {
  if (validation_) {
    const auto& tokens = validation_->tokens;
    return tokens ? fmt::format("{:016x}", tokens->identity) : validation_->hash();
  }
  return validation_loader_ ? hashes().at("tokens of data.train") : "";
}

std::vector<data::SkippedRow> TrainData::left_out() const {
  std::vector<data::SkippedRow> out;
  const auto add = [&](const Part& part) {
    std::vector<data::SkippedRow> rows;
    if (part.cache) rows = part.cache->skipped_rows();
    if (part.tokens) rows = part.tokens->skipped;
    out.insert(out.end(), rows.begin(), rows.end());
  };
  for (const Part& part : train_) add(part);
  if (validation_) add(*validation_);
  return out;
}

std::vector<data::SkippedRow> TrainData::skipped_rows() const {
  std::vector<data::SkippedRow> out = left_out();
  std::erase_if(out, [](const data::SkippedRow& row) { return row.line == 0; });
  return out;
}

namespace {

// Why nothing of the sequences is trained, or of the one that there is.
std::string reason_untrained(const config::DataSection& c, bool one) {
  using data::Objective;
  const Objective objective = c.objective;
  if (!c.pads()) return "";
  const std::string_view have = one ? "it has" : "they have";
  if (objective == Objective::kMaskPad) {
    return fmt::format(": {} tokens are the padding token, or {} just one", one ? "its" : "their",
                       have);
  }
  if (objective == Objective::kLm) {
    return fmt::format(": {} fewer than two tokens, so none is predicted", have);
  }
  return fmt::format(": {} empty, or cut away at data.sequence_length: {}",
                     one ? "its answer is" : "their answers are", c.sequence_length);
}

}  // namespace

void TrainData::add_untrained(const std::string& name, int64_t untrained, int64_t of,
                              bool looked_at) {
  const config::DataSection& c = config_.data;
  const bool one = of == 1;
  const std::string kind = fmt::format("{}{}", c.pads() ? "row" : "sequence", one ? "" : "s");
  const std::string why = reason_untrained(c, one);
  FSDP_CHECK(untrained < of || looked_at, "{}: nothing is trained or predicted of {}its {} {}{}",
             name, one ? "" : "any of ", format_count(of), kind, why);
  if (untrained * 10 <= of) return;
  untrained_.push_back(fmt::format("warning: {}: nothing is trained or predicted of {} of {} {}{}",
                                   name, format_count(untrained), format_count(of), kind, why));
}

// Rank 0 counts for all: labels may depend on the tokens, and reading these once is enough.
void TrainData::check_trained(comm::Communicator& world, const models::InputRules& rules,
                              bool looked_at) {
  const config::DataSection& c = config_.data;
  struct Count {
    int64_t untrained = 0, of = 0;
  };
  std::vector<std::string> names;
  std::vector<Count> counts;
  const auto count = [&](std::string name, int64_t of, const auto& untrained) {
    names.push_back(std::move(name));
    counts.push_back({world.rank() == 0 ? untrained(of) : 0, of});
  };
  agree(world, [&] {
    for (const Part& part : train_) {
      if (use_ == DataUse::kValidation) break;
      count(c.synthetic() ? training_name() : name_with_files(training_key(), part.files),
            part.sequences->count(), [&](int64_t of) {
              return count_untrained(*part.sequences, of, c.sequence_length, rules);
            });
    }
    if (!validation_loader_) return;
    count(name_with_files(validation_key(), c.validation),
          validation_loader_->samples_after(validation_batches()),  // the first ones
          [&](int64_t of) { return validation_loader_->untrained(of, rules); });
  });
  for (Count& each : counts) each = comm::exchange_values(world, each)[0];
  agree(world, [&] {
    untrained_.clear();
    for (size_t i = 0; i < names.size(); ++i) {
      add_untrained(names[i], counts[i].untrained, counts[i].of, looked_at);
    }
  });
}

std::string note_on_files(std::vector<data::SkippedRow> left_out) {
  std::erase_if(left_out, [](const data::SkippedRow& row) { return row.line != 0; });
  if (left_out.empty()) return "";
  const size_t others = left_out.size() - 1;
  const std::string more =
      others > 0 ? fmt::format(", and {} more file{}", others, others > 1 ? "s" : "") : "";
  return fmt::format("{}: {}; it is left out{}", left_out[0].file, left_out[0].reason, more);
}

// A guide's labels are repeated to the letter; what they do is said.
void TrainData::add_remarks_on_labels(std::vector<std::string>& out) const {
  using data::Objective;
  const config::DataSection& c = config_.data;
  if (!c.pads()) return;
  out.push_back(fmt::format(
      "data.objective: {}; rows are padded on the {} to {}, with token {}", name_of(c.objective),
      c.padded_on() == data::PadSide::kLeft ? "left" : "right",
      c.padded_to() == data::PadTo::kLongest ? "the longest of a batch" : "data.sequence_length",
      padding_));
  if (c.objective == Objective::kMaskPad && padding_ == tokenizer_->end_of_text()) {
    out.push_back(
        "note: data.objective: mask_pad: end-of-text is the padding token, so no end-of-text is "
        "trained, as in transformers' DataCollatorForLanguageModeling; lm trains it");
  }
  if (c.objective == Objective::kCompatAll) {
    out.push_back(
        "note: data.objective: compat_all: padding is trained too, as by scripts whose labels are "
        "a copy of the ids; lm and sft leave it out");
  }
  if (const config::GuestLabels* labels = c.objective.guest) {
    out.push_back(fmt::format("note: data.objective: {}: {}", labels->name, labels->note));
  }
}

// What is trained: a line, or one for each source.
void TrainData::add_remarks_on_parts(std::vector<std::string>& out) const {
  const config::DataSection& c = config_.data;
  if (use_ == DataUse::kValidation) return;
  const bool said = c.format.guest || c.packing() != data::Pack::kStream;
  const auto summary = [&](const data::Sequences& sequences) {
    return said ? "; " + sequences.summary() : "";
  };
  if (c.synthetic()) {
    out.push_back(fmt::format("{}: {} sequences of random tokens", training_name(),
                              format_count(sequences())));
  } else if (!is_mixed() && !train_.empty()) {
    out.push_back(files_text(training_key(), train_[0].files));
    if (c.subset.n)
      out.back() += fmt::format("; {} of the rows, by seed {}", *c.subset.n, c.subset.seed);
    out.back() += summary(*train_[0].sequences);
  }
  if (!is_mixed()) return;
  double all = 0;
  for (const Part& part : train_) all += part.weight;
  for (const Part& part : train_) {
    const int64_t count = part.sequences->count();
    const double share = part.weight / all;
    out.push_back(fmt::format(
        "{}{}; weight {}: {:.1f} % of the sequences, each {:.2f} times an epoch",
        files_text(training_key(), part.files), summary(*part.sequences), part.weight, 100 * share,
        share * static_cast<double>(sequences()) / static_cast<double>(count)));
  }
}

// The rows of wikitext_rows are often blank: of them nothing is between two tokens that are added.
void TrainData::add_remarks_on_doubled(std::vector<std::string>& out) const {
  constexpr size_t kLookedAt = 1 << 16;
  for (const Part& part : train_) {
    if (!part.cache || config_.data.packing() == data::Pack::kWikitextRows) continue;
    const std::span<const int32_t> ids = part.cache->unchecked();
    const data::RowEncoder encoder(*tokenizer_, part.source.form, part.source.document_separator);
    const std::string note = encoder.note_on_doubled(ids.first(std::min(ids.size(), kLookedAt)));
    if (!note.empty()) out.push_back(fmt::format("note: {}: {}", part.files.front(), note));
  }
}

std::vector<std::string> TrainData::remarks() const {
  const config::DataSection& c = config_.data;
  std::vector<std::string> out;
  if (const std::string note = tokenizer_->note(); !note.empty()) out.push_back("note: " + note);
  for (const Part& part : train_) {
    if (!part.cache_note.empty()) out.push_back("note: " + part.cache_note);
  }
  if (validation_ && !validation_->cache_note.empty()) {
    out.push_back("note: " + validation_->cache_note);
  }
  add_remarks_on_parts(out);
  if (validation_) {
    out.push_back(files_text(validation_key(), c.validation));
    if (const auto subset = validation_subset()) {
      out.back() += fmt::format("; {} of the rows, by seed {}", subset->n, subset->seed);
    }
    const bool said = validation_->tokens || c.packing() != data::Pack::kStream;
    if (said) out.back() += "; " + validation_loader_->summary();
  } else if (validation_loader_) {
    const int64_t trained = train_loader_ ? sequences() : 0;
    out.push_back(fmt::format("data.validation: {}: {} of {} sequences, which are not trained",
                              c.validation[0], format_count(validation_sequences()),
                              format_count(validation_sequences() + trained)));
  }
  if (const std::string note = note_on_files(left_out()); !note.empty()) {
    out.push_back("note: " + note);
  }
  add_remarks_on_labels(out);
  out.insert(out.end(), untrained_.begin(), untrained_.end());
  add_remarks_on_doubled(out);
  const std::vector<data::SkippedRow> skipped = skipped_rows();
  if (!skipped.empty()) {
    out.push_back(fmt::format("note: data.bad_rows: {} row{} skipped{}; the first is {}:{}: {}",
                              skipped.size(), skipped.size() == 1 ? " is" : "s are",
                              use_ == DataUse::kAll ? " and listed in skipped_rows.jsonl" : "",
                              skipped[0].file, skipped[0].line, skipped[0].reason));
  }
  return out;
}

}  // namespace fsdp::tools
