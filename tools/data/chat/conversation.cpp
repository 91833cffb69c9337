// Contract: tools/data/chat/conversation.h.
#include "tools/data/chat/conversation.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "core/io/json_spelling.h"
#include "core/text/similar_names.h"
#include "tools/data/tokenizer/characters.h"

namespace fsdp::data {
namespace {

const std::vector<std::string> kRoleNames = {"system", "user", "assistant", "tool"};

// ShareGPT's words, and its relatives' words. function_call is an assistant's.
const std::map<std::string, std::string, std::less<>> kSharedRoles = {
    {"human", "user"}, {"gpt", "assistant"}, {"function", "tool"}, {"observation", "tool"}};
constexpr std::string_view kFunctionCall = "function_call";

std::string shown(const Json& value) {
  const std::string out = value.dump({.replace = true});
  size_t end = std::min<size_t>(out.size(), 60);
  while (end < out.size() && (out[end] & 0xC0) == 0x80) --end;  // not within a character
  return out.substr(0, end);
}

// The text of a list of parts {"type": "text", "text": "..."}.
std::string joined(const Json& parts, const std::string& place) {
  std::string out;
  for (const Json& part : parts) {
    const Json* const type = part.is_object() ? part.find("type") : nullptr;
    const Json* const text = part.is_object() ? part.find("text") : nullptr;
    const bool is_text = text && text->is_string() && (!type || *type == "text");
    FSDP_CHECK(is_text, "{}: expected parts of text, {{\"type\": \"text\", \"text\": ...}}, got {}",
               place, shown(part));
    out += text->text();
  }
  return out;
}

// Reads the messages of one list.
class MessageReader {
 public:
  MessageReader(const ConversationFields& fields, Conversation& out) : fields_(fields), out_(out) {}

  // `place`: "a.jsonl:7: messages"
  void read(const Json& list, const std::string& place) {
    FSDP_CHECK(list.is_array(), "{}: expected a list of messages, got {}", place, shown(list));
    for (size_t i = 0; i < list.size(); ++i) {
      read_message(list[i], fmt::format("{}[{}]", place, i));
    }
  }

 private:
  void read_message(const Json& given, const std::string& place) {
    bool trained = true;
    FSDP_CHECK(given.is_object(), "{}: expected an object with role and content, got {}", place,
               shown(given));
    const bool shared = !given.contains("role") && given.contains("from");
    const std::string key = shared ? "from" : "role";
    const Json* const said = given.find(key);
    FSDP_CHECK(said && said->is_string(), "{}.{}: expected {}, got {}", place, key,
               "system, user, assistant or tool", said ? shown(*said) : "no such key");
    const bool calls = shared && said->text() == kFunctionCall;
    const Role role = calls ? Role::kAssistant : role_of(said->text(), place + "." + key);
    const bool by_value = (shared && given.contains("value")) || !given.contains("content");
    const std::string_view content = by_value ? "value" : "content";
    Json message = Json::object();  // in the order of the row, in which a template may print it
    for (const auto& [name, value] : given.items()) {
      if (name == key) {
        message["role"] = name_of(role);
      } else if (name == "weight" || name == "train") {
        trained = is_on(value, place + "." + name) && trained;
      } else if (name == content && !calls) {
        message["content"] = content_of(value, place + "." + name);
      } else if (name != "value" && name != "content") {
        message[name] = value;
      }
    }
    if (calls) add_call(given, place, message);
    FSDP_CHECK(message.contains("content") || message.contains("tool_calls"), "{}.{}: no such key",
               place, shared ? "value" : "content");
    out_.messages.push_back(std::move(message));
    out_.roles.push_back(role);
    out_.trained.push_back(trained);
  }

