// Contract: tools/data/chat/chat_text.h.
// Source: the definition of a mask, by what the template wrote for a message; the generation prompt
// in four ways, because templates write it in different places.
#include "tools/data/chat/chat_text.h"

#include <algorithm>

#include "core/error.h"

namespace fsdp::data {

namespace {

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

// Whether something that an assistant's message says is not in what the template wrote for it, as
// the thinking of earlier turns. Blanks that the template trims at the ends do not count.
bool leaves_out(const Conversation& conversation, size_t message, const Rendering& rendering) {
  std::string written;
  for (const Written& each : rendering.written) {
    const auto [begin, end] = each.bytes;
    if (each.message == message) written.append(rendering.text, begin, end - begin);
  }
  for (const char* const key : {"content", "reasoning_content", "thinking"}) {
    const Json* const said = conversation.messages[message].find(key);
    if (!said || !said->is_string()) continue;
    constexpr std::string_view kSpace = " \t\r\n";
    std::string_view text = said->text();
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    text.remove_suffix(text.size() - std::min(text.find_last_not_of(kSpace) + 1, text.size()));
    if (written.find(text) == written.npos) return true;
  }
  const Json* const calls = conversation.messages[message].find("tool_calls");
  for (size_t i = 0; calls && calls->is_array() && i < calls->size(); ++i) {
    const Json* const name = (*calls)[i].follow("/function/name");
    if (name && name->is_string() && written.find(name->text()) == written.npos) return true;
  }
  return false;
}

Conversation probe_like(const Conversation& conversation) {
  Conversation out;
  Json message = Json::object();
  message["role"] = name_of(Role::kUser);
  message["content"] = "Hello";
  out.messages = {message};
  out.roles = {Role::kUser};
  out.trained = {true};
  out.tools = conversation.tools;  // they choose the template
  out.kwargs = conversation.kwargs;
  return out;
}

}  // namespace

ChatFormat::ChatFormat(ChatFormatOptions options)
    : options_(std::move(options)), template_(options_.source, options_.name) {
  if (!options_.tool_source.empty()) {
    tool_template_.emplace(options_.tool_source, options_.name + " (tool_use)");
  }
  usual_ = prompts_of({});
}

Rendering ChatFormat::render(const Conversation& conversation, size_t messages, bool prompt) const {
  Json kwargs = options_.kwargs;
  if (conversation.kwargs.is_object()) kwargs.update(conversation.kwargs);
  const auto given = [](const Json& value) { return value.is_null() ? nullptr : &value; };
  return template_of(conversation)
      .render({.messages = std::span(conversation.messages).first(messages),
               .tools = given(conversation.tools),
               .documents = given(conversation.documents),
               .special_tokens = &options_.special_tokens,
               .kwargs = &kwargs,
               .add_generation_prompt = prompt,
               .clock = options_.date});
}

// A template that refuses the probe writes no prompt that it would show.
ChatFormat::Prompts ChatFormat::prompts_of(const Conversation& conversation) const {
  const Conversation probe = probe_like(conversation);
  Prompts out;
  try {
    const Rendering without = render(probe, 1, false), with = render(probe, 1, true);
    if (with.text.starts_with(without.text)) out.added = with.text.substr(without.text.size());
    if (!with.written.empty()) out.behind = with.text.substr(with.written.back().bytes.end);
  } catch (const Error&) {
  }
  return out;
}

Rendering ChatFormat::render_all(const Conversation& conversation, bool prompt,
                                 const std::string& where) const {
  const size_t messages = conversation.messages.size();
  FSDP_CHECK(messages <= kMostMessages,
             "{}: expected at most {} messages in a conversation, got {}", where, kMostMessages,
             messages);
  FSDP_CHECK(conversation.kwargs.is_null() || conversation.kwargs.is_object(),
             "{}: chat_template_kwargs: expected an object", where);
  try {
    return render(conversation, messages, prompt);
  } catch (const RaisedByTemplate& error) {
    fail("{}: the template {} says: {}", where, options_.name, error.what());
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
}

std::string ChatFormat::prompt_of(const Conversation& conversation,
                                  const std::string& where) const {
  return render_all(conversation, true, where).text;
}

ChatText ChatFormat::text_of(const Conversation& conversation, const std::string& where) const {
  if (conversation.is_plain) return plain_text_of(conversation);
  ChatText out;
  Rendering rendering = render_all(conversation, false, where);
  try {
    add_turns(conversation, rendering, out);
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
  out.text = std::move(rendering.text);
  const bool is_usual = conversation.tools.is_null() && conversation.kwargs.is_null();
  const Prompts prompts = is_usual ? usual_ : prompts_of(conversation);
  for (ChatTurn& turn : out.turns) {
    if (turn.role != Role::kAssistant || turn.is_block) continue;
    add_starts(conversation, prompts, out, turn);
  }
  return out;
}

void ChatFormat::add_turns(const Conversation& conversation, const Rendering& rendering,
                           ChatText& out) const {
  const bool blocks = template_of(conversation).has_generation_blocks();
  const std::string begin = options_.special_tokens.value("bos_token", "");
  const auto message_at = [&](size_t byte) {
    for (const Written& written : rendering.written) {
      if (written.bytes.begin <= byte && byte < written.bytes.end) return written.message;
    }
    return conversation.messages.size();
  };
  const auto add = [&](Role role, size_t message, bool is_block, ByteSpan bytes) {
    const bool known = message < conversation.messages.size();
    out.turns.push_back(
        {.role = role,
         .message = message,
         .trained = !known || conversation.trained[message],
         .is_prompt = message < conversation.prompts,
         .is_block = is_block,
         .left_out =
             known && role == Role::kAssistant && leaves_out(conversation, message, rendering),
         .special = known && !conversation.special.empty() && conversation.special[message],
         .bytes = bytes,
         .starts = {}});
  };
  std::vector<bool> is_there(conversation.messages.size());
  size_t unknown = 0;  // blocks outside of all messages
  for (const ByteSpan& block : rendering.generation) {
    size_t message = message_at(block.begin);
    if (message == conversation.messages.size()) message += unknown++;
    add(Role::kAssistant, message, true, block);
    if (message < is_there.size()) is_there[message] = true;
  }
  const bool all_trained =
      conversation.prompts == 0 &&
      std::ranges::find(conversation.trained, false) == conversation.trained.end();
  FSDP_CHECK(unknown == 0 || all_trained,
             "a generation block of {} lies outside of all messages: whose weight holds for it?",
             options_.name);
  for (const Written& written : rendering.written) {
    const Role role = conversation.roles[written.message];
    if (blocks && role == Role::kAssistant) continue;
    ByteSpan bytes = written.bytes;
    const std::string_view text =
        std::string_view(rendering.text).substr(0, bytes.end).substr(bytes.begin);
    if (text.starts_with(begin)) bytes.begin += begin.size();
    add(role, written.message, false, bytes);
    is_there[written.message] = true;
  }
  for (size_t i = 0; i < is_there.size(); ++i) {
    if (!is_there[i]) add(conversation.roles[i], i, false, {});
  }
  std::ranges::stable_sort(out.turns, {}, [](const ChatTurn& turn) { return turn.bytes.begin; });
}

void ChatFormat::add_starts(const Conversation& conversation, const Prompts& prompts, ChatText& out,
                            ChatTurn& turn) const {
  const auto add = [&](TurnStart start) {
    if (std::ranges::find(turn.starts, start) == turn.starts.end()) turn.starts.push_back(start);
  };
  // Text and rest as one text that shares as much as it can: equal ones are asked once.
  const auto add_text = [&](std::string_view before, std::string_view rest) {
    const std::string_view text = out.text;
    size_t shared = before.size();
    const size_t more = common_prefix(text.substr(shared), rest);
    add({.shared = shared + more, .rest = std::string(rest.substr(more))});
  };
  const std::string_view before = std::string_view(out.text).substr(0, turn.bytes.begin);
  const std::string_view segment =
      std::string_view(out.text).substr(0, turn.bytes.end).substr(turn.bytes.begin);
  for (const std::string& prompt : {prompts.added, prompts.behind}) {
    if (prompt.empty()) continue;
    add_text(before, prompt);
    const size_t at = segment.find(prompt);
    if (at != segment.npos) add({.shared = turn.bytes.begin + at + prompt.size(), .rest = ""});
  }
  try {
    const std::string given = render(conversation, turn.message, true).text;
    const size_t shared = common_prefix(out.text, given);
    add({.shared = shared, .rest = given.substr(shared)});
  } catch (const Error&) {  // of a conversation that may not end here
  }
}

std::string ChatFormat::identity() const {
  Json out = Json::array({Json(options_.source), Json(options_.tool_source),
                          options_.special_tokens, options_.kwargs});
  if (const auto& date = options_.date) {
    for (const int part :
         {date->tm_year, date->tm_mon, date->tm_mday, date->tm_hour, date->tm_min, date->tm_sec}) {
      out.push_back(part);
    }
  }
  return out.dump();
}

ChatText plain_text_of(const Conversation& conversation) {
  ChatText out;
  out.is_plain = true;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    const size_t begin = out.text.size();
    out.text += conversation.messages[i]["content"].text();
    out.turns.push_back({.role = conversation.roles[i],
                         .message = i,
                         .trained = conversation.trained[i],
                         .is_prompt = i < conversation.prompts,
                         .special = !conversation.special.empty() && conversation.special[i],
                         .bytes = {begin, out.text.size()},
                         .starts = {{.shared = begin, .rest = ""}}});
  }
  return out;
}

}  // namespace fsdp::data
