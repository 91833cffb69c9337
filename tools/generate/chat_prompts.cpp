// Contract: tools/generate/chat_prompts.h.
#include "tools/generate/chat_prompts.h"

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "tools/data/json_row.h"
#include "tools/data/row_spans.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::tools {
namespace {

data::ChatFormat open_format(const ChatPromptOptions& options, const ModelSource& source,
                             const std::string& given, const data::Tokenizer& tokenizer) {
  const std::string name = given.empty() ? source.default_tokenizer() : given;
  const bool adapts = !source.adapter.empty() && is_named(source.adapter / "chat_template.jinja");
  const data::ChatChoices choices = {
      .chat_template = options.chat_template,
      .kwargs = options.kwargs.empty() ? Json::object()
                                       : parse_json(options.kwargs, "--chat-template-kwargs"),
      .date = options.date,
      .folder = data::chat_folder(name, adapts ? source.adapter : source.folder)};
  FSDP_CHECK(choices.kwargs.is_object(), "--chat-template-kwargs: expected {{\"name\": value}}");
  std::optional<data::ChatFormat> format;
  try {
    format = data::open_chat_format(choices, tokenizer);
  } catch (const Error& error) {
    const std::string message = error.what(), key = "data.chat_template: ";
    fail_like(error, message.starts_with(key) ? "--chat-template: " + message.substr(key.size())
                                              : message);
  }
  FSDP_CHECK(format,
             "{}: no chat template: --chat-template names one (chatml, llama3, zephyr, vicuna, or "
             "a file)",
             source.folder.string());
  return std::move(*format);
}

}  // namespace

ChatPrompter::ChatPrompter(const ChatPromptOptions& options, const ModelSource& source,
                           const std::string& name, const data::Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      system_(options.system),
      format_(open_format(options, source, name, tokenizer)) {
  FSDP_CHECK(options.date.empty() || data::parse_date(options.date),
             "--chat-date: expected a date such as 2026-01-31, got \"{}\"", options.date);
}

void say(data::Conversation& conversation, data::Role role, const std::string& content) {
  Json message = Json::object();
  message["role"] = name_of(role);
  message["content"] = content;
  conversation.messages.push_back(std::move(message));
  conversation.roles.push_back(role);
  conversation.trained.push_back(true);
}

data::Conversation ChatPrompter::begin() const {
  data::Conversation out;
  if (!system_.empty()) say(out, data::Role::kSystem, system_);
  return out;
}

data::Prompt ChatPrompter::prompt_of(const data::Conversation& conversation,
                                     const std::string& where) const {
  const std::string text = format_.prompt_of(conversation, where);
  std::vector<int32_t> ids = tokenizer_.encode(text, data::SpecialTokens::kOmit);
  FSDP_CHECK(!ids.empty(), "{}: the chat template writes no text", where);
  return {.where = where, .text = text, .ids = std::move(ids)};
}

std::vector<data::Prompt> ChatPrompter::prompts_in(const std::filesystem::path& file) const {
  const MappedFile mapped(file);
  const std::string_view text = data::without_byte_order_mark(mapped.text());
  std::vector<data::Prompt> out;
  data::for_each_span(text, data::spans_of(text), file.string(), [&](const data::RowSpan& row) {
    const std::string where = fmt::format("{}:{}", file.string(), row.line);
    data::Conversation conversation =
        data::conversation_of(data::parse_json_row(row.text, where), where, {});
    FSDP_CHECK(!conversation.is_plain, "{}: expected messages, got prompt and completion as texts",
               where);
    while (!conversation.roles.empty() && conversation.roles.back() == data::Role::kAssistant) {
      conversation.roles.pop_back();
      conversation.messages.pop_back();
    }
    FSDP_CHECK(!conversation.messages.empty(),
               "{}: nothing to answer: all messages are the assistant's", where);
    if (conversation.roles.front() != data::Role::kSystem && !system_.empty()) {
      conversation.messages.insert(conversation.messages.begin(), begin().messages[0]);
      conversation.roles.insert(conversation.roles.begin(), data::Role::kSystem);
    }
    out.push_back(prompt_of(conversation, where));
  });
  FSDP_CHECK(!out.empty(), "{}: no conversations", file.string());
  return out;
}

}  // namespace fsdp::tools
