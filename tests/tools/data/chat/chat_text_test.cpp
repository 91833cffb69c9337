// Conversations as texts: turns, what inference is given before them, errors and identities.
#include "tools/data/chat/chat_text.h"

#include <set>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

const std::string kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

ChatFormatOptions options_for(const std::string& source) {
  return {.source = source, .name = "t", .date = std::nullopt};
}

// With a message of every role and of content "a", "b", ...
Conversation talk(const std::vector<std::string>& roles) {
  Json row = Json::object();
  row["messages"] = Json::array();
  for (const std::string& role : roles) {
    Json message = Json::object();
    message["role"] = role;
    message["content"] = std::string(1, static_cast<char>('a' + row["messages"].size() % 26));
    row["messages"].push_back(message);
  }
  return conversation_of(row, "row", {});
}

// "0user<user>a; 1assistant<assistant>b;": the number, role and text of each turn; behind the role
// # for a block, - for one that is not trained, / for one that leaves something out.
std::string turns_of(const ChatText& chat) {
  std::string out;
  for (const ChatTurn& turn : chat.turns) {
    out += fmt::format("{}{}{}{}{}{}{}", out.empty() ? "" : " ", turn.message, name_of(turn.role),
                       turn.is_block ? "#" : "", turn.trained ? "" : "-", turn.left_out ? "/" : "",
                       chat.text.substr(turn.bytes.begin, turn.bytes.end - turn.bytes.begin));
  }
  return out;
}

ChatText text_by(const std::string& source, const Conversation& given) {
  return ChatFormat(options_for(source)).text_of(given, "a.jsonl:7");
}

std::string text_error(const std::string& source, const Conversation& given) {
  return test::error_of([&] { text_by(source, given); });
}

// The texts that inference may be given before this turn.
std::set<std::string> starts_of(const ChatText& chat, size_t turn) {
  std::set<std::string> out;
  for (const TurnStart& start : chat.turns.at(turn).starts) {
    CHECK(start.shared <= chat.text.size());
    out.insert(chat.text.substr(0, start.shared) + start.rest);
  }
  return out;
}

}  // namespace

TEST_CASE("chat text: a turn is what the template wrote for its message") {
  const ChatText chat = text_by(kTurns, talk({"system", "user", "assistant", "tool", "assistant"}));
  CHECK(chat.text == "<system>a;<user>b;<assistant>c;<tool>d;<assistant>e;");
  CHECK(turns_of(chat) ==
        "0system<system>a; 1user<user>b; 2assistant<assistant>c; 3tool<tool>d; "
        "4assistant<assistant>e;");
  CHECK_FALSE(chat.is_plain);
  CHECK(chat.turns[1].starts.empty());
  CHECK(chat.turns[3].starts.empty());
}

TEST_CASE("chat text: a begin token in front of a turn is not the turn's") {
  ChatFormatOptions options = options_for(
      "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}{{ m.content }};"
      "{% endfor %}");
  options.special_tokens["bos_token"] = "<s>";
  const ChatText chat = ChatFormat(options).text_of(talk({"assistant", "user"}), "row");
  CHECK(chat.text == "<s>a;b;");
  CHECK(turns_of(chat) == "0assistanta; 1userb;");
  // A turn that is the begin token alone.
  options.source = "{% for m in messages %}{{ bos_token }}{% endfor %}";
  CHECK(turns_of(ChatFormat(options).text_of(talk({"user"}), "row")) == "0user");
}

TEST_CASE("chat text: messages that the template leaves out have a turn of no bytes") {
  const ChatText chat =
      text_by("{% for m in messages if m.role != 'user' %}{{ m.content }}{% endfor %}",
              talk({"user", "assistant", "user"}));
  CHECK(chat.text == "b");
  CHECK(chat.turns.size() == 3);
  for (const ChatTurn& turn : chat.turns) {
    CHECK((turn.bytes.end - turn.bytes.begin == 1) == (turn.message == 1));
  }
}

TEST_CASE("chat text: a turn that the template writes in pieces") {
  const ChatText chat = text_by(
      "{% for m in messages %}{{ m.content }}{% endfor %}|"
      "{% for m in messages %}{{ m.role[0] }}{% endfor %}",
      talk({"user", "assistant"}));
  CHECK(chat.text == "ab|ua");
  CHECK(turns_of(chat) == "0usera 1assistantb 0useru 1assistanta");
}

TEST_CASE("chat text: thinking that the template leaves out") {
  Conversation given = talk({"user", "assistant"});
  given.messages[1]["content"] = " yes\n";
  CHECK(turns_of(text_by("{% for m in messages %}{{ m.content | trim }};{% endfor %}", given)) ==
        "0usera; 1assistantyes;");
  given.messages[1]["content"] = "<think>so</think>yes";
  CHECK(turns_of(text_by(
            "{% for m in messages %}{{ m.content.split('</think>')[-1] }};{% endfor %}", given)) ==
        "0usera; 1assistant/yes;");
  given.messages[1]["content"] = "yes";
  given.messages[1]["reasoning_content"] = "so";
  CHECK(turns_of(text_by(kTurns, given)) == "0user<user>a; 1assistant/<assistant>yes;");
}

