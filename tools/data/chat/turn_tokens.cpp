// Contract: tools/data/chat/turn_tokens.h.
#include "tools/data/chat/turn_tokens.h"

#include <algorithm>

namespace fsdp::data {
namespace {

class TurnFinder {
 public:
  TurnFinder(const ChatText& chat, const Tokenizer& tokenizer, std::span<const int32_t> end_tokens)
      : chat_(chat),
        tokenizer_(tokenizer),
        end_tokens_(end_tokens),
        encoded_(encode_marked(chat.text)) {}

  ChatTokens find() && {
    ChatTokens out;
    for (const ChatTurn& turn : chat_.turns) out.turns.push_back(tokens_of(turn));
    out.ids = std::move(encoded_.ids);
    return out;
  }

 private:
  // The marks are no part of the text that is tokenised, but of the bytes: see [Note: marks].
  EncodedText encode_marked(const std::string& text) const {
    std::vector<size_t> marks;
    for (size_t at = chat_.marked ? text.find(kMark) : text.npos; at != text.npos;
         at = text.find(kMark, at + kMark.size())) {
      marks.push_back(at - marks.size() * kMark.size());
    }
    if (marks.empty()) return tokenizer_.encode_with_bytes(text, SpecialTokens::kOmit);
    EncodedText out =
        tokenizer_.encode_with_bytes(without_marks(text), SpecialTokens::kOmit, marks);
    const auto moved = [&](size_t at, auto bound) {
      return at + kMark.size() * static_cast<size_t>(bound(marks, at) - marks.begin());
    };
    for (Span& bytes : out.bytes) {
      bytes = {moved(bytes.begin, std::ranges::upper_bound),
               moved(bytes.end, std::ranges::lower_bound)};
      bytes.end = std::max(bytes.begin, bytes.end);
    }
    return out;
  }

  RowTurn tokens_of(const ChatTurn& turn) const {
    const Span bytes = {turn.bytes.begin, turn.bytes.end};
    Span tokens = turn.is_block ? tokens_that_cover(encoded_.bytes, bytes)
                                : tokens_that_begin_in(encoded_.bytes, bytes);
    bool has_end = true;
    if (turn.role == Role::kAssistant && turn.bytes.begin < turn.bytes.end) {
      if (!turn.is_block) tokens.begin = std::clamp(begin_of(turn), tokens.begin, tokens.end);
      const auto is_end = [&](size_t token) {
        return std::ranges::find(end_tokens_, encoded_.ids[token]) != end_tokens_.end();
      };
      has_end = false;
      for (size_t i = tokens.begin; i < tokens.end && !has_end; ++i) has_end = is_end(i);
      if (!turn.is_block && !has_end && tokens.end > 0 && tokens.end < encoded_.ids.size() &&
          is_end(tokens.end)) {
        ++tokens.end;
        has_end = true;
      }
    }
    return {.first = static_cast<uint32_t>(tokens.begin),
            .count = static_cast<uint32_t>(tokens.end - tokens.begin),
            .message = static_cast<uint32_t>(turn.message),
            .role = static_cast<uint16_t>(turn.role),
            .flags = static_cast<uint16_t>(
                (turn.trained ? 0 : RowTurn::kOff) | (has_end ? 0 : RowTurn::kNoEnd) |
                (turn.left_out ? RowTurn::kLeftOut : 0) | (turn.special ? RowTurn::kSpecial : 0) |
                (turn.is_prompt ? RowTurn::kPrompt : 0))};
  }

  size_t begin_of(const ChatTurn& turn) const {
    size_t out = 0;
    for (const TurnStart& start : turn.starts) out = std::max(out, common_tokens(start));
    return out;
  }

  // Tokens that the conversation shares with what inference is given. Before the last added token
  // of the shared text all are the same: an added token cuts a text, whatever follows.
  size_t common_tokens(const TurnStart& start) const {
    const std::vector<Span>& bytes = encoded_.bytes;
    auto at = static_cast<size_t>(std::ranges::upper_bound(bytes, start.shared, {}, &Span::end) -
                                  bytes.begin());
    while (at > 0 && !tokenizer_.cuts(encoded_.ids[at - 1])) --at;
    if (at > 0) --at;
    const size_t first = at > 0 ? bytes[at].begin : 0;
    const std::string given = chat_.text.substr(first, start.shared - first).append(start.rest);
    const std::vector<int32_t> ids =
        chat_.marked ? encode_marked(given).ids : tokenizer_.encode(given, SpecialTokens::kOmit);
    const auto own = encoded_.ids.begin() + static_cast<std::ptrdiff_t>(at);
    return static_cast<size_t>(
        std::mismatch(own, encoded_.ids.end(), ids.begin(), ids.end()).first -
        encoded_.ids.begin());
  }

  const ChatText& chat_;
  const Tokenizer& tokenizer_;
  std::span<const int32_t> end_tokens_;
  EncodedText encoded_;
};

}  // namespace

ChatTokens chat_tokens(const ChatText& chat, const Tokenizer& tokenizer,
                       std::span<const int32_t> end_tokens) {
  return TurnFinder(chat, tokenizer, end_tokens).find();
}

}  // namespace fsdp::data
