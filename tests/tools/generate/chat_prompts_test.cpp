// Conversations as prompts of a model: the template's text up to the reply, and its ids.
#include "tools/generate/chat_prompts.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// A model's folder with a template that writes "[role:content]", and "[assistant:" to be answered.
struct ChatModel {
  test::TempFolder folder;
  data::ByteTokenizer bytes;
  ModelSource source{folder.path(), ""};

  ChatModel() {
    folder.write("chat_template.jinja",
                 "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}{{ mood }}"
                 "{% if add_generation_prompt %}[assistant:{% endif %}");
  }
  ChatPrompter prompter(const ChatPromptOptions& options = {}) const {
    return ChatPrompter(options, source, "bytes", bytes);
  }
  std::string error(const ChatPromptOptions& options) const {
    return test::error_of([&] { prompter(options); });
  }
  std::filesystem::path rows(const std::string& text) const {
    return folder.write("p.jsonl", text);
  }
  std::vector<std::string> texts_in(const std::string& text,
                                    const ChatPromptOptions& options = {}) const {
    std::vector<std::string> out;
    for (const data::Prompt& prompt : prompter(options).prompts_in(rows(text))) {
      out.push_back(prompt.text);
    }
    return out;
  }
  // The error of rows, without the file's name.
  std::string row_error(const std::string& text) const {
    const std::string file = rows(text).string();
    const std::string out = test::error_of([&] { prompter().prompts_in(file); });
    REQUIRE(out.starts_with(file));
    return out.substr(file.size());
  }
};

using ChatTexts = std::vector<std::string>;

TEST_CASE_FIXTURE(ChatModel, "chat prompts: a conversation that is typed") {
  const ChatPrompter prompter = this->prompter({.system = "S"});
  data::Conversation talk = prompter.begin();
  CHECK(talk.roles == std::vector<data::Role>{data::Role::kSystem});
  say(talk, data::Role::kUser, "a \"b\"");
  data::Prompt prompt = prompter.prompt_of(talk, "--prompt");
  CHECK(prompt.text == "[system:S][user:a \"b\"][assistant:");
  CHECK(prompt.where == "--prompt");
  CHECK(prompt.ids == bytes.encode(prompt.text));
  say(talk, data::Role::kAssistant, "c");
  say(talk, data::Role::kUser, "d");
  CHECK(prompter.prompt_of(talk, "--prompt").text ==
        "[system:S][user:a \"b\"][assistant:c][user:d][assistant:");
  CHECK(talk.messages.size() == 4);
  CHECK(talk.trained.size() == 4);
  CHECK(this->prompter().begin().messages.empty());
}

TEST_CASE_FIXTURE(ChatModel, "chat prompts: the template writes begin and end tokens itself") {
  const std::string name = test::fixture_path("tokenizers/mistral_v03").string();
  const auto mistral = data::make_tokenizer(name);
  const ChatPrompter prompter({.chat_template = folder
                                                    .write("t.jinja",
                                                           "<s>[INST] {{ messages[0]"
                                                           ".content }} [/INST]")
                                                    .string()},
                              source, name, *mistral);
  data::Conversation talk = prompter.begin();
  say(talk, data::Role::kUser, "a");
  const std::vector<int32_t> ids = *prompter.prompt_of(talk, "row").ids;
  CHECK(ids.front() == 1);
  CHECK(std::count(ids.begin(), ids.end(), 1) == 1);
  CHECK(ids.back() == 4);
}

TEST_CASE_FIXTURE(ChatModel, "chat prompts: rows of a file, without the reply at their end") {
  const std::string rows =
      "\xef\xbb\xbf"
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
      "\n\n"
      R"({"conversations": [{"from": "human", "value": "c"}, {"from": "gpt", "value": "d"},)"
      R"( {"from": "human", "value": "e"}]})"
      "\n"
      R"({"prompt": [{"role": "system", "content": "T"}, {"role": "user", "content": "f"}],)"
      R"( "completion": [{"role": "assistant", "content": "g"}, {"role": "assistant", "content": "h"}],)"
      R"( "chat_template_kwargs": {"mood": "!"}})"
      "\n";
  CHECK(texts_in(rows) ==
        ChatTexts{"[user:a][assistant:", "[user:c][assistant:d][user:e][assistant:",
                  "[system:T][user:f]![assistant:"});
  // A row's own system comes first.
  CHECK(texts_in(rows, {.system = "S", .kwargs = R"({"mood": "?"})"}) ==
        ChatTexts{
            "[system:S][user:a]?[assistant:", "[system:S][user:c][assistant:d][user:e]?[assistant:",
            "[system:T][user:f]![assistant:"});
  const std::vector<data::Prompt> prompts = prompter().prompts_in(this->rows(rows));
  CHECK(prompts[0].where == (folder / "p.jsonl").string() + ":1");
  CHECK(prompts[1].where == (folder / "p.jsonl").string() + ":3");
  CHECK(prompts[1].ids == bytes.encode(prompts[1].text));
  CHECK(texts_in(R"([{"messages": [{"role": "tool", "content": "a"}]}])") ==
        ChatTexts{"[tool:a][assistant:"});
}

