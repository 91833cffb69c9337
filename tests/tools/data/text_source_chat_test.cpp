// Rows that are conversations, from files to texts. Rows of other kinds: text_source_test.cpp.
#include <set>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"
#include "tools/data/text_source.h"

namespace fsdp::data {
namespace {

using ChatTexts = std::vector<std::string>;

// The texts of a file's rows. Each row is found again by its place.
ChatTexts chats_in(const std::filesystem::path& file, const TextOptions& options) {
  const MappedFile mapped(file);
  ChatTexts out;
  for_each_document(file, options, [&](const Document& document) {
    CHECK(document_at(mapped, document.place, options).whole() == whole(document));
    out.push_back(whole(document));
  });
  return out;
}

// The error without the folder's name.
std::string chat_refusal(std::string_view name, std::string_view content,
                         const TextOptions& options) {
  const test::TempFolder folder;
  const auto file = folder.write(name, content);
  const std::string error = test::error_of([&] { chats_in(file, options); });
  const std::string prefix = folder.path().string() + "/";
  REQUIRE(error.starts_with(prefix));
  return error.substr(prefix.size());
}

// Rows as conversations, by a template that writes "<role>content;" for each message.
TextOptions chat_options(ChatRows rows = {}) {
  rows.format.emplace(ChatFormatOptions{
      .source = "{% for m in messages %}<{{ m.role }}>{{ m.content }};{% endfor %}",
      .name = "t",
      .date = std::nullopt});
  return {.format = TextFormat::kMessages,
          .chat = std::make_shared<const ChatRows>(std::move(rows))};
}

// "user:<user>a; assistant-:b": the role and the text of each turn; - for a prompt.
std::string turns_in(const ChatText& chat) {
  std::string out;
  for (const ChatTurn& turn : chat.turns) {
    out += fmt::format("{}{}{}:{}", out.empty() ? "" : " ", name_of(turn.role),
                       turn.is_prompt ? "-" : "",
                       chat.text.substr(turn.bytes.begin, turn.bytes.end - turn.bytes.begin));
  }
  return out;
}

TEST_CASE("rows that are conversations: messages, from and value, a prompt and its completion") {
  test::TempFolder folder;
  const std::string messages =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";
  const std::string shared =
      R"({"conversations": [{"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]})";
  const std::string pair = R"({"prompt": "e", "completion": " f"})";
  const std::string lists =
      R"({"completion": [{"role": "assistant", "content": "i"}], "prompt": )"
      R"([{"role": "user", "content": "g"}, {"role": "assistant", "content": "h"}]})";
  const ChatTexts texts{"<user>a;<assistant>b;", "<user>c;<assistant>d;", "e f",
                        "<user>g;<assistant>h;<assistant>i;"};
  const ChatTexts turns{"user:<user>a; assistant:<assistant>b;",
                        "user:<user>c; assistant:<assistant>d;", "user-:e assistant: f",
                        "user-:<user>g; assistant-:<assistant>h; assistant:<assistant>i;"};
  const TextOptions options = chat_options();
  const std::string array = "[" + messages + ",\n" + shared + "," + pair + ", " + lists + "]";
  for (const auto& file :
       {folder.write("a.json", array), folder.write("a.rows", array),
        folder.write("a.jsonl", messages + "\n" + shared + "\n\n" + pair + "\n" + lists)}) {
    const MappedFile mapped(file);
    ChatTexts found, found_turns;
    for_each_document(file, options, [&](const Document& document) {
      REQUIRE(document.chat);
      CHECK(document.text.empty());
      CHECK(document.chat->is_plain == (found.size() == 2));
      found.push_back(whole(document));
      found_turns.push_back(turns_in(*document.chat));
      const RowParts again = document_at(mapped, document.place, options);
      REQUIRE(again.chat);
      CHECK(again.whole() == whole(document));
      CHECK(turns_in(*again.chat) == turns_in(*document.chat));
    });
    CHECK(found == texts);
    CHECK(found_turns == turns);
  }
  CHECK(chats_in(folder.write("b.jsonl", R"({"talk": [{"role": "bot", "content": "a"}]})"),
                 chat_options({.fields = {.messages = "talk", .roles = {{"bot", "assistant"}}}})) ==
        ChatTexts{"<assistant>a;"});
}

TEST_CASE("a conversation where no template is known, and a pair of texts, which needs none") {
  TextOptions options = {.format = TextFormat::kMessages,
                         .chat = std::make_shared<const ChatRows>()};
  const std::string pair = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
  CHECK(chat_refusal("a.jsonl", pair + R"({"messages": [{"role": "user", "content": "a"}]})",
                     options) ==
        "a.jsonl:2: a conversation, but no chat template is known: the tokenizer's folder has "
        "none; data.chat_template names one (chatml, llama3, zephyr, vicuna, or a file)");
  test::TempFolder folder;
  CHECK(chats_in(folder.write("a.jsonl", pair), options) == ChatTexts{"ab"});
}

