// A row of data as a conversation: the forms that data sets have become one. Not here: its text
// (chat_text.h), which of its tokens are trained (turn_tokens.h).
//   messages       [{"role", "content", ...}]: as transformers and OpenAI have them
//   conversations  [{"from": "human", "value": "..."}]: ShareGPT's
//   prompt, completion  two texts, or two lists of messages: TRL's
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "tools/data/tokenizer/span.h"

namespace fsdp::data {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };
constexpr std::string_view name_of(Role role) {
  constexpr std::string_view kNames[] = {"system", "user", "assistant", "tool"};
  return kNames[static_cast<size_t>(role)];
}

std::optional<Role> find_role(std::string_view name);

struct ConversationFields {
  std::string messages;                      // the list's field; "": messages or conversations
  std::map<std::string, std::string> roles;  // from words of the data: {"bot": "assistant"}
};

struct Conversation {
  std::vector<Json> messages;  // as a template gets them: {"role", "content", ...}
  // By message. Whether a message may be trained: the row may switch it off ("weight": 0, "train":
  // false).
  std::vector<Role> roles;
  std::vector<bool> trained;
  size_t prompts = 0;  // so many messages are a prompt, whose answers are not trained
  // Whether a message has the text of a special token; empty: nobody looked.
  std::vector<bool> special = {};
  // Two texts, which follow one another without a template; then `messages` has their contents.
  bool is_plain = false;
  Json tools, documents, kwargs;  // of the row, for the template; null: none
};

// [Note: marks]
// Stands behind the first character of a special token's text that is to stay a text: where the
// template copies the text, it copies the mark, too, and the tokenizer gets the place
// (turn_tokens.cpp). A noncharacter of Unicode, which no text has for another reason.
inline constexpr std::string_view kMark = "\xef\xb7\x90";  // U+FDD0
std::string without_marks(std::string_view text);

// Finds the text of special tokens in what the messages say, by a tokenizer's special_in(), and
// marks it if `as_text`. Error that begins with `where` if a message has U+FDD0 itself.
using FindSpecial = std::function<std::vector<Span>(std::string_view text)>;
void find_special(const FindSpecial& special_in, bool as_text, const std::string& where,
                  Conversation& conversation);

// Whether the row has one of the forms above; data.format: auto asks it.
bool is_conversation(const Json& row, const ConversationFields& fields);

// Parts of text in a message's content are joined. Error that begins with `where` and names the
// message for another role, a list that is no list, an entry that is no object, parts that are no
// text.
Conversation conversation_of(const Json& row, const std::string& where,
                             const ConversationFields& fields);

}  // namespace fsdp::data
