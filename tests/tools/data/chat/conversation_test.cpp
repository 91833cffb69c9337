// Rows as conversations: every form of a row, the messages that are trained, and the errors.
#include "tools/data/chat/conversation.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

const std::string kPlace = "a.jsonl:7";

Conversation conversation_in(const std::string& row, const ConversationFields& fields = {}) {
  return conversation_of(Json::parse(row), kPlace, fields);
}

// The error of a row, without its place.
std::string row_error(const std::string& row, const ConversationFields& fields = {}) {
  const std::string error = test::error_of([&] { conversation_in(row, fields); });
  if (error.empty()) return "";
  CHECK(error.starts_with(kPlace + ": "));
  return error.substr(kPlace.size() + 2);
}

// The error of one message of a list.
std::string message_error(const std::string& message, const ConversationFields& fields = {}) {
  return row_error(R"({"messages": [)" + message + "]}", fields);
}

std::string messages_of(const Conversation& given) { return Json(given.messages).dump(); }

// "user, assistant+": a plus where a message may be trained.
std::string roles_of(const Conversation& given) {
  std::string out;
  for (size_t i = 0; i < given.roles.size(); ++i) {
    out.append(i ? ", " : "")
        .append(name_of(given.roles[i]))
        .append(given.trained[i] && i >= given.prompts ? "+" : "");
  }
  return out;
}

}  // namespace

TEST_CASE("conversation: messages") {
  const Conversation out = conversation_in(
      R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
          {"role": "assistant", "content": null, "tool_calls": [{"id": "1"}]},
          {"role": "tool", "content": "", "name": "f"}, {"role": "assistant", "tool_calls": []}]})");
  CHECK(messages_of(out) ==
        R"([{"role":"system","content":"S"},{"role":"user","content":"U"},)"
        R"({"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},)"
        R"({"role":"tool","content":"","name":"f"},{"role":"assistant","tool_calls":[]}])");
  CHECK(roles_of(out) == "system+, user+, assistant+, tool+, assistant+");
  CHECK_FALSE(out.is_plain);
  CHECK(out.tools.is_null());
  CHECK(out.documents.is_null());
  CHECK(out.kwargs.is_null());
}

TEST_CASE("conversation: a message without its text, and a row with the system's message") {
  CHECK(row_error(R"({"messages": [{"role": "user", "contents": "a"}]})") ==
        "messages[0].content: no such key");
  CHECK(row_error(R"({"conversations": [{"from": "gpt"}]})") ==
        "conversations[0].value: no such key");
  const Conversation out = conversation_in(
      R"({"system": "S", "prompt": [{"role": "user", "content": "a"}],
          "completion": [{"role": "assistant", "content": "b"}]})");
  CHECK(roles_of(out) == "system, user, assistant+");
  CHECK(out.messages[0]["content"].text() == "S");
  CHECK(row_error(R"({"system": "S", "messages": [{"role": "system", "content": "T"}]})") ==
        "system: expected it once, and the first message is one, too");
}

TEST_CASE("conversation: keys keep the order of the row, in which a template may print them") {
  const Conversation out = conversation_in(
      R"({"messages": [{"name": "n", "content": "c", "weight": 1, "role": "user", "a": 1}]})");
  CHECK(messages_of(out) == R"([{"name":"n","content":"c","role":"user","a":1}])");
}

TEST_CASE("conversation: value and content, where the other key is usual") {
  CHECK(messages_of(conversation_in(
            R"({"messages": [{"role": "user", "value": "a"}, {"from": "gpt", "content": "b"},
                {"from": "gpt", "value": "c", "content": "d"},
                {"role": "user", "value": "e", "content": "f"}]})")) ==
        R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
        R"({"role":"assistant","content":"c"},{"role":"user","content":"f"}])");
}

TEST_CASE("conversation: ShareGPT's from and value") {
  const Conversation out = conversation_in(
      R"({"conversations": [{"from": "system", "value": "S"}, {"from": "human", "value": "U"},
          {"from": "gpt", "value": "A", "mood": 1}, {"from": "tool", "value": "T"},
          {"from": "function", "value": "F"}, {"from": "observation", "value": "O"},
          {"from": "user", "value": "V"}, {"from": "assistant", "value": "B"}]})");
  CHECK(roles_of(out) == "system+, user+, assistant+, tool+, tool+, tool+, user+, assistant+");
  CHECK(out.messages[2].dump() == R"({"role":"assistant","content":"A","mood":1})");
  CHECK(out.messages[4].dump() == R"({"role":"tool","content":"F"})");
}