TEST_CASE_FIXTURE(ChatModel, "chat prompts: what is wrong with rows") {
  const std::string good = R"({"messages": [{"role": "user", "content": "a"}]})";
  CHECK(row_error(good + "\n" + R"({"messages": [{"role": "usr", "content": "a"}]})") ==
        ":2: messages[0].role: expected system, user, assistant or tool, got \"usr\"; did you mean "
        "\"user\"?");
  CHECK(row_error(R"({"prompt": "a", "completion": "b"})") ==
        ":1: expected messages, got prompt and completion as texts");
  CHECK(row_error(R"({"messages": [{"role": "assistant", "content": "a"}]})") ==
        ":1: nothing to answer: all messages are the assistant's");
  CHECK(row_error("{\"messages\": [").starts_with(":1: malformed JSON: "));
  CHECK(row_error("\n") == ": no conversations");
  folder.write("chat_template.jinja",
               "{% if messages | length > 1 %}{{ raise_exception('too long') }}{% endif %}");
  CHECK(
      row_error(
          R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "user", "content": "b"}]})") ==
      ":1: the template " + (folder / "chat_template.jinja").string() + " says: too long");
  CHECK(row_error(good) == ":1: the chat template writes no text");
}

TEST_CASE_FIXTURE(ChatModel, "chat prompts: which template, its variables and its date") {
  data::Conversation talk;
  say(talk, data::Role::kUser, "a");
  const auto text = [&](const ChatPromptOptions& options) {
    return prompter(options).prompt_of(talk, "row").text;
  };
  CHECK(text({}) == "[user:a][assistant:");
  CHECK(text({.kwargs = R"({"mood": "!"})"}) == "[user:a]![assistant:");
  CHECK(text({.chat_template = "chatml"}) ==
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n");
  const std::string dated = folder.write("t.jinja", "{{ strftime_now('%d %b %Y') }}").string();
  CHECK(text({.chat_template = dated, .date = "2026-01-31"}) == "31 Jan 2026");
  CHECK(text({.chat_template = dated}).size() == 11);  // today
  CHECK(error({.chat_template = dated, .date = "31.1.2026"}) ==
        "--chat-date: expected a date such as 2026-01-31, got \"31.1.2026\"");
  CHECK(error({.kwargs = "[1]"}) == "--chat-template-kwargs: expected {\"name\": value}");
  CHECK(test::contains(error({.kwargs = "{mood: 1}"}), "--chat-template-kwargs"));
  CHECK(error({.kwargs = "{}"}) == "");
  std::filesystem::remove(folder / "chat_template.jinja");
  CHECK(error({}) == folder.path().string() +
                         ": no chat template: --chat-template names one (chatml, llama3, zephyr, "
                         "vicuna, or a file)");
}

TEST_CASE_FIXTURE(ChatModel, "chat prompts: the template of an adapter, and of a tokenizer") {
  data::Conversation talk;
  say(talk, data::Role::kUser, "a");
  const test::TempFolder adapter, other;
  const auto text = [&](const std::string& name) {
    return ChatPrompter({}, source, name, bytes).prompt_of(talk, "row").text;
  };
  source.adapter = adapter.path();
  CHECK(text("bytes") == "[user:a][assistant:");  // the adapter has none
  adapter.write("chat_template.jinja", "adapter");
  CHECK(text("bytes") == "adapter");
  CHECK(text("") == "adapter");  // neither has a tokenizer: bytes
  other.write("tokenizer.json", "{}");
  other.write("chat_template.jinja", "tokenizer");
  CHECK(text(other.path().string()) == "tokenizer");
  CHECK(text((other / "tokenizer.json").string()) == "tokenizer");
}

}  // namespace
}  // namespace fsdp::tools
