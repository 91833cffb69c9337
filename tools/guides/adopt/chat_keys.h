// Keys of conversations: axolotl's, and what several programs have. Not here: keys of TRL and of
// LLaMA-Factory (hugging_face.cpp, llama_factory.cpp), what a turn is (tools/data/chat).
#pragma once

#include <string>

#include "core/io/json.h"
#include "tools/guides/adopt/rules.h"

namespace fsdp::adopt {

// A template by its name there. chatml and llama3 have our texts; of another one the model's own
// counts, with a warning.
void set_chat_template(const std::string& name, const Given& given, Adoption& adoption,
                       const std::string& remark = "");
// The fields of a message, and the data's words for roles: {"bot": "assistant"}. Error for other
// fields than role and content, or from and value.
void set_messages(const std::string& role, const std::string& content, const Json& roles,
                  const Given& origin, Adoption& adoption);

// axolotl: whether a data set has conversations, by its type chat_template, once sharegpt.
bool is_chat(const std::string& type);
bool has_chats(const Adoption& adoption);
std::vector<Rule> axolotl_chat_rules();
// After every key by itself: trained turns, words for roles, the template's variables.
void take_axolotl_chats(Adoption& adoption);

}  // namespace fsdp::adopt