  Role role_of(const std::string& said, const std::string& place) const {
    std::string name = said;
    if (const auto own = fields_.roles.find(name); own != fields_.roles.end()) {
      name = own->second;
    } else if (const auto known = kSharedRoles.find(name); known != kSharedRoles.end()) {
      name = known->second;
    }
    if (const std::optional<Role> role = find_role(name)) return *role;
    const std::string near = nearest_key(said, kRoleNames);
    fail("{}: expected system, user, assistant or tool, got \"{}\"; {}", place, said,
         resembles(said, near) ? fmt::format("did you mean \"{}\"?", near)
                               : fmt::format("data.roles: {{{}: ...}} says which it is", said));
  }

  static Json content_of(const Json& given, const std::string& place) {
    FSDP_CHECK(given.is_array() || given.is_string() || given.is_null(),
               "{}: expected a text, or parts of text, got {}", place, shown(given));
    return given.is_array() ? Json(joined(given, place)) : given;
  }

  // ShareGPT's function_call: {"name": ..., "arguments": {...}} as a text.
  static void add_call(const Json& given, const std::string& place, Json& message) {
    const Json* const value = given.find("value");
    FSDP_CHECK(value && value->is_string(), "{}.value: expected the call as a text of JSON", place);
    Json function;
    try {
      function = parse_spelled_line(value->text(), place, nullptr);  // refuses 10^5 levels
    } catch (const std::exception&) {
    }
    FSDP_CHECK(function.is_object() && function.contains("name"),
               "{}.value: expected {{\"name\": ..., \"arguments\": ...}}, got {}", place,
               shown(*value));
    message["content"] = nullptr;
    message["tool_calls"] = Json::array({Json::object()});
    message["tool_calls"][0]["type"] = "function";
    message["tool_calls"][0]["function"] = std::move(function);
  }

  static bool is_on(const Json& value, const std::string& place) {
    FSDP_CHECK(value.is_null() || value.is_boolean() || value == 0 || value == 1,
               "{}: expected 0 or 1, true or false, got {}", place, shown(value));
    return value.is_null() || (value.is_boolean() ? value.get<bool>() : value == 1);
  }

