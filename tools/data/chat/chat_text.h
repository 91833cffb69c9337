// A conversation as the text that a model is trained on: the template's, with the bytes that each
// turn wrote, and with what inference would be given in front of each turn. Not here: tokens
// (turn_tokens.h), where templates come from (chat_files.h).
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/data/chat/conversation.h"
#include "tools/data/chat/template.h"

namespace fsdp::data {

// Inference may be given any of these before a turn: the template decides which is right,
// and the longest common prefix with the conversation's tokens finds it.
struct TurnStart {
  size_t shared = 0;  // so many bytes of the conversation's text
  std::string rest;   // and this behind them
  bool operator==(const TurnStart&) const = default;
};

struct ChatTurn {
  Role role = Role::kUser;
  size_t message = 0;      // its number; of a block outside of all messages: their number and more
  bool trained = true;     // as in Conversation
  bool is_prompt = false;  // of Conversation::prompts
  bool is_block = false;   // a generation block, which is trained from its first byte to its last
  bool left_out = false;   // the template does not write all that this message says
  bool special = false;    // as in Conversation
  ByteSpan bytes;          // that the template wrote for it, without a leading begin token
  std::vector<TurnStart> starts;  // of an assistant's turn that is no block
};

struct ChatText {
  std::string text;             // with marks, if `marked`; see [Note: marks]
  std::vector<ChatTurn> turns;  // in order; of a message for which nothing was written: of 0 bytes
  bool is_plain = false;        // without a template, which would write begin and end tokens
  bool marked = false;
};

inline std::string text_of(const ChatText& chat) {
  return chat.marked ? without_marks(chat.text) : chat.text;
}

struct ChatFormatOptions {
  std::string source, name;              // of the template, and its name in errors
  std::string tool_source = {};          // for rows with tools; "": the same
  Json special_tokens = Json::object();  // {"bos_token": "<s>", ...}
  Json kwargs = Json::object();          // data.chat_template_kwargs; a row's kwargs count more
  std::optional<std::tm> date;           // data.chat_date
};

// A template with all that it depends on.
class ChatFormat {
 public:
  static constexpr size_t kMostMessages = 2000;  // each turn asks for the conversation before it

  explicit ChatFormat(ChatFormatOptions options);

  // Error that begins with `where` for what the template refuses.
  ChatText text_of(const Conversation& conversation, const std::string& where) const;
  // The text for a model that is to say the next turn: with the generation prompt. Errors as
  // above.
  std::string prompt_of(const Conversation& conversation, const std::string& where) const;
  // The same text follows from the same conversation and identity.
  std::string identity() const;

 private:
  // The texts that a template appends for a turn of the assistant; each may be "".
  struct Prompts {
    std::string added;   // what add_generation_prompt adds to a conversation's end
    std::string behind;  // what stands behind its last message then
  };
  const ChatTemplate& template_of(const Conversation& conversation) const {
    return tool_template_ && !conversation.tools.is_null() ? *tool_template_ : template_;
  }
  Rendering render(const Conversation& conversation, size_t messages, bool prompt) const;
  // All messages; errors begin with `where`.
  Rendering render_all(const Conversation& conversation, bool prompt,
                       const std::string& where) const;
  Prompts prompts_of(const Conversation& conversation) const;
  void add_turns(const Conversation& conversation, const Rendering& rendering, ChatText& out) const;
  void add_starts(const Conversation& conversation, const Prompts& prompts, ChatText& out,
                  ChatTurn& turn) const;

  ChatFormatOptions options_;
  ChatTemplate template_;
  std::optional<ChatTemplate> tool_template_;
  Prompts usual_;  // of rows without tools and kwargs
};

// The text of a prompt and its completion, which no template joins.
ChatText plain_text_of(const Conversation& conversation);

}  // namespace fsdp::data
