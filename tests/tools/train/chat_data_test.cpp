// The keys of conversations in a configuration, the notes on rows, and validation by role. Not
// here: remarks of a run (train_data_report_test.cpp).
#include "tools/train/chat_data.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

using Strings = std::vector<std::string>;

std::string tokenizer_fixture(const char* name) {
  return test::fixture_path(std::string("tokenizers/") + name).string();
}

config::TrainConfig chat_config(const char* tokenizer) {
  config::TrainConfig config;
  config.data.format = data::TextFormat::kMessages;
  config.data.tokenizer = tokenizer_fixture(tokenizer);
  config.data.chat.chat_template = "chatml";
  return config;
}

TEST_CASE("chat data: the fields of rows, and the choices of a template") {
  config::TrainConfig config;
  CHECK(conversation_fields(config.data).messages.empty());
  CHECK(conversation_fields(config.data).roles.empty());
  config.data.chat.messages_field = "talk";
  config.data.chat.roles.value["bot"] = "assistant";
  config.data.chat.roles.value["root"] = "system";
  const data::ConversationFields fields = conversation_fields(config.data);
  CHECK(fields.messages == "talk");
  CHECK(fields.roles ==
        std::map<std::string, std::string>{{"bot", "assistant"}, {"root", "system"}});

  config.data.chat.chat_template = "t.jinja";
  config.data.chat.template_kwargs.value["mood"] = 1;
  config.data.chat.date = "2026-01-31";
  config.model.path = "model";
  config.data.tokenizer = "bytes";
  data::ChatChoices choices = chat_choices(config);
  CHECK(choices.chat_template == "t.jinja");
  CHECK(choices.kwargs.dump() == R"({"mood":1})");
  CHECK(choices.date == "2026-01-31");
  CHECK(choices.folder == "model");
  config.data.tokenizer = tokenizer_fixture("qwen2");
  CHECK(chat_choices(config).folder == tokenizer_fixture("qwen2"));
  config.data.tokenizer += "/tokenizer.json";
  CHECK(chat_choices(config).folder == tokenizer_fixture("qwen2"));
  config.data.tokenizer.clear();  // the model's
  config.model.path = tokenizer_fixture("llama3");
  CHECK(chat_choices(config).folder == tokenizer_fixture("llama3"));
}

TEST_CASE("chat data: rows are read by the template and the tokenizer") {
  config::TrainConfig config = chat_config("qwen2");
  const auto tokenizer = data::make_tokenizer(config.data.tokenizer);
  config.data.chat.messages_field = "talk";
  config.data.chat.special_in_content = data::SpecialInContent::kAsText;
  const auto rows = chat_rows(config, *tokenizer);
  CHECK(rows->fields.messages == "talk");
  CHECK(rows->special == data::SpecialInContent::kAsText);
  CHECK(rows->special_in("a<|im_end|>") == std::vector<data::Span>{{1, 11}});
  REQUIRE(rows->format);
  const data::Conversation given = data::conversation_of(
      Json::parse(R"({"messages": [{"role": "user", "content": "a"}]})"), "row", {});
  CHECK(rows->format->text_of(given, "row").text == "<|im_start|>user\na<|im_end|>\n");
  config.data.chat.chat_template.clear();
  CHECK_FALSE(chat_rows(config, *tokenizer)->format);  // the folder has none
  config.data.chat.chat_template = "chatlm";
  CHECK(test::error_of([&] { chat_rows(config, *tokenizer); }) ==
        "data.chat_template: expected chatml, llama3, zephyr, vicuna, or a file, got \"chatlm\"; "
        "did you mean \"chatml\"?");
  const test::TempFolder folder;
  config.data.chat.chat_template = folder.write("t.jinja", "a\n{% call %}").string();
  CHECK(test::error_of([&] { chat_rows(config, *tokenizer); }) ==
        config.data.chat.chat_template + ":2:1: {% call %} is not known");
  config.data.chat.chat_template =
      folder.write("u.jinja", "{{ mood }} {{ strftime_now('%d %b') }}");
  config.data.chat.template_kwargs.value["mood"] = "!";
  // Every start of a run has the same tokens.
  CHECK(
      test::error_of([&] {
        chat_rows(config, *tokenizer);
      }).starts_with("data.chat_date: the chat template may write the date: expected one, such "));
  config.data.chat.date = "2026-01-31";
  CHECK(chat_rows(config, *tokenizer)->format->text_of(given, "row").text == "! 31 Jan");
}