  const ConversationFields& fields_;
  Conversation& out_;
};

const Json* list_of(const Json& row, const ConversationFields& fields, std::string& name) {
  const std::vector<std::string> usual = {"messages", "conversations"};
  for (const std::string& field : fields.messages.empty() ? usual : std::vector{fields.messages}) {
    name = field;
    if (const Json* const list = row.find(field)) return list;
  }
  return nullptr;
}

// A prompt and its completion.
void read_pair(const Json& row, const std::string& where, const ConversationFields& fields,
               Conversation& out) {
  const Json &prompt = row["prompt"], &completion = row["completion"];
  if (prompt.is_array() || completion.is_array()) {
    MessageReader reader(fields, out);
    reader.read(prompt, where + ": prompt");
    out.prompts = out.messages.size();
    reader.read(completion, where + ": completion");
    return;
  }
  out.is_plain = true;
  out.roles = {Role::kUser, Role::kAssistant};
  out.trained = {true, true};
  out.prompts = 1;
  for (const char* const key : {"prompt", "completion"}) {
    FSDP_CHECK(row[key].is_string(), "{}: {}: expected a text, or a list of messages, got {}",
               where, key, shown(row[key]));
    Json message = Json::object();
    message["content"] = row[key];
    out.messages.push_back(std::move(message));
  }
}

// The field "system" of a row, as ShareGPT's relatives have it, is the first message.
void add_system(const Json& row, const std::string& where, Conversation& out) {
  const Json* const system = row.find("system");
  if (out.is_plain || !system || !system->is_string() || system->text().empty()) return;
  FSDP_CHECK(out.roles.front() != Role::kSystem,
             "{}: system: expected it once, and the first message is one, too", where);
  Json message = Json::object();
  message["role"] = name_of(Role::kSystem);
  message["content"] = *system;
  out.messages.insert(out.messages.begin(), std::move(message));
  out.roles.insert(out.roles.begin(), Role::kSystem);
  out.trained.insert(out.trained.begin(), true);
  out.prompts += out.prompts > 0 ? 1 : 0;
}

}  // namespace

std::optional<Role> find_role(std::string_view name) {
  for (size_t i = 0; i < kRoleNames.size(); ++i) {
    if (name == kRoleNames[i]) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::string without_marks(std::string_view text) {
  std::string out;
  for (size_t mark = 0; mark != text.npos; text.remove_prefix(std::min(mark, text.size()))) {
    if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
    mark = text.find(kMark);
    out += text.substr(0, mark);
  }
  return out;
}

namespace {

// Looks in a text, or in the texts of a structure.
bool find_special_in(const FindSpecial& special_in, bool as_text, const std::string& where,
                     Json& value) {
  bool found = false;
  if (value.is_array()) {
    for (Json& item : value) found |= find_special_in(special_in, as_text, where, item);
  } else if (value.is_object()) {
    for (auto& [name, item] : value.items()) {
      found |= find_special_in(special_in, as_text, where, item);
    }
  } else if (value.is_string()) {
    std::string text = value.text();
    FSDP_CHECK(!as_text || text.find(kMark) == text.npos,
               "{}: a message with U+FDD0: data.special_in_content: as_text needs that character",
               where);
    const std::vector<Span> spans = special_in(text);
    if (spans.empty()) return false;
    for (auto span = spans.rbegin(); as_text && span != spans.rend(); ++span) {
      text.insert(span->begin + character_length(text[span->begin]), kMark);
    }
    value = std::move(text);
    return true;
  }
  return found;
}

}  // namespace

void find_special(const FindSpecial& special_in, bool as_text, const std::string& where,
                  Conversation& conversation) {
  for (Json& message : conversation.messages) {
    const Json role = message.value("role", Json());
    conversation.special.push_back(find_special_in(special_in, as_text, where, message));
    if (!role.is_null()) message["role"] = role;  // the template compares it
  }
}

bool is_conversation(const Json& row, const ConversationFields& fields) {
  std::string name;
  if (!row.is_object()) return false;
  const Json* const list = list_of(row, fields, name);
  const bool pair = fields.messages.empty() && row.contains("prompt") && row.contains("completion");
  return list || pair;
}

Conversation conversation_of(const Json& row, const std::string& where,
                             const ConversationFields& fields) {
  FSDP_CHECK(row.is_object(), "{}: expected an object, got {}", where, shown(row));
  Conversation out;
  std::string name;
  if (const Json* const list = list_of(row, fields, name)) {
    MessageReader(fields, out).read(*list, where + ": " + name);
  } else {
    const bool pair =
        fields.messages.empty() && row.contains("prompt") && row.contains("completion");
    FSDP_CHECK(pair, "{}: no field {}; data.messages_field names the list of messages", where,
               fields.messages.empty() ? "messages, conversations, or prompt and completion"
                                       : "\"" + fields.messages + "\"");
    read_pair(row, where, fields, out);
    name = "prompt and completion";
  }
  FSDP_CHECK(!out.messages.empty(), "{}: {}: expected messages, got none", where, name);
  add_system(row, where, out);
  const auto optional = [&](const char* key) {
    const Json* const value = row.find(key);
    return value ? *value : Json();
  };
  const auto objects = [&](const char* key) {
    Json value = optional(key);
    if (value.is_string()) {  // the order of its keys stays
      value = parse_spelled_line(value.text(), where + ": " + key, nullptr);
    }
    const bool are_objects =
        std::all_of(value.begin(), value.end(), [](const Json& each) { return each.is_object(); });
    FSDP_CHECK(value.is_null() || (value.is_array() && are_objects),
               "{}: {}: expected a list of objects, got {}", where, key, shown(value));
    return value;
  };
  out.tools = objects("tools");
  out.documents = objects("documents");
  out.kwargs = optional("chat_template_kwargs");
  return out;
}

}  // namespace fsdp::data
