// What the data of a run is, for people and for a run that goes on: remarks, rows that were
// skipped, hashes. Contract: tools/train/train_data.h.
#include <algorithm>
#include <bit>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "core/text/counted.h"
#include "core/text/numbers.h"
#include "tools/config/guests.h"
#include "tools/data/packed_sequences.h"
#include "tools/launch/launch.h"
#include "tools/train/chat_data.h"
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
  if (config_.data.has_labels_of_rows()) out["token of padding"] = fmt::format("{}", padding_);
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
  const Objective objective = c.objective_of_rows();
  if (c.is_chat()) {
    return fmt::format(
        ": {} no turn of the assistant with a token that is trained, or it begins "
        "behind data.sequence_length: {}",
        one ? "it has" : "they have", c.sequence_length);
  }
  if (!c.has_labels_of_rows()) return "";
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

void TrainData::add_untrained(const std::string& name, data::Untrained found, int64_t of,
                              bool looked_at) {
  const config::DataSection& c = config_.data;
  const int64_t untrained = found.count;
  const bool one = of == 1;
  const std::string kind =
      fmt::format("{}{}", c.has_labels_of_rows() ? "row" : "sequence", one ? "" : "s");
  const std::string why = reason_untrained(c, one);
  FSDP_CHECK(untrained < of || looked_at, "{}: nothing is trained or predicted of {}its {} {}{}",
             name, one ? "" : "any of ", format_count(of), kind, why);
  const bool few = c.is_chat() ? untrained == 0 : untrained * 10 <= of;
  if (few) return;
  const std::string first =
      c.is_chat() && !c.held_out() ? fmt::format(" (the first is row {})", found.first + 1) : "";
  const std::string message =
      fmt::format("{}: nothing is trained or predicted of {} of {} {}{}{}", name,
                  format_count(untrained), format_count(of), kind, first, why);
  const config::StepsOrShare& given = c.chat.max_untrained_rows;
  const double most = given.percent > 0 ? given.percent / 100 * static_cast<double>(of)
                                        : static_cast<double>(given.steps);
  const bool many = c.is_chat() && static_cast<double>(untrained) > most;
  FSDP_CHECK(!many || looked_at, "{}; data.max_untrained_rows: {}", message, given.text());
  untrained_.push_back(fmt::format(
      "warning: {}{}", message,
      many ? fmt::format("; a run ends with an error (data.max_untrained_rows: {})", given.text())
           : ""));
}

// A model that finds padding by itself hides it; within a document that would be another mask.
void TrainData::check_padding_tokens(const models::InputRules& rules) const {
  if (!rules.knows_padding() || !config_.data.parts_documents()) return;
  const auto check = [&](const Part& part) {
    if (!part.cache) return;
    FSDP_CHECK(
        std::ranges::count(part.cache->unchecked(), rules.padding) == 0,
        "{}: the text has token {}, which this model takes for padding; with {} expected "
        "none within a document",
        part.files.front(), rules.padding,
        config_.data.packs_documents() ? "data.pack: documents" : "data.document_attention: own");
  };
  for (const Part& part : train_) check(part);
  if (validation_) check(*validation_);
}

