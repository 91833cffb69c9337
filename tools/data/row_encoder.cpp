// Contract: tools/data/row_encoder.h.
#include "tools/data/row_encoder.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::data {
namespace {

uint32_t count_of(size_t ids) {
  FSDP_CHECK(ids <= UINT32_MAX, "[data] a row of {} tokens: expected fewer than 2^32", ids);
  return static_cast<uint32_t>(ids);
}

}  // namespace

RowEncoder::RowEncoder(const Tokenizer& tokenizer, RowForm form, bool separator,
                       std::vector<int32_t> end_tokens)
    : tokenizer_(tokenizer), form_(form), end_tokens_(std::move(end_tokens)) {
  const std::vector<int32_t> bare = tokenizer.encode("a", SpecialTokens::kOmit);
  const std::vector<int32_t> framed = tokenizer.encode("a");
  auto inside = std::search(framed.begin(), framed.end(), bare.begin(), bare.end());
  if (bare.empty()) inside = framed.end();  // a tokenizer without this letter: all begins a text
  before_.assign(framed.begin(), inside);
  after_.assign(inside + static_cast<std::ptrdiff_t>(bare.size()), framed.end());
  if (!separator || form == RowForm::kPair) return;
  const int32_t end = tokenizer.end_of_text();
  FSDP_CHECK(end >= 0,
             "data.document_separator: {}: no end-of-text token is known (eos_token of "
             "tokenizer_config.json)",
             tokenizer.name());
  if (after_.empty() || after_.back() != end) separator_ = {end};
}

std::string RowEncoder::note_on_doubled(std::span<const int32_t> ids) const {
  const bool separates = after_.empty() && !separator_.empty();
  const int32_t begin = before_.empty() ? -1 : before_.back();
  const int32_t end = separates ? separator_[0] : after_.empty() ? -1 : after_[0];
  if (begin == end) return "";  // between two texts there are two
  for (const int32_t id : {begin, end}) {
    size_t places = 0, doubled = 0;
    for (size_t i = 0; id >= 0 && i < ids.size(); ++i) {
      if (ids[i] != id || (i > 0 && ids[i - 1] == id)) continue;
      ++places;
      doubled += i + 1 < ids.size() && ids[i + 1] == id ? 1 : 0;
    }
    // Between two separators there may also be an empty row. Rarely is every second row one.
    if (doubled == 0 || 10 * doubled < 9 * places) continue;
    return fmt::format("the text writes \"{}\" itself, and {} adds one: there are two in a row",
                       tokenizer_.decode({&id, 1}, SpecialTokens::kInclude),
                       id == end && separates ? "data.document_separator" : "the tokenizer");
  }
  return "";
}

ExampleSpan RowEncoder::encode(const Document& row, const UseIds& use) const {
  if (form_ == RowForm::kAnswered) return encode_answered(row, use);
  return form_ == RowForm::kPair ? encode_pair(row, use) : encode_whole(row, use);
}

ExampleSpan RowEncoder::encode_whole(const Document& row, const UseIds& use) const {
  const bool parts = !row.cue.empty() || !row.answer.empty();
  const std::string joined = parts ? whole(row) : "";
  size_t ids = separator_.size();
  tokenizer_.encode_to(parts ? joined : row.text, SpecialTokens::kInclude,
                       [&](std::span<const int32_t> some) {
                         ids += some.size();
                         use(some);
                       });
  if (!separator_.empty()) use(separator_);
  // What the tokenizer ends a text with stays when the text is cut, as in transformers.
  const size_t kept = separator_.empty() ? after_.size() : 0;
  return {.end = ids, .kept = count_of(kept)};
}

ExampleSpan RowEncoder::encode_answered(const Document& row, const UseIds& use) const {
  std::vector<int32_t> ids = before_;
  const auto append = [&](std::string_view text) {
    const std::vector<int32_t> some = tokenizer_.encode(text, SpecialTokens::kOmit);
    ids.insert(ids.end(), some.begin(), some.end());
  };
  append(row.text);
  const size_t first = ids.size();
  append(row.cue);
  const size_t answer = ids.size();
  append(row.answer);
  ids.insert(ids.end(), after_.begin(), after_.end());
  ids.insert(ids.end(), separator_.begin(), separator_.end());
  use(ids);
  return {.end = ids.size(),
          .kept = count_of(ids.size() - first),
          .answer = count_of(ids.size() - answer)};
}

// Tokens that the row writes itself are not added again.
void RowEncoder::add_frame(ChatTokens& tokens) const {
  if (!std::ranges::equal(
          before_, std::span(tokens.ids).first(std::min(before_.size(), tokens.ids.size())))) {
    tokens.ids.insert(tokens.ids.begin(), before_.begin(), before_.end());
    for (RowTurn& turn : tokens.turns) turn.first += count_of(before_.size());
  }
  RowTurn& last = tokens.turns.back();
  if (last.count == 0) last.first = count_of(tokens.ids.size());
  const bool ends =
      last.count > 0 && std::ranges::find(end_tokens_, tokens.ids.back()) != end_tokens_.end();
  if (ends) return;
  for (const std::vector<int32_t>& end : {after_, separator_}) {
    tokens.ids.insert(tokens.ids.end(), end.begin(), end.end());
    last.count += count_of(end.size());
    if (!end.empty()) last.flags &= ~RowTurn::kNoEnd;
  }
}

// A template writes begin and end tokens itself; behind a completion as a text stands no end token
// yet.
ExampleSpan RowEncoder::encode_turns(const ChatText& chat, const UseIds& use,
                                     std::vector<RowTurn>& turns) const {
  ChatTokens tokens = chat_tokens(chat, tokenizer_, end_tokens_);
  if (chat.is_plain) {
    add_frame(tokens);
  }
  use(tokens.ids);
  turns.insert(turns.end(), tokens.turns.begin(), tokens.turns.end());
  return {.end = tokens.ids.size(), .kept = 0, .answer = count_of(tokens.turns.size())};
}

ExampleSpan RowEncoder::encode_pair(const Document& row, const UseIds& use) const {
  const std::string prompt = std::string(row.text).append(row.cue);
  std::string_view answer = row.answer;
  if (answer.starts_with(' ')) answer.remove_prefix(1);  // the template's, between cue and answer
  const std::vector<int32_t> asked = tokenizer_.encode(prompt), said = tokenizer_.encode(answer);
  use(asked);
  use(said);
  return {.end = asked.size() + said.size(), .answer = count_of(said.size())};
}

}  // namespace fsdp::data