TEST_CASE("conversations that are malformed, or that the template refuses, can be skipped") {
  test::TempFolder folder;
  ChatRows rows = {.format = ChatFormat({.source = "{% for m in messages %}{{ m.content + ';' }}"
                                                   "{% if m.role == 'system' %}"
                                                   "{{ raise_exception('no system') }}{% endif %}"
                                                   "{% endfor %}",
                                         .name = "t.jinja",
                                         .date = std::nullopt})};
  TextOptions options = {.format = TextFormat::kMessages,
                         .chat = std::make_shared<const ChatRows>(std::move(rows))};
  const std::string content =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
      "{\"role\": \"assitant\", \"content\": \"b\"}]}\n"
      "{\"text\": \"a\"}\n"
      "{\"messages\": [{\"role\": \"system\", \"content\": \"a\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": null}]}\n"
      "{\"prompt\": \"c\", \"completion\": \"d\"}\n";
  CHECK(chat_refusal("a.jsonl", content, options) ==
        "a.jsonl:2: messages[1].role: expected system, user, assistant or tool, got "
        "\"assitant\"; did you mean \"assistant\"?");
  options.bad_rows = BadRows::kSkip;
  const std::string file = folder.write("a.jsonl", content).string();
  ChatTexts texts;
  const auto skipped =
      for_each_document(file, options, [&](const Document& d) { texts.push_back(whole(d)); });
  CHECK(texts == ChatTexts{"a;", "cd"});
  REQUIRE(skipped.size() == 4);
  CHECK(skipped[0] == SkippedRow{file, 2,
                                 "messages[1].role: expected system, user, assistant or tool, got "
                                 "\"assitant\"; did you mean \"assistant\"?"});
  CHECK(skipped[1] == SkippedRow{file, 3,
                                 "no field messages, conversations, or prompt and completion; "
                                 "data.messages_field names the list of messages"});
  CHECK(skipped[2] == SkippedRow{file, 4, "the template t.jinja says: no system"});
  CHECK(skipped[3].line == 5);
  CHECK(skipped[3].reason.starts_with("t.jinja:1:"));
}

TEST_CASE("a table of prompts and completions; its cells are texts, not lists of messages") {
  test::TempFolder folder;
  const TextOptions options = chat_options();
  CHECK(chats_in(folder.write("a.csv", "id,prompt,completion\n1,a,b\n2,\"c\n\",d\n"), options) ==
        ChatTexts{"ab", "c\nd"});
  CHECK(chats_in(folder.write("a.tsv", "completion\tprompt\nb\ta\n"), options) == ChatTexts{"ab"});
  CHECK(chat_refusal("b.csv", "messages\nHello\n", options) ==
        "b.csv:2: messages: expected a list of messages, got \"Hello\"");
}

TEST_CASE("the text of special tokens in messages is marked where it stays a text") {
  test::TempFolder folder;
  const auto file = folder.write(
      "a.jsonl",
      R"({"messages": [{"role": "user", "content": "a<e>"}, {"role": "user", "content": "b"}]})");
  const auto chat_of = [&](SpecialInContent special) {
    const FindSpecial special_in = [](std::string_view text) {
      const size_t at = text.find("<e>");
      return at == text.npos ? std::vector<Span>() : std::vector<Span>{{at, at + 3}};
    };
    const TextOptions asking = chat_options({.special_in = special_in, .special = special});
    ChatText out;
    for_each_document(file, asking, [&](const Document& document) {
      CHECK(whole(document) == "<user>a<e>;<user>b;");
      out = *document.chat;
    });
    return out;
  };
  const ChatText token = chat_of(SpecialInContent::kAsSpecial);
  CHECK(token.text == "<user>a<e>;<user>b;");
  CHECK_FALSE(token.marked);
  CHECK(token.turns[0].special);
  CHECK_FALSE(token.turns[1].special);
  const ChatText text = chat_of(SpecialInContent::kAsText);
  CHECK(text.text == "<user>a<" + std::string(kMark) + "e>;<user>b;");
  CHECK(text.marked);
  CHECK(text.turns[0].special);
}