TEST_CASE(
    "chat data: ids that end a turn, by the model, the tokenizer's folder and the tokenizer") {
  const test::TempFolder model;
  using Ids = std::vector<int32_t>;
  config::TrainConfig config = chat_config("qwen2");
  const auto qwen = data::make_tokenizer(config.data.tokenizer);
  REQUIRE(qwen->end_of_text() == 1200);
  CHECK(end_tokens_of(config, *qwen) == Ids{1200});
  config.model.path = model.path().string();
  model.write("config.json", R"({"eos_token_id": [1202, 7]})");
  CHECK(end_tokens_of(config, *qwen) == Ids{7, 1202, 1200});
  model.write("generation_config.json", R"({"eos_token_id": 1200})");
  CHECK(end_tokens_of(config, *qwen) == Ids{7, 1200, 1202});  // once
  const test::TempFolder own;
  own.write("tokenizer.json", "{}");  // the name alone counts here
  own.write("generation_config.json", R"({"eos_token_id": 3})");
  config.data.tokenizer = own.path().string();
  CHECK(end_tokens_of(config, *qwen) == Ids{3, 7, 1200, 1202});
  config.model.path.clear();
  config.data.tokenizer = "bytes";
  CHECK(end_tokens_of(config, data::ByteTokenizer()) == Ids{256});
}

TEST_CASE("chat data: what surprises about a template and its tokenizer") {
  const auto notes = [](const char* tokenizer, const std::string& chat_template) {
    config::TrainConfig config = chat_config(tokenizer);
    config.data.chat.chat_template = chat_template;
    return notes_on_template(config, *data::make_tokenizer(config.data.tokenizer));
  };
  CHECK(notes("qwen2", "chatml").empty());
  const std::string name = tokenizer_fixture("mistral_v03") + "/tokenizer.json";
  CHECK(notes("mistral_v03", "chatml") ==
        Strings{"the chat template writes <|im_start|>, <|im_end|>, which " + name +
                    " splits into several tokens",
                "the tokenizer puts \"<s>\" around a text: not around a conversation, where the "
                "chat template writes what it wants"});
  CHECK(notes("mistral_v03", "vicuna").size() == 1);
  const test::TempFolder folder;
  const Strings one = notes("qwen2", folder.write("t.jinja", "<|turn|>{{ 1 }}<|im_end|>").string());
  CHECK(one == Strings{"the chat template writes <|turn|>, which " + tokenizer_fixture("qwen2") +
                       "/tokenizer.json splits into several tokens"});
  CHECK(notes("metaspace_split", "vicuna") ==
        Strings{"the tokenizer puts \"<s></s>\" around a text: not around a conversation, where "
                "the chat template writes what it wants"});
}

// A file of conversations, a line each: "user: a | assistant: b". A role with - is not trained.
std::string chats_of(const std::vector<std::vector<std::pair<std::string, std::string>>>& rows) {
  std::string out;
  for (const auto& messages : rows) {
    Json row = Json::object();
    row["messages"] = Json::array();
    for (const auto& [said, content] : messages) {
      const bool off = said.ends_with("-");
      Json message = Json::object();
      message["role"] = off ? said.substr(0, said.size() - 1) : said;
      message["content"] = content;
      if (off) message["train"] = false;
      row["messages"].push_back(message);
    }
    out += row.dump() + "\n";
  }
  return out;
}

TEST_CASE("chat data: what surprises about turns, with the first row of each") {
  const test::TempFolder folder;
  config::TrainConfig config = chat_config("qwen2");
  const auto tokenizer = data::make_tokenizer(config.data.tokenizer);
  // Without the thinking, and without an end of what ends with "...".
  config.data.chat.chat_template =
      folder
          .write("t.jinja",
                 "{% for m in messages %}{{ m.content.split('</think>')[-1] }}"
                 "{% if not m.content.endswith('...') %}<|im_end|>{% endif %}\n{% endfor %}")
          .string();
  const auto notes = [&](const std::string& rows, std::vector<int32_t> ends = {1202}) {
    const data::TokenSource source = {
        .files = {folder.write("a.jsonl", rows)},
        .text = {.format = data::TextFormat::kMessages, .chat = chat_rows(config, *tokenizer)},
        .form = data::RowForm::kTurns,
        .end_tokens = std::move(ends)};
    const auto file = folder / "cache";
    data::make_token_cache(file, source, *tokenizer);
    return notes_on_turns(data::TokenCache(file, *tokenizer), config.data.chat.special_in_content);
  };
  const std::string good = chats_of({{{"user", "a"}, {"assistant", "b"}}});
  CHECK(notes(good).empty());
  CHECK(notes(good, {1200}) ==
        Strings{"1 turn (the first in row 1) without an end token of the model: it does not learn "
                "to stop there"});
  const std::string odd =
      chats_of({{{"user", "a"}, {"assistant-", "so</think>b..."}},
                {{"user", "so</think>a..."}, {"assistant", "b..."}, {"assistant", "c..."}},
                {{"user", "<|im_end|> a <|im_start|>"}, {"assistant", "so</think>b"}},
                {{"system", "<|im_end|>"}, {"user", "<|im_end|>"}, {"assistant", "so</think>b"}}});
  CHECK(notes(good + odd) ==
        Strings{"2 turns (the first in row 3) without an end token of the model: it does not learn "
                "to stop there",
                "the chat template does not write all of 2 turns (the first in row 4), as of "
                "thinking that it drops",
                "2 rows (the first in row 4) with a special token's text in a message, which "
                "becomes the token; data.special_in_content: as_text keeps it a text"});
  config.data.chat.special_in_content = data::SpecialInContent::kAsText;
  CHECK(notes(odd).back() ==
        "2 rows (the first in row 3) with a special token's text in a message, which stays a text "
        "(data.special_in_content)");
}