TEST_CASE("conversation: a function_call becomes a call of the assistant") {
  const Conversation out = conversation_in(
      R"({"conversations": [{"from": "human", "value": "U"}, {"from": "function_call",
          "value": "{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [2.5, null]}}"}]})");
  CHECK(roles_of(out) == "user+, assistant+");
  CHECK(out.messages[1].dump() ==
        R"({"role":"assistant","content":null,"tool_calls":[{"type":"function",)"
        R"("function":{"name":"f","arguments":{"b":1,"a":[2.5,null]}}}]})");
  const auto error = [](const std::string& rest) {
    return row_error(R"({"conversations": [{"from": "function_call")" + rest + "}]}");
  };
  CHECK(error("") == "conversations[0].value: expected the call as a text of JSON");
  CHECK(error(R"(, "value": {"name": "f"})") ==
        "conversations[0].value: expected the call as a text of JSON");
  const std::string wanted =
      "conversations[0].value: expected {\"name\": ..., \"arguments\": ...}, got ";
  CHECK(error(R"(, "value": "f")") == wanted + "\"f\"");
  CHECK(error(R"(, "value": "[1]")") == wanted + "\"[1]\"");
  CHECK(error(R"(, "value": "{\"arguments\": {}}")") == wanted + R"("{\"arguments\": {}}")");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  CHECK(error(", \"value\": \"" + deep + "\"") == wanted + "\"" + std::string(59, '['));
  // A message with a role has no such word.
  CHECK(message_error(R"({"role": "function_call", "content": "{}"})") ==
        "messages[0].role: expected system, user, assistant or tool, got \"function_call\"; "
        "data.roles: {function_call: ...} says which it is");
}

TEST_CASE("conversation: a prompt and its completion as texts") {
  const Conversation out = conversation_in(R"({"prompt": "2+2=", "completion": "4", "id": 3})");
  CHECK(out.is_plain);
  CHECK(messages_of(out) == R"([{"content":"2+2="},{"content":"4"}])");
  CHECK(roles_of(out) == "user, assistant+");
  CHECK(row_error(R"({"prompt": "a", "completion": null})") ==
        "completion: expected a text, or a list of messages, got null");
  CHECK(row_error(R"({"prompt": 1, "completion": "a"})") ==
        "prompt: expected a text, or a list of messages, got 1");
}

TEST_CASE("conversation: a prompt and its completion as messages") {
  const Conversation out = conversation_in(
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})");
  CHECK_FALSE(out.is_plain);
  CHECK(roles_of(out) == "user, assistant, user, assistant+");
  CHECK(row_error(R"({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]})") ==
        "prompt: expected a list of messages, got \"a\"");
  CHECK(row_error(R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})") ==
        "completion: expected a list of messages, got \"b\"");
  CHECK(row_error(R"({"prompt": [{"role": "user", "content": "a"}],
                      "completion": [{"role": "asistant", "content": "b"}]})") ==
        "completion[0].role: expected system, user, assistant or tool, got \"asistant\"; did you "
        "mean \"assistant\"?");
  CHECK(row_error(R"({"prompt": [], "completion": []})") ==
        "prompt and completion: expected messages, got none");
}

TEST_CASE("conversation: parts of text are joined, others are errors") {
  const Conversation out = conversation_in(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "Hel"},
          {"text": "lo"}]}, {"role": "assistant", "content": []}]})");
  CHECK(messages_of(out) ==
        R"([{"role":"user","content":"Hello"},{"role":"assistant","content":""}])");
  const Conversation shared = conversation_in(
      R"({"conversations": [{"from": "human", "value": [{"type": "text", "text": "Hi"}]}]})");
  CHECK(messages_of(shared) == R"([{"role":"user","content":"Hi"}])");
  const std::string wanted =
      "messages[0].content: expected parts of text, {\"type\": \"text\", \"text\": ...}, got ";
  const auto error = [](const std::string& part) {
    return message_error(R"({"role": "user", "content": [{"text": "a"}, )" + part + "]}");
  };
  CHECK(error(R"({"type": "image", "text": "a"})") == wanted + R"({"type":"image","text":"a"})");
  CHECK(error(R"({"type": "text"})") == wanted + R"({"type":"text"})");
  CHECK(error(R"({"type": "text", "text": null})") == wanted + R"({"type":"text","text":null})");
  CHECK(error(R"({"type": null, "text": "a"})") == wanted + R"({"type":null,"text":"a"})");
  CHECK(error(R"("a")") == wanted + "\"a\"");
  CHECK(error("\"" + std::string(100, 'a') + "\"") == wanted + "\"" + std::string(59, 'a'));
}