TEST_CASE("the text of a special token cannot stay a text where the template looks at it") {
  ChatRows rows = {
      .special_in =
          [](std::string_view text) {
            const size_t at = text.find("<e>");
            return at == text.npos ? std::vector<Span>() : std::vector<Span>{{at, at + 3}};
          },
      .special = SpecialInContent::kAsText};
  TextOptions options = chat_options();
  rows.format.emplace(ChatFormatOptions{
      .source = "{% for m in messages %}{{ m.content.split('<e>')[-1] }};{% endfor %}",
      .name = "t",
      .date = std::nullopt});
  options.chat = std::make_shared<const ChatRows>(std::move(rows));
  const std::string good = R"({"messages": [{"role": "user", "content": "a"}]})";
  CHECK(chat_refusal("a.jsonl",
                     good + "\n" + R"({"messages": [{"role": "user", "content": "a<e>b"}]})",
                     options) ==
        "a.jsonl:2: data.special_in_content: as_text: the chat template changes the text of a "
        "special token in a message, or asks for it");
  // A character that marks elsewhere is a text like any other where nothing is marked.
  const test::TempFolder folder;
  const std::string odd = "a" + std::string(kMark) + "b";
  CHECK(chats_in(folder.write("b.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"" +
                                             odd + "\"}]}"),
                 chat_options()) == ChatTexts{"<user>" + odd + ";"});
}

TEST_CASE("whether a file begins with a conversation") {
  test::TempFolder folder;
  const auto begins = [&](const char* name, std::string_view content,
                          const ConversationFields& fields = {}) {
    return begins_with_conversation(folder.write(name, content), fields);
  };
  const std::string messages = R"({"messages": [{"role": "user", "content": "a"}]})";
  CHECK(begins("a.jsonl", messages + "\n{\"text\": \"a\"}"));
  CHECK(begins("a.JSON", "\xef\xbb\xbf\n[\n " + messages + "]"));
  CHECK(begins("a.json", "\n" + messages));
  CHECK(begins("a.ndjson", R"({"prompt": "a", "completion": "b"})"));
  CHECK(begins("a.jsonl", R"({"conversations": []})"));
  CHECK(begins("a.jsonl", R"({"talk": []})", {.messages = "talk"}));
  CHECK_FALSE(begins("a.jsonl", messages, {.messages = "talk"}));
  CHECK_FALSE(begins("a.jsonl", "{\"text\": \"a\"}\n" + messages));
  CHECK(begins("a.jsonl", R"({"messages": "a"})"));  // which is an error then
  CHECK_FALSE(begins("a.jsonl", R"({"messages": [], "text": "a"})"));
  CHECK_FALSE(begins_with_conversation(
      folder.write("a.jsonl", R"({"prompt": "a", "completion": "b"})"), {}, "completion"));
  CHECK_FALSE(begins("a.jsonl", R"({"messages": [)"));
  CHECK_FALSE(begins("a.jsonl", R"(["messages"])"));
  CHECK_FALSE(begins("a.jsonl", ""));
  CHECK_FALSE(begins("a.txt", messages));  // not by its ending
  CHECK_FALSE(begins("a.csv", "prompt,completion\na,b\n"));
  CHECK_FALSE(begins_with_conversation(folder / "none.jsonl", {}));
  CHECK_FALSE(begins_with_conversation(folder.path(), {}));
}

TEST_CASE("the identity of rows that are conversations changes with each part") {
  const ChatFormatOptions format = {.source = "a", .name = "t", .date = std::nullopt};
  ChatFormatOptions source = format, tools = format, special = format, kwargs = format,
                    date = format;
  source.source = "b";
  tools.tool_source = "a";
  special.special_tokens["bos_token"] = "<s>";
  kwargs.kwargs["mood"] = 1;
  date.date = std::tm{};
  ChatFormatOptions later = date;
  later.date->tm_mday = 2;
  std::set<std::string> seen;
  for (const ChatFormatOptions& each : {format, source, tools, special, kwargs, date, later}) {
    seen.insert(ChatRows{.format = ChatFormat(each)}.identity());
  }
  seen.insert(ChatRows{}.identity());
  seen.insert(ChatRows{.fields = {.messages = "m"}}.identity());
  seen.insert(ChatRows{.fields = {.roles = {{"bot", "user"}}}}.identity());
  seen.insert(ChatRows{.fields = {.roles = {{"bot", "tool"}}}}.identity());
  seen.insert(ChatRows{.special = SpecialInContent::kAsText}.identity());
  CHECK(seen.size() == 12);
  // The name of the template is for errors alone.
  ChatFormatOptions renamed = format;
  renamed.name = "u";
  CHECK(ChatRows{.format = ChatFormat(renamed)}.identity() ==
        ChatRows{.format = ChatFormat(format)}.identity());
}

}  // namespace
}  // namespace fsdp::data