TEST_CASE("chat text: generation blocks are the assistant's turns") {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }};{% endgeneration %}{% else %}{{ m.content }};{% endif %}{% endfor %}";
  Conversation given = talk({"user", "assistant", "user", "assistant"});
  given.trained[3] = false;
  const ChatText chat = text_by(source, given);
  CHECK(turns_of(chat) == "0user<user>a; 1assistant#b; 2user<user>c; 3assistant#-d;");
  for (const ChatTurn& turn : chat.turns) CHECK(turn.starts.empty());
  // Outside of messages: nobody has switched it off.
  CHECK(turns_of(text_by("{% generation %}x{% endgeneration %}", talk({"user"}))) ==
        "1assistant#x 0user");
}

TEST_CASE("chat text: messages that are not trained") {
  Conversation given = talk({"user", "assistant", "assistant"});
  given.trained = {true, false, true};
  CHECK(turns_of(text_by(kTurns, given)) ==
        "0user<user>a; 1assistant-<assistant>b; 2assistant<assistant>c;");
}

TEST_CASE("chat text: what inference is given before a turn") {
  const ChatText chat = text_by(kTurns, talk({"user", "assistant", "user", "assistant"}));
  CHECK(starts_of(chat, 1) == std::set<std::string>{"<user>a;<assistant>"});
  CHECK(starts_of(chat, 3) == std::set<std::string>{"<user>a;<assistant>b;<user>c;<assistant>"});
  // Equal ones are asked once.
  CHECK(chat.turns[1].starts.size() == 1);
}

TEST_CASE("chat text: a prompt with an empty thought, in a template that drops earlier thoughts") {
  const std::string source =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}[]"
      "{% endif %}{{ m.content }};{% endfor %}{% if add_generation_prompt %}<assistant>[]{% endif "
      "%}";
  const ChatText chat = text_by(source, talk({"user", "assistant", "user", "assistant"}));
  CHECK(chat.text == "<user>a;<assistant>b;<user>c;<assistant>[]d;");
  CHECK(starts_of(chat, 1) == std::set<std::string>{"<user>a;<assistant>[]"});
  CHECK(starts_of(chat, 3) == std::set<std::string>{"<user>a;<assistant>b;<user>c;<assistant>[]"});
}

TEST_CASE("chat text: a conversation that may not end before its answer still has a start") {
  const std::string source =
      "{% if messages|length == 2 and add_generation_prompt %}{{ raise_exception('no') }}{% endif "
      "%}" +
      kTurns;
  const ChatText chat = text_by(source, talk({"user", "user", "assistant"}));
  CHECK(starts_of(chat, 2) == std::set<std::string>{"<user>a;<user>b;<assistant>"});
  // Nor does the template render what it is asked for to find the prompt.
  const std::string strict =
      "{% if messages|length < 3 %}{{ raise_exception('no') }}{% endif %}" + kTurns;
  CHECK(text_by(strict, talk({"user", "user", "assistant"})).turns[2].starts.empty());
}

TEST_CASE("chat text: kwargs, documents and special tokens") {
  ChatFormatOptions options =
      options_for("{{ a }}{{ b }}{{ bos_token }}{{ documents }}{{ tools }}");
  options.kwargs = Json::parse(R"({"a": 1, "b": 2})");
  options.special_tokens["bos_token"] = "<s>";
  const ChatFormat format(options);
  Conversation given = talk({"user"});
  CHECK(format.text_of(given, "row").text == "12<s>NoneNone");
  given.kwargs = Json::parse(R"({"b": 3, "bos_token": "<t>"})");
  given.documents = Json::parse(R"([{"d": 1}])");
  CHECK(format.text_of(given, "row").text == "13<t>[{'d': 1}]None");
  given.kwargs = Json::parse("[1]");
  CHECK(test::error_of([&] { format.text_of(given, "row"); }) ==
        "row: chat_template_kwargs: expected an object");
}

TEST_CASE("chat text: another template where a row has tools") {
  ChatFormatOptions options = options_for(kTurns);
  options.tool_source =
      "tools:{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  const ChatFormat format(options);
  Conversation given = talk({"user", "assistant"});
  CHECK(format.text_of(given, "row").text == "<user>a;<assistant>b;");
  given.tools = Json::array();  // is not None
  const ChatText chat = format.text_of(given, "row");
  CHECK(chat.text == "tools:[user]a[assistant]b");
  CHECK(starts_of(chat, 1) == std::set<std::string>{"tools:[user]a[assistant]"});
  options.tool_source = "{{ messages[9].role }}";
  CHECK(test::error_of([&] {
          ChatFormat(options).text_of(given, "row");
        }).starts_with("row: t (tool_use):1:"));
  options.tool_source = "{% if %}";
  CHECK(test::error_of([&] { ChatFormat{options}; }).starts_with("t (tool_use):1:"));
}