TEST_CASE("conversation: a field and roles of the data's own") {
  const ConversationFields fields = {.messages = "chat",
                                     .roles = {{"bot", "assistant"}, {"human", "system"}}};
  const Conversation out = conversation_in(
      R"({"messages": 1, "chat": [{"role": "bot", "content": "a"}, {"from": "human", "value": "b"},
          {"role": "user", "content": "c"}]})",
      fields);
  CHECK(roles_of(out) == "assistant+, system+, user+");
  CHECK(out.messages[0].dump() == R"({"role":"assistant","content":"a"})");
  CHECK(row_error(R"({"chat": [{"role": "boot", "content": "a"}]})", fields) ==
        "chat[0].role: expected system, user, assistant or tool, got \"boot\"; data.roles: {boot: "
        "...} says which it is");
  CHECK(row_error(R"({"messages": []})", fields) ==
        "no field \"chat\"; data.messages_field names the list of messages");
  CHECK(row_error(R"({"prompt": "a", "completion": "b"})", fields) ==
        "no field \"chat\"; data.messages_field names the list of messages");
}

TEST_CASE("conversation: weight and train switch a message off") {
  const auto trained = [](const std::string& member) {
    const Conversation out =
        conversation_in(R"({"messages": [{"role": "assistant", "content": "a", )" + member + "}]}");
    CHECK(out.messages[0].dump() == R"({"role":"assistant","content":"a"})");
    return bool(out.trained[0]);
  };
  for (const char* on : {"\"weight\": 1", "\"weight\": 1.0", "\"weight\": null", "\"train\": true",
                         "\"train\": 1", "\"weight\": 1, \"train\": true"}) {
    CAPTURE(on);
    CHECK(trained(on));
  }
  for (const char* off : {"\"weight\": 0", "\"weight\": 0.0", "\"train\": false", "\"train\": 0",
                          "\"weight\": 0, \"train\": true", "\"weight\": 1, \"train\": false"}) {
    CAPTURE(off);
    CHECK_FALSE(trained(off));
  }
  // A message of one row says nothing about the next message.
  CHECK(roles_of(conversation_in(
            R"({"messages": [{"role": "assistant", "content": "a", "weight": 0},
                {"role": "assistant", "content": "b"}]})")) == "assistant, assistant+");
  const std::string wanted = ": expected 0 or 1, true or false, got ";
  CHECK(message_error(R"({"role": "assistant", "content": "a", "weight": 0.5})") ==
        "messages[0].weight" + wanted + "0.5");
  CHECK(message_error(R"({"role": "assistant", "content": "a", "train": "no"})") ==
        "messages[0].train" + wanted + "\"no\"");
  CHECK(message_error(R"({"role": "user", "content": "a", "weight": 0, "train": 2})") ==
        "messages[0].train" + wanted + "2");
}

TEST_CASE("conversation: tools, documents and kwargs of a row") {
  const Conversation out = conversation_in(
      R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"b": 1, "a": 2}],
          "documents": [{"title": "t"}], "chat_template_kwargs": {"enable_thinking": false}})");
  CHECK(out.tools.dump() == R"([{"b":1,"a":2}])");
  CHECK(out.documents.dump() == R"([{"title":"t"}])");
  CHECK(out.kwargs.dump() == R"({"enable_thinking":false})");
  // As a text of JSON, which keeps the order of its keys.
  const Conversation text = conversation_in(
      R"({"messages": [{"role": "user", "content": "a"}], "tools": "[{\"b\": 1, \"a\": 2}]"})");
  CHECK(text.tools.dump() == out.tools.dump());
  const Conversation none = conversation_in(
      R"({"messages": [{"role": "user", "content": "a"}], "tools": null, "documents": null})");
  CHECK(none.tools.is_null());
  CHECK(none.documents.is_null());
  for (const std::string key : {"tools", "documents"}) {
    const auto error = [&](const std::string& value) {
      return row_error(R"({"messages": [{"role": "user", "content": ""}], ")" + key +
                       "\": " + value + "}");
    };
    CHECK(error("[]") == "");
    CHECK(error(R"("[{}]")") == "");
    CHECK(error(R"("null")") == "");
    CHECK(error(R"("{}")") == key + ": expected a list of objects, got {}");
    CHECK(error(R"("[{}")").starts_with(key + ": malformed JSON: "));
    CHECK(error("{}") == key + ": expected a list of objects, got {}");
    CHECK(error("[{}, 1]") == key + ": expected a list of objects, got [{},1]");
  }
}

