// Where a chat template comes from, as transformers 4.57.1 looks for one
// (PreTrainedTokenizerBase.from_pretrained, get_chat_template), and our own by name.
// Not here: the template's language (template.h), rows (chat_text.h).
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/io/json.h"
#include "tools/data/chat/chat_text.h"
#include "tools/data/tokenizer/tokenizer.h"

namespace fsdp::data {

struct ChatTemplateFile {
  std::string source, name;      // "": none was found
  std::string tool_source = {};  // for rows with tools; "": the same
};

// `given`: data.chat_template, a name (chatml, llama3, zephyr, vicuna) or a file; "": the folder's
// chat_template.jinja, else tokenizer_config.json's, a text or pairs of {name, template}, where
// "default" and, for rows with tools, "tool_use" count. `folder`: of the tokenizer; "": none.
ChatTemplateFile find_chat_template(const std::string& given, const std::filesystem::path& folder);

bool is_own_chat_template(const std::string& name);  // chatml, llama3, zephyr, vicuna

// {"bos_token": "<s>", ...}: the texts of tokenizer_config.json, or of
// special_tokens_map.json, which counts more; transformers does not read it next to an
// added_tokens_decoder.
Json special_tokens_in(const std::filesystem::path& folder);

// The folder whose files say the chat template of a tokenizer by its name, as make_tokenizer takes
// it: the tokenizer's, or the model's where the tokenizer is "bytes"; "": none.
std::filesystem::path chat_folder(const std::string& tokenizer, const std::filesystem::path& model);

// "2026-01-31" at midnight, with its day of the week and of the year; nullopt: it is no date.
std::optional<std::tm> parse_date(const std::string& text);

struct ChatChoices {
  std::string chat_template;          // as `given` of find_chat_template
  Json kwargs = Json::object();       // data.chat_template_kwargs
  std::string date = {};              // YYYY-MM-DD; "": the time now
  std::filesystem::path folder = {};  // of the tokenizer; "": none
};
// nullopt: no template is known. Special tokens that no key names are the tokenizer's own, by its
// class.
std::optional<ChatFormat> open_chat_format(const ChatChoices& choices, const Tokenizer& tokenizer);
// Whether the template, or that for tools, has this text; false: no template is known.
bool has_word(const ChatChoices& choices, std::string_view text);
// Whether the template may write the date.
inline bool asks_for_date(const ChatChoices& choices) { return has_word(choices, "strftime_now"); }

// Ids that end a turn by these folders' files: eos_token_id of generation_config.json and of
// config.json, one id or a list. A file that is no JSON says nothing here.
std::vector<int32_t> end_tokens_in(const std::vector<std::filesystem::path>& folders);

// Texts such as <|im_start|> that the template has and the tokenizer splits: the model was trained
// without the template. In the order of the template, at most a few.
std::vector<std::string> split_tokens_of(const ChatChoices& choices, const Tokenizer& tokenizer);

}  // namespace fsdp::data
