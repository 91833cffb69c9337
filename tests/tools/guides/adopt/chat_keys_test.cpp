// Keys of conversations: axolotl's, TRL's and LLaMA-Factory's, and which of these are left out.
#include "tools/guides/adopt/chat_keys.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"

namespace fsdp::adopt {
namespace {

using test::Adopted;

const std::string kAxolotl = "base_model: m\nlearning_rate: 0.001\n";
const std::string kFactory = "model_name_or_path: m\nstage: sft\nlearning_rate: 0.001\n";

Adopted axolotl(const std::string& yaml) {
  const test::TempFolder folder;
  return Adopted(adopt_axolotl(folder.write("a.yml", kAxolotl + yaml), {}));
}

// `set`: more keys of the one data set.
Adopted axolotl_set(const std::string& set, const std::string& rest = "") {
  return axolotl("datasets:\n  - {path: ./t.jsonl, type: chat_template" +
                 (set.empty() ? "" : ", " + set) + "}\n" + rest);
}

Adopted trl(const std::string& yaml) {
  const test::TempFolder folder;
  return Adopted(adopt_hugging_face(folder.write("a.yaml", yaml), {}));
}

// `info`: of the data set "talk".
Adopted factory(const std::string& yaml, const std::string& info = "") {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "data");
  const std::string entry = "{\"file_name\": \"t.json\", " + info + "}";
  if (!info.empty()) folder.write("data/dataset_info.json", "{\"talk\": " + entry + "}");
  return Adopted(
      adopt_llama_factory(folder.write("a.yaml", kFactory + "dataset: talk\n" + yaml), {}));
}

bool warns(const Adopted& adopted, const std::string& part) {
  for (const std::string& line : warnings_of(adopted.text)) {
    if (test::contains(line, part)) return true;
  }
  return false;
}

TEST_CASE("adopt hf: what TRL trains of conversations") {
  const auto chat = [](const std::string& yaml) { return trl(yaml).config.data.chat; };
  Adopted a = trl("assistant_only_loss: true\n");
  CHECK(a.config.data.is_chat());
  CHECK(a.config.data.chat.train_on == data::TrainOn::kAssistant);
  CHECK_FALSE(a.says("completion_only_loss is not set"));
  a = trl("assistant_only_loss: false\n");
  CHECK_FALSE(a.config.data.is_chat());  // the rows say it
  CHECK(a.config.data.chat.train_on == data::TrainOn::kAll);
  CHECK(a.says("--set data.train_on=assistant does it here"));
  CHECK(chat("max_length: 9\n").train_on == data::TrainOn::kAll);  // SFTConfig's default
  CHECK(chat("learning_rate: 1e-4\n").train_on == data::TrainOn::kAssistant);  // no SFTConfig
  a = trl("assistant_only_loss: false\ncompletion_only_loss: true\n");
  CHECK(a.config.data.chat.train_on == data::TrainOn::kAssistant);
  CHECK(a.config.data.objective == data::Objective::kSft);
  a = trl("assistant_only_loss: false\ncompletion_only_loss: false\n");
  CHECK(a.config.data.chat.train_on == data::TrainOn::kAll);
  CHECK(a.config.data.objective == data::Objective::kLm);
  a = trl("assistant_only_loss: true\ncompletion_only_loss: false\n");
  CHECK(a.says("of a prompt nothing; there its turns, too"));
}

TEST_CASE("adopt hf: TRL's template is a file, or a tokenizer's folder") {
  for (const char* file : {"a/chat.jinja", "chat.j2"}) {
    CHECK(trl("chat_template_path: " + std::string(file) + "\n").config.data.chat.chat_template ==
          file);
  }
  const Adopted folder = trl("chat_template_path: Qwen/Qwen3-4B\n");
  CHECK(folder.config.data.chat.chat_template.empty());
  CHECK(warns(folder, "chat_template_path: Qwen/Qwen3-4B (a.yaml:1) is left out: a tokenizer's"));
}

TEST_CASE("adopt axolotl: rows of messages") {
  const Adopted a = axolotl_set(
      "field_messages: talk, message_property_mappings: {role: from, content: value}, "
      "roles: {assistant: [gpt, bot], user: [human]}, roles_to_train: [bot], train_on_eos: turn",
      "chat_template: llama3\nchat_template_kwargs: {enable_thinking: false, note: \"a: b\"}\n");
  const config::DataSection& data = a.config.data;
  CHECK(data.train == std::vector<std::string>{"./t.jsonl"});
  CHECK(data.is_chat());
  CHECK(data.packing() == data::Pack::kExamples);
  CHECK(data.chat.messages_field == "talk");
  CHECK(data.chat.roles.value ==
        parse_json("{\"gpt\": \"assistant\", \"bot\": \"assistant\", \"human\": \"user\"}", ""));
  CHECK(data.chat.train_on == data::TrainOn::kAssistant);
  CHECK(data.chat.chat_template == "llama3");
  CHECK(data.chat.template_kwargs.value ==
        parse_json("{\"enable_thinking\": false, \"note\": \"a: b\"}", ""));
  CHECK(warnings_of(a.text).empty());
  CHECK(a.says("a row longer than data.sequence_length is cut"));
}

TEST_CASE("adopt axolotl: which turns are trained") {
  const auto train_on = [](const std::string& set, const std::string& rest = "") {
    return axolotl_set(set, rest).config.data.chat.train_on;
  };
  CHECK(train_on("") == data::TrainOn::kAssistant);
  CHECK(train_on("roles_to_train: [gpt]") == data::TrainOn::kAssistant);
  CHECK(train_on("roles_to_train: [user, assistant]") == data::TrainOn::kAll);
  CHECK(train_on("roles_to_train: [gpt]", "train_on_inputs: true\n") == data::TrainOn::kAll);
  CHECK(train_on("", "train_on_inputs: false\n") == data::TrainOn::kAssistant);
  for (const char* roles : {"[user]", "[]"}) {
    CAPTURE(roles);
    const Adopted a = axolotl_set("roles_to_train: " + std::string(roles));
    CHECK(warns(a, "is left out: data.train_on is assistant, last or all"));
  }
}

TEST_CASE("adopt axolotl: templates") {
  const auto chosen = [](const std::string& set, const std::string& rest = "") {
    return axolotl_set(set, rest).config.data.chat.chat_template;
  };
  CHECK(chosen("chat_template: chatml") == "chatml");
  CHECK(chosen("", "chat_template: jinja\nchat_template_jinja: a.jinja2\n") == "a.jinja2");
  CHECK(chosen("chat_template_jinja: b.jinja") == "b.jinja");
  Adopted a = axolotl_set("chat_template: chatml, chat_template_jinja: b.jinja");
  CHECK(a.says("no effect with datasets[0].chat_template: chatml"));
  a = axolotl_set("", "chat_template: tokenizer_default_fallback_chatml\n");
  CHECK(a.config.data.chat.chat_template.empty());
  CHECK(a.says("where it has none: --set data.chat_template=chatml"));
  CHECK(axolotl("datasets:\n  - {path: ./t.jsonl, type: sharegpt, conversation: chatml}\n")
            .config.data.chat.chat_template == "chatml");
  a = axolotl("chat_template: chatml\ndatasets:\n  - {path: ./t.jsonl, type: alpaca}\n");
  CHECK(a.config.data.chat.chat_template.empty());
  CHECK(a.says("chat_template: chatml (a.yml:3): no effect without chats"));
}

TEST_CASE("adopt axolotl: what cannot be said is left out with a warning, or refused") {
  const Adopted a = axolotl_set(
      "train_on_eos: all, message_field_training: learn, field_tools: functions, "
      "message_field_training_detail: d, drop_system_message: true, "
      "message_property_mappings: {reasoning_content: thought, name: name}",
      "chat_template: gemma\ndefault_system_message: S\nchat_template_kwargs: {a: {b: 1}, c: "
      "[2]}\n");
  for (const char* key :
       {"].train_on_eos: all (", "].message_field_training: learn (", "].field_tools: functions (",
        "].message_field_training_detail: d (", "].drop_system_message: true (",
        "].message_property_mappings.reasoning_content: thought (", "chat_template: gemma (",
        "default_system_message: S (", "chat_template_kwargs.a.b: 1 (",
        "chat_template_kwargs.c: 2 ("}) {
    CAPTURE(key);
    CHECK(warns(a, key));
  }
  CHECK(warnings_of(a.text).size() == 10);
  CHECK(a.says("chat_template: gemma (a.yml:5): left out: the model's own template is used"));
  CHECK(warns(axolotl_set("chat_template_jinja: \"{{ messages }}\""), "a template's text"));
  CHECK(test::contains(test::error_of([] { axolotl_set("message_field_role: from"); }),
                       "or from and value: got from and content"));
  CHECK(test::contains(test::error_of([] { axolotl_set("roles: {critic: [x]}"); }), "critic"));
}

TEST_CASE("adopt llamafactory: rows of conversations") {
  Adopted a = factory("template: chatml\nenable_thinking: false\nmask_history: true\n",
                      "\"formatting\": \"sharegpt\"");
  CHECK(a.config.data.is_chat());
  CHECK(test::contains(a.config.data.train.at(0), "t.json"));
  CHECK(a.config.data.chat.messages_field.empty());
  CHECK(a.config.data.chat.roles.value.size() == 0);
  CHECK(a.config.data.chat.chat_template == "chatml");
  CHECK(a.config.data.chat.template_kwargs.value == parse_json("{\"enable_thinking\": false}", ""));
  CHECK(a.config.data.chat.train_on == data::TrainOn::kLast);
  CHECK(warnings_of(a.text).empty());
  a = factory("train_on_prompt: true\ntemplate: llama3\n",
              "\"formatting\": \"openai\", \"columns\": {\"messages\": \"turns\"}, \"tags\": "
              "{\"role_tag\": \"role\", \"content_tag\": \"content\", \"user_tag\": \"user\", "
              "\"assistant_tag\": \"bot\", \"observation_tag\": \"result\"}");
  CHECK(a.config.data.chat.messages_field == "turns");
  CHECK(a.config.data.chat.roles.value ==
        parse_json("{\"bot\": \"assistant\", \"result\": \"tool\"}", ""));
  CHECK(a.config.data.chat.train_on == data::TrainOn::kAll);
  CHECK(a.says("here without blanks around a message"));
  // Without dataset_info.json the rows decide.
  a = factory("template: chatml\ntrain_on_prompt: true\n");
  CHECK_FALSE(a.config.data.is_chat());
  CHECK(a.config.data.chat.chat_template == "chatml");
  CHECK(a.config.data.chat.train_on == data::TrainOn::kAll);
  CHECK(a.config.data.objective == data::Objective::kLm);
}

TEST_CASE("adopt llamafactory: what cannot be said is left out with a warning, or refused") {
  const std::string talk = "\"formatting\": \"sharegpt\"";
  const Adopted a = factory("template: qwen\ndefault_system: S\ntool_format: qwen\n",
                            talk +
                                ", \"columns\": {\"messages\": \"messages\", \"tools\": \"tools\", "
                                "\"system\": \"s\"}, \"tags\": {\"function_tag\": \"call\"}");
  CHECK(a.config.data.chat.chat_template.empty());
  for (const char* key : {"template: qwen (a.yaml:5) is left out: the model's own template is used",
                          "default_system: S (", "tool_format: qwen (", "columns.system in",
                          "function_tag: call in"}) {
    CAPTURE(key);
    CHECK(warns(a, key));
  }
  CHECK(warnings_of(a.text).size() == 5);
  const auto refusal = [](const std::string& yaml, const std::string& info) {
    return test::error_of([&] { factory(yaml, info); });
  };
  CHECK(test::contains(refusal("", talk + ", \"tags\": {\"role_tag\": \"speaker\"}"),
                       "or from and value: got speaker and value"));
  CHECK(test::contains(refusal("template: chatml\n", "\"formatting\": \"alpaca\""),
                       "talk has rows of instruction and output: leave this line out"));
  CHECK(test::contains(refusal("mask_history: true\ntrain_on_prompt: true\n", talk),
                       "train_on_prompt: true contradicts mask_history: true"));
  CHECK(test::contains(refusal("", talk + ", \"ranking\": true"), "are not trained here"));
}

}  // namespace
}  // namespace fsdp::adopt