// Rank 0 counts for all: labels may depend on the tokens, and reading these once is enough.
void TrainData::check_trained(comm::Communicator& world, const models::InputRules& rules,
                              bool looked_at) {
  const config::DataSection& c = config_.data;
  struct Count {
    data::Untrained untrained;
    int64_t of = 0;
  };
  std::vector<std::string> names;
  std::vector<Count> counts;
  const auto count = [&](std::string name, int64_t of, const auto& untrained) {
    names.push_back(std::move(name));
    counts.push_back({world.rank() == 0 ? untrained(of) : data::Untrained{}, of});
  };
  agree(world, [&] {
    check_padding_tokens(rules);
    for (const Part& part : train_) {
      if (use_ == DataUse::kValidation) break;
      count(c.synthetic() ? training_name() : name_with_files(training_key(), part.files),
            part.counted().count(), [&](int64_t of) {
              return count_untrained(part.counted(), of, c.sequence_length, rules);
            });
    }
    if (!validation_loader_) return;
    const std::string name = name_with_files(validation_key(), c.validation);
    if (!validated_rows_.empty()) {
      const auto rows = data::joined_sequences(validated_rows_);
      return count(name, rows->count(), [&](int64_t of) {
        return count_untrained(*rows, of, c.sequence_length, rules);
      });
    }
    count(name, validation_loader_->samples_after(validation_batches()),  // the first ones
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

std::vector<DataFigures> TrainData::figures() const {
  const config::DataSection& c = config_.data;
  const int64_t length = c.sequence_length;
  const int64_t most = c.has_rows_of_any_length() || c.packs_documents() ? INT32_MAX : length;
  std::vector<DataFigures> out;
  for (const Part& part : train_) {
    DataFigures of = {
        .name = c.synthetic() ? training_name() : name_with_files(training_key(), part.files),
        .rows = part.counted().count()};
    for (int64_t i = 0; i < of.rows; ++i) {
      const int64_t whole = part.counted().tokens_of(i, most);
      of.cut += whole > length;
      if (whole > length && c.packs_documents() && c.long_rows == data::LongRows::kDrop) continue;
      of.tokens += std::min(whole, length);
      of.longest = std::max(of.longest, whole);
      of.trained += part.counted().label_tokens(i, length, {.shifted_labels = false});
      ++of.lengths[static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(whole)))];
    }
    out.push_back(std::move(of));
  }
  return out;
}

double TrainData::pairs_in_sequence() const {
  constexpr int64_t kLookedAt = 256;  // of each part
  const int64_t length = config_.data.sequence_length;
  double pairs = 0, weights = 0;
  for (const Part& part : train_) {
    const int64_t count = part.sequences->count(), looked_at = std::min(count, kLookedAt);
    LabelledRows rows;
    for (int64_t i = 0; i < looked_at; ++i) {
      part.sequences->append(i * count / looked_at, length, {}, rows);
    }
    if (looked_at == 0) continue;
    rows.first_key.resize(rows.tokens.size());  // none: a sequence is one document
    pairs += part.weight * static_cast<double>(models::document_pairs(rows.first_key, length)) /
             static_cast<double>(looked_at);
    weights += part.weight;
  }
  return weights > 0 ? pairs / weights : 0;
}

// A guide's labels are repeated to the letter; what they do is said.
void TrainData::add_remarks_on_labels(std::vector<std::string>& out) const {
  using data::Objective;
  const config::DataSection& c = config_.data;
  if (!c.has_labels_of_rows()) return;
  const std::string layout =
      c.packs_documents()
          ? "rows share sequences and do not see each other; the rest of a sequence is filled"
          : fmt::format("rows are padded on the {} to {},",
                        c.padded_on() == data::PadSide::kLeft ? "left" : "right",
                        c.padded_to() == data::PadTo::kLongest ? "the longest of a batch"
                                                               : "data.sequence_length");
  out.push_back(fmt::format("{}; {} with token {}",
                            c.is_chat() ? fmt::format("data.train_on: {}", name_of(c.chat.train_on))
                                        : fmt::format("data.objective: {}", name_of(c.objective)),
                            layout, padding_));
  if (c.is_chat()) add_remarks_on_turns(out);
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

void TrainData::add_remarks_on_turns(std::vector<std::string>& out) const {
  for (const std::string& note : notes_on_template(config_, *tokenizer_)) {
    out.push_back("note: " + note);
  }
  const auto add = [&](const std::string& key, const Part& part) {
    if (!part.cache) return;
    for (const std::string& note :
         notes_on_turns(*part.cache, config_.data.chat.special_in_content))
      out.push_back(fmt::format("note: {}: {}", name_with_files(key, part.files), note));
  };
  for (const Part& part : train_) add(training_key(), part);
  if (validation_) add(validation_key(), *validation_);
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
    if (config_.data.is_chat()) continue;  // the template alone writes begin and end
    const std::span<const int32_t> ids = part.cache->unchecked();
    const data::RowEncoder encoder(*tokenizer_, part.source.form, part.source.document_separator);
    const std::string note = encoder.note_on_doubled(ids.first(std::min(ids.size(), kLookedAt)));
    if (!note.empty()) out.push_back(fmt::format("note: {}: {}", part.files.front(), note));
  }
}

// Counts in the first tokens, where a token ends each document.
void TrainData::add_remarks_on_borders(std::vector<std::string>& out) const {
  constexpr size_t kLookedAt = 1 << 20;
  const config::DataSection& c = config_.data;
  if (c.packing() != data::Pack::kStream || !c.separates_documents()) return;
  for (const Part& part : train_) {
    if (!part.cache) continue;
    const std::span<const int32_t> ids = part.cache->unchecked();
    const double borders = data::borders_of_documents(ids.first(std::min(ids.size(), kLookedAt)),
                                                      tokenizer_->end_of_text(), c.sequence_length);
    if (borders == 0 && c.parts_documents()) {
      out.push_back(fmt::format(
          "note: {}: data.document_attention: own changes nothing: the text is one document",
          part.files.front()));
    }
    if (borders == 0) continue;
    out.push_back(fmt::format(
        "note: {}: data.pack: stream: a sequence has {:.2g} borders of documents on average, and "
        "its documents {}",
        part.files.front(), borders,
        c.parts_documents() ? "do not see each other"
                            : "see each other; with data.document_attention: own, or with "
                              "data.pack: documents, they do not"));
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
    std::string held = fmt::format("{} of {} sequences", format_count(validation_sequences()),
                                   format_count(validation_sequences() + trained));
    if (!validated_rows_.empty()) {
      int64_t rows = 0, all = 0;
      for (const auto& part : validated_rows_) rows += part->count();
      for (const Part& part : train_) all += part.counted().count();
      held = fmt::format("{} of {} rows, in {}", format_count(rows), format_count(rows + all),
                         counted(validation_sequences(), "sequence"));
    }
    out.push_back(
        fmt::format("data.validation: {}: {}, which are not trained", c.validation[0], held));
  }
  if (const std::string note = note_on_files(left_out()); !note.empty()) {
    out.push_back("note: " + note);
  }
  add_remarks_on_labels(out);
  out.insert(out.end(), untrained_.begin(), untrained_.end());
  add_remarks_on_doubled(out);
  add_remarks_on_borders(out);
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