// Rows of bytes: every message is its content and ".".
struct ByteChats {
  test::TempFolder folder;
  config::TrainConfig config;

  ByteChats() {
    config.data.format = data::TextFormat::kMessages;
    config.data.tokenizer = "bytes";
    config.data.chat.chat_template =
        folder.write("t.jinja", "{% for m in messages %}{{ m.content }}.{% endfor %}").string();
    config.data.train = {folder
                             .write("t.jsonl", chats_of({{{"user", "ab"}, {"assistant", "cd"}},
                                                         {{"user", "a"}, {"assistant", "b"}}}))
                             .string()};
    config.data.cache_dir = (folder / "cache").string();
    config.data.sequence_length = 8;
    config.train.batch = 2;
  }
  void validate(const std::string& rows) {
    config.data.validation = {folder.write("v.jsonl", rows).string()};
  }
};

TEST_CASE_FIXTURE(ByteChats, "train data: the roles of the validation data, and their labels") {
  const std::string rows =
      chats_of({{{"system", "s"}, {"user", "abc"}, {"assistant", "de"}},
                {{"user", "f"}, {"assistant-", "g"}},
                {{"user", "h"}, {"assistant", "i"}, {"user", "kl"}, {"assistant", "m"}}});
  validate(rows);
  using data::Role;
  for (const int ranks : {1, 2}) {
    std::map<Role, int64_t> trained;
    std::mutex mutex;
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      CHECK(data.validation_roles() ==
            std::vector<Role>{Role::kSystem, Role::kUser, Role::kAssistant});
      for (const Role role : data.validation_roles()) {
        const BatchSource batches = data.validation_of(role, {.shifted_labels = false});
        CHECK(batches.batches == 2);
        CHECK(batches.sequences == 3);
        for (int64_t i = 0; i < batches.batches; ++i) {
          const Batch batch = batches.get(i);
          const std::lock_guard lock(mutex);
          if (world.rank() == 0) trained[role] += batch.global_label_tokens;
        }
      }
    });
    CHECK(trained[Role::kSystem] == 2);
    CHECK(trained[Role::kUser] == 4 + 2 + (2 + 3));
    // Cut in the first and the last row; the second is what no run trains.
    CHECK(trained[Role::kAssistant] == 2 + 2 + (2 + 1));
  }
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    const Batch users = data.validation_of(Role::kUser, {.shifted_labels = false}).get(0);
    const Batch all = data.validation({.shifted_labels = false}).get(0);
    CHECK(users.tokens == all.tokens);
    std::string first;
    REQUIRE(users.length == 8);
    for (int64_t t = 0; t < 8; ++t) {
      const int32_t label = users.targets[static_cast<size_t>(t)];
      first += label < 0 ? ' ' : static_cast<char>(label);
    }
    CHECK(first == "  abc.  ");
    // With the evaluation's own number of batches.
    config.train.eval_batches = 1;
    const TrainData few(world, config);
    CHECK(few.validation_of(Role::kUser, {}).batches == 1);
    CHECK(few.validation_of(Role::kUser, {}).sequences == 2);
    // The labels of a role do not depend on data.train_on.
    config.data.chat.train_on = data::TrainOn::kAll;
    const TrainData every(world, config);
    CHECK(
        every.validation_of(Role::kSystem, {.shifted_labels = false}).get(0).global_label_tokens ==
        2);
  });
}

TEST_CASE_FIXTURE(ByteChats, "train data: no roles where there is no validation file of chats") {
  const auto roles = [&] {
    std::vector<data::Role> out;
    comm::run_local_ranks(
        1, [&](comm::Communicator& world) { out = TrainData(world, config).validation_roles(); });
    return out;
  };
  using data::Role;
  CHECK(roles().empty());
  config.data.validation = {"50%"};
  CHECK(roles().empty());
  validate(chats_of({{{"tool", "a"}, {"user", "b"}}}));
  CHECK(roles() == std::vector<Role>{Role::kUser, Role::kTool});
  // The template writes nothing for a tool: there is no turn to look at.
  folder.write("t.jinja",
               "{% for m in messages if m.role != 'tool' %}{{ m.content }}.{% endfor %}");
  CHECK(roles() == std::vector<Role>{Role::kUser});
  config.data.format = data::TextFormat::kText;
  CHECK(roles().empty());
}

}  // namespace
}  // namespace fsdp::tools
