// Conversations as prompts: a model's chat template writes them, up to where the model continues.
// Not here: rows of conversations to train on (tools/data), the loop over new tokens
// (generation.h).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/data/chat/chat_files.h"
#include "tools/data/prompts.h"
#include "tools/model_folders/load_model.h"

namespace fsdp::tools {

struct ChatPromptOptions {
  std::string system;         // what the system says first; "": nothing
  std::string chat_template;  // as data.chat_template; "": the template in the tokenizer's folder
  std::string kwargs;         // of the template, a JSON object; "": none
  std::string date;           // as data.chat_date; "": today
};

class ChatPrompter {
 public:
  // `name`: of the tokenizer, as plan_generation takes it; the tokenizer outlives this object.
  // Error where no template is known, and for kwargs that are no object.
  ChatPrompter(const ChatPromptOptions& options, const ModelSource& source, const std::string& name,
               const data::Tokenizer& tokenizer);

  // With the system's message where there is one.
  data::Conversation begin() const;
  // Error that begins with `where` for what the template refuses.
  data::Prompt prompt_of(const data::Conversation& conversation, const std::string& where) const;
  // A prompt for each row of a file of conversations, without turns of the assistant at its end.
  std::vector<data::Prompt> prompts_in(const std::filesystem::path& file) const;

 private:
  const data::Tokenizer& tokenizer_;
  std::string system_;
  data::ChatFormat format_;
};

// Appends a message.
void say(data::Conversation& conversation, data::Role role, const std::string& content);

}  // namespace fsdp::tools
