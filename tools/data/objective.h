// What of a row is trained, and how rows become sequences. Not here: the tokens of a row
// (row_encoder.h), its labels (row_layout.h), sequences (sequences.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fsdp::data {

// Labels; -100 elsewhere.
//   kLm           every token of the text
//   kSft          the answer and its end-of-text; the prompt is read and not trained
//   kMaskPad      every token that is not the padding token, wherever it stands (transformers'
//                 DataCollatorForLanguageModeling): where end-of-text is also the padding token, no
//                 end-of-text is trained
//   kCompatAll    every token, padding too (transformers' default_data_collator with labels that
//                 are a copy of the ids)
//   kApart        prompt and answer tokenised apart, cut and padded to the length apart: the labels
//                 of a position have nothing to do with its token. Its name is a guest's
enum class Objective : uint8_t { kLm, kSft, kMaskPad, kCompatAll, kApart };
inline constexpr std::array kObjectives = {Objective::kLm, Objective::kSft, Objective::kMaskPad,
                                           Objective::kCompatAll, Objective::kApart};
constexpr std::string_view name_of(Objective objective) {
  constexpr std::string_view kNames[] = {"lm", "sft", "mask_pad", "compat_all", ""};
  return kNames[static_cast<size_t>(objective)];
}
// Whether labels are a guide's, to the letter.
constexpr bool is_compat(Objective objective) {
  return objective == Objective::kCompatAll || objective == Objective::kApart;
}

//   kStream         documents follow one another; a sequence may begin and end inside of one
//   kExamples       a row is a sequence: cut where it is longer, padded where it is shorter
//   kWikitextRows   rows are cut to the length, 1,000 of them follow one another, and what is left
//                   over of these is dropped
//   kDocuments      several rows share a sequence and do not see each other
enum class Pack : uint8_t { kStream, kExamples, kWikitextRows, kDocuments };
inline constexpr std::array kPacks = {Pack::kStream, Pack::kExamples, Pack::kWikitextRows,
                                      Pack::kDocuments};
constexpr std::string_view name_of(Pack pack) {
  constexpr std::string_view kNames[] = {"stream", "examples", "wikitext_rows", "documents"};
  return kNames[static_cast<size_t>(pack)];
}

// With kStream a token sees all earlier tokens of its sequence, or the tokens of its document.
enum class DocumentAttention : uint8_t { kAll, kOwn };
inline constexpr std::array kDocumentAttentions = {DocumentAttention::kAll,
                                                   DocumentAttention::kOwn};
constexpr std::string_view name_of(DocumentAttention what) {
  return what == DocumentAttention::kAll ? "all" : "own";
}

// A row that is longer than a sequence, with kDocuments.
enum class LongRows : uint8_t { kCut, kDrop, kFail };
inline constexpr std::array kLongRows = {LongRows::kCut, LongRows::kDrop, LongRows::kFail};
constexpr std::string_view name_of(LongRows what) {
  constexpr std::string_view kNames[] = {"cut", "drop", "fail"};
  return kNames[static_cast<size_t>(what)];
}

// Where the stream of fairseq's sentences is cut into blocks: TokenBlockDataset's break modes.
//   kNone          at every so many tokens; the last block is short
//   kComplete      where a sentence ends: as many whole sentences as fit
//   kCompleteDoc   as kComplete, and where a document ends: at an empty sentence, which is left out
//   kEos           where a sentence ends: each is a block
enum class BreakMode : uint8_t { kNone, kComplete, kCompleteDoc, kEos };
inline constexpr std::array kBreakModes = {BreakMode::kNone, BreakMode::kComplete,
                                           BreakMode::kCompleteDoc, BreakMode::kEos};
constexpr std::string_view name_of(BreakMode mode) {
  constexpr std::string_view kNames[] = {"none", "complete", "complete_doc", "eos"};
  return kNames[static_cast<size_t>(mode)];
}

// The trained turns of a conversation, with the objective sft. kAll is the objective lm.
enum class TrainOn : uint8_t { kAssistant, kLast, kAll };
inline constexpr std::array kTrainOn = {TrainOn::kAssistant, TrainOn::kLast, TrainOn::kAll};
constexpr std::string_view name_of(TrainOn what) {
  constexpr std::string_view kNames[] = {"assistant", "last", "all"};
  return kNames[static_cast<size_t>(what)];
}

// The text of a special token in a message becomes the token, or stays a text like any other.
enum class SpecialInContent : uint8_t { kAsSpecial, kAsText };

enum class PadSide : uint8_t { kRight, kLeft };
// kLongest: the longest row of the batch of all ranks. kLength: data.sequence_length.
enum class PadTo : uint8_t { kLongest, kLength };

// How the tokens of rows are kept.
//   kStream    no bounds of rows
//   kWhole     bounds; the text of a row is tokenised as one
//   kAnswered  bounds; text, cue and answer are tokenised apart, so that labels end where they do
//   kPair      bounds; text and cue as one text, the answer as another, as if each were alone
//   kTurns     bounds; a conversation as one text, and the tokens of its turns
enum class RowForm : uint8_t { kStream, kWhole, kAnswered, kPair, kTurns };
constexpr std::string_view name_of(RowForm form) {
  constexpr std::string_view kNames[] = {"stream", "whole", "answered", "pair", "turns"};
  return kNames[static_cast<size_t>(form)];
}
constexpr RowForm form_of(Objective objective, Pack pack, bool is_chat = false) {
  if (pack == Pack::kStream) return RowForm::kStream;
  if (is_chat) return RowForm::kTurns;
  if (objective == Objective::kSft) return RowForm::kAnswered;
  return objective == Objective::kApart ? RowForm::kPair : RowForm::kWhole;
}

}  // namespace fsdp::data