TEST_CASE("chat text: the prompt of a conversation") {
  const ChatFormat format(options_for(kTurns));
  CHECK(format.prompt_of(talk({"system", "user"}), "row") == "<system>a;<user>b;<assistant>");
  CHECK(test::error_of([&] {
          ChatFormat(options_for("{{ raise_exception('no') }}")).prompt_of(talk({"user"}), "row");
        }) == "row: the template t says: no");
}

TEST_CASE("chat text: errors name the row and the place in the template") {
  CHECK(text_error("{{ raise_exception('roles must alternate') }}", talk({"user"})) ==
        "a.jsonl:7: the template t says: roles must alternate");
  Conversation given = talk({"user", "assistant"});
  given.messages[1]["content"] = nullptr;
  CHECK(text_error("{% for m in messages %}\n{{ 'x' + m.content }}{% endfor %}", given) ==
        "a.jsonl:7: t:2:8: can only concatenate str (not \"NoneType\") to str");
  given.messages[1].erase("content");
  CHECK(text_error("{% for m in messages %}{{ 'x' + m.content }}{% endfor %}", given) ==
        "a.jsonl:7: t:1:31: 'dict object' has no attribute 'content'");
  CHECK(test::error_of([] { ChatFormat{options_for("{% call %}")}; }) ==
        "t:1:1: {% call %} is not known");
}

TEST_CASE("chat text: a conversation of too many messages") {
  const std::vector<std::string> most(ChatFormat::kMostMessages, "user");
  CHECK(text_error(kTurns, talk(most)).empty());
  std::vector<std::string> more = most;
  more.push_back("user");
  CHECK(text_error(kTurns, talk(more)) ==
        "a.jsonl:7: expected at most 2000 messages in a conversation, got 2001");
}

TEST_CASE("chat text: each option changes the identity") {
  ChatFormatOptions options = options_for("a");
  options.date.emplace();
  std::set<std::string> seen;
  const auto is_new = [&](const ChatFormatOptions& of) {
    const std::string identity = ChatFormat(of).identity();
    CHECK(identity == ChatFormat(of).identity());
    return seen.insert(identity).second;
  };
  CHECK(is_new(options));
  CHECK_FALSE(is_new(options));
  options.name = "another name";
  CHECK_FALSE(is_new(options));
  options.source = "b";
  CHECK(is_new(options));
  options.tool_source = "c";
  CHECK(is_new(options));
  options.special_tokens["bos_token"] = "<s>";
  CHECK(is_new(options));
  options.kwargs["a"] = 1;
  CHECK(is_new(options));
  for (int std::tm::*const part : {&std::tm::tm_year, &std::tm::tm_mon, &std::tm::tm_mday,
                                   &std::tm::tm_hour, &std::tm::tm_min, &std::tm::tm_sec}) {
    options.date.value().*part += 1;
    CHECK(is_new(options));
  }
  options.date.reset();
  CHECK(is_new(options));
  // Where one text ends and the next begins.
  CHECK(is_new({.source = "x\n", .name = "t", .tool_source = "y", .date = std::nullopt}));
  CHECK(is_new({.source = "x", .name = "t", .tool_source = "\ny", .date = std::nullopt}));
  CHECK(is_new({.source = "x\ny", .name = "t", .date = std::nullopt}));
  CHECK(is_new({.source = "x", .name = "t", .tool_source = "y\n", .date = std::nullopt}));
}

TEST_CASE("chat text: the date is strftime_now's") {
  ChatFormatOptions options = options_for("{{ strftime_now('%d %b %Y') }}");
  options.date.emplace();
  options.date->tm_year = 126;
  options.date->tm_mday = 31;
  CHECK(ChatFormat(options).text_of(talk({"user"}), "row").text == "31 Jan 2026");
}

TEST_CASE("chat text: a prompt and its completion are joined without a template") {
  const Conversation given =
      conversation_of(Json::parse(R"({"prompt": "2+2=", "completion": "4"})"), "row", {});
  for (const ChatText& chat : {plain_text_of(given), text_by(kTurns, given)}) {
    CHECK(chat.is_plain);
    CHECK(chat.text == "2+2=4");
    CHECK(turns_of(chat) == "0user2+2= 1assistant4");
    CHECK(starts_of(chat, 1) == std::set<std::string>{"2+2="});
  }
}

}  // namespace fsdp::data