TEST_CASE("conversation: errors name the line, the message and the key") {
  const std::string role = "expected system, user, assistant or tool, got ";
  CHECK(
      message_error(R"({"role": "user", "content": "a"}, {"role": "assitant", "content": "b"})") ==
      "messages[1].role: " + role + "\"assitant\"; did you mean \"assistant\"?");
  CHECK(message_error(R"({"role": "Assistant", "content": "a"})") ==
        "messages[0].role: " + role + "\"Assistant\"; did you mean \"assistant\"?");
  CHECK(message_error(R"({"role": null, "content": "a"})") == "messages[0].role: " + role + "null");
  CHECK(message_error(R"({"content": "a"})") == "messages[0].role: " + role + "no such key");
  CHECK(message_error(R"({"from": 1, "value": "a"})") == "messages[0].from: " + role + "1");
  CHECK(message_error(R"("a")") ==
        "messages[0]: expected an object with role and content, got \"a\"");
  CHECK(message_error("null") == "messages[0]: expected an object with role and content, got null");
  const std::string text = "expected a text, or parts of text, got ";
  CHECK(message_error(R"({"role": "user", "content": 1})") == "messages[0].content: " + text + "1");
  CHECK(message_error(R"({"role": "user", "content": {"text": "a"}})") ==
        "messages[0].content: " + text + R"({"text":"a"})");
  CHECK(message_error(R"({"from": "gpt", "value": true})") ==
        "messages[0].value: " + text + "true");
  CHECK(row_error(R"({"messages": null})") == "messages: expected a list of messages, got null");
  CHECK(row_error(R"({"conversations": "a"})") ==
        "conversations: expected a list of messages, got \"a\"");
  CHECK(row_error(R"({"messages": []})") == "messages: expected messages, got none");
  CHECK(row_error(R"({"text": "a"})") ==
        "no field messages, conversations, or prompt and completion; data.messages_field names the "
        "list of messages");
  CHECK(row_error(R"({"prompt": "a"})") ==
        "no field messages, conversations, or prompt and completion; data.messages_field names the "
        "list of messages");
  CHECK(row_error("[1]") == "expected an object, got [1]");
  std::string half;  // 60 bytes end within a character
  for (int i = 0; i < 40; ++i) half += "é";
  CHECK(row_error("\"" + half + "\"") == "expected an object, got \"" + half.substr(0, 58));
}

TEST_CASE("conversation: which rows are conversations") {
  const auto is = [](const std::string& row, const std::string& field = "") {
    return is_conversation(Json::parse(row), {.messages = field, .roles = {}});
  };
  CHECK(is(R"({"messages": []})"));
  CHECK(is(R"({"conversations": [{"from": "human"}]})"));
  CHECK(is(R"({"prompt": "a", "completion": "b"})"));
  CHECK(is(R"({"chat": []})", "chat"));
  CHECK(is(R"({"messages": "a"})"));  // conversation_of says what is wrong
  CHECK_FALSE(is(R"({"messages": []})", "chat"));
  CHECK_FALSE(is(R"({"prompt": "a", "response": "b"})"));
  CHECK_FALSE(is(R"({"text": "a"})"));
  CHECK_FALSE(is("[]"));
  CHECK_FALSE(is("null"));
}

TEST_CASE("conversation: names of roles") {
  for (const char* name : {"system", "user", "assistant", "tool"}) {
    REQUIRE(find_role(name));
    CHECK(name_of(*find_role(name)) == name);
  }
  CHECK_FALSE(find_role("human"));
  CHECK_FALSE(find_role(""));
}

TEST_CASE("conversation: the text of special tokens is found and marked") {
  const std::string mark(kMark);
  const FindSpecial ends = [](std::string_view text) {
    std::vector<Span> out;
    for (size_t at = text.find("<end>"); at != text.npos; at = text.find("<end>", at + 1)) {
      out.push_back({at, at + 5});
    }
    return out;
  };
  const std::string row =
      R"({"messages": [{"role": "user", "content": "a<end>b<end>"}, {"role": "tool", "content": "c"},
          {"role": "assistant", "content": null, "tool_calls": [{"f": ["<end>", 1]}]}]})";
  Conversation found = conversation_in(row);
  const std::string before = messages_of(found);
  find_special(ends, false, kPlace, found);
  CHECK(found.special == std::vector<bool>{true, false, true});
  CHECK(messages_of(found) == before);
  Conversation marked = conversation_in(row);
  find_special(ends, true, kPlace, marked);
  CHECK(marked.special == found.special);
  CHECK(marked.messages[0]["content"].text() == "a<" + mark + "end>b<" + mark + "end>");
  CHECK(marked.messages[2]["tool_calls"][0]["f"][0].text() == "<" + mark + "end>");
  CHECK(without_marks(marked.messages[0]["content"].text()) == "a<end>b<end>");
  CHECK(without_marks(mark + mark + "a" + mark) == "a");
  CHECK(without_marks("").empty());
  Conversation odd =
      conversation_in(R"({"messages": [{"role": "user", "content": "<end>)" + mark + R"("}]})");
  CHECK(test::error_of([&] { find_special(ends, true, kPlace, odd); }) ==
        "a.jsonl:7: a message with U+FDD0: data.special_in_content: as_text needs that character");
}

}  // namespace fsdp::data
