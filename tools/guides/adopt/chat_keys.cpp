// Contract: tools/guides/adopt/chat_keys.h.
#include "tools/guides/adopt/chat_keys.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fsdp::adopt {

const Json& axolotl_json();  // tables/axolotl.json

namespace {

void take_template(const Given& given, Adoption& adoption) {
  const std::string& name = given.one();
  const std::string own = "tokenizer_default", fallback = own + "_fallback_";
  if (name == "jinja")
    adoption.leave(given, "chat_template_jinja says it");
  else if (name == own)
    adoption.leave(given, "the model's own template is used");
  else if (name.starts_with(fallback))
    adoption.leave(given,
                   "the model's own template is used; where it has none: --set "
                   "data.chat_template=" +
                       name.substr(fallback.size()));
  else
    set_chat_template(name, given, adoption);
}

// A file, or the template itself.
void take_jinja(const Given& given, Adoption& adoption) {
  const std::string near = given.key.substr(0, given.key.rfind('_'));
  const auto name = std::ranges::find(adoption.given(), near, &Given::key);
  if (name != adoption.given().end() && name->one() != "jinja")
    adoption.leave(given, "no effect with " + name->origin());
  else if (given.one().find('{') != std::string::npos)
    adoption.leave_out(given, "a template's text: data.chat_template takes a file with it");
  else
    adoption.set("data.chat_template", given.one(), given);
}

void take_property(const Given& given, Adoption& adoption) {
  usual(given.name.substr(given.name.rfind('.') + 1),
        "a template gets the fields of a message as they are")(given, adoption);
}

void take_roles_to_train(const Given& given, const Json& roles, Adoption& adoption) {
  std::set<std::string> trained;
  for (const std::string& word : given.values) {
    const Json* const role = roles.find(word);
    trained.insert(role              ? role->text()
                   : word == "gpt"   ? "assistant"
                   : word == "human" ? "user"
                                     : word);
  }
  if (adoption.is_on("train_on_inputs"))
    adoption.leave(given, "train_on_inputs counts more");
  else if (trained == std::set<std::string>{"assistant"})
    adoption.set("data.train_on", "assistant", given);
  else if (trained.contains("assistant") && trained.contains("user"))
    adoption.set("data.train_on", "all", given, "what stands around turns, too");
  else
    adoption.leave_out(given, "data.train_on is assistant, last or all");
}

void take_set(const Given& type, Adoption& adoption) {
  const std::string set = type.key.substr(0, type.key.rfind('.') + 1);
  std::string role = "role", content = "content";
  Json roles = Json::object();
  const Given *origin = &type, *trained = nullptr;
  for (const Given& given : adoption.given()) {
    if (!given.key.starts_with(set)) continue;
    const std::string key = given.key.substr(set.size());
    if (key == "message_property_mappings.role" || key == "message_field_role") role = given.one();
    if (key == "message_property_mappings.content" || key == "message_field_content")
      content = given.one();
    if (key == "roles_to_train") trained = &given;
    if (!key.starts_with("roles.")) continue;
    origin = &given;
    for (const std::string& word : given.values) roles[word] = key.substr(key.find('.') + 1);
  }
  set_messages(role, content, roles, *origin, adoption);
  if (trained) take_roles_to_train(*trained, roles, adoption);
}

void take_kwargs(Adoption& adoption) {
  const std::string section = "chat_template_kwargs.";
  std::vector<std::string> kwargs;
  const Given* origin = nullptr;
  for (const Given& given : adoption.given()) {
    if (!given.name.starts_with(section)) continue;
    const std::string name = given.name.substr(section.size());
    if (given.is_list || name.find('.') != std::string::npos) {
      adoption.leave_out(given, "a list or a section: write it into data.chat_template_kwargs");
      continue;
    }
    const bool word = given.one().find_first_of(" \t\n\"'\\:,#{}[]&*!|>%@`") == std::string::npos;
    kwargs.push_back(name + ": " + (word ? given.one() : Json(given.one()).dump()));
    adoption.leave(given, "data.chat_template_kwargs says it");
    origin = &given;
  }
  if (origin)
    adoption.set("data.chat_template_kwargs", fmt::format("{{{}}}", fmt::join(kwargs, ", ")),
                 *origin);
}

}  // namespace

void set_chat_template(const std::string& name, const Given& given, Adoption& adoption,
                       const std::string& remark) {
  if (name == "chatml" || name == "llama3")
    adoption.set("data.chat_template", name, given, remark);
  else
    adoption.leave_out(given, "the model's own template is used; data.chat_template takes a file");
}

void set_messages(const std::string& role, const std::string& content, const Json& roles,
                  const Given& origin, Adoption& adoption) {
  const bool known = role == "from" ? content == "value" : role == "role" && content == "content";
  if (!known) {
    origin.refuse(fmt::format(
        "a message has role and content here, or from and value: got {} and {}", role, content));
  }
  if (roles.size() > 0) adoption.set("data.roles", roles.dump(), origin);
}

bool is_chat(const std::string& type) { return type == "chat_template" || type == "sharegpt"; }

bool has_chats(const Adoption& adoption) {
  return std::ranges::any_of(adoption.given(), [](const Given& given) {
    return given.name.ends_with("datasets[].type") && is_chat(given.text());
  });
}

std::vector<Rule> axolotl_chat_rules() {
  const Takes own = {
      {"template", take_template}, {"jinja", take_jinja}, {"property", take_property}};
  std::vector<Rule> rules = rules_of(axolotl_json()["chats"], own);
  for (const Rule& rule : rules_of(axolotl_json()["chats_of_a_set"], own)) {
    for (const char* sets : {"datasets[].", "test_datasets[]."}) {
      rules.push_back({sets + rule.name, rule.take});
    }
  }
  return rules;
}

void take_axolotl_chats(Adoption& adoption) {
  const Given* const inputs = adoption.find("train_on_inputs");
  if (adoption.is_on("train_on_inputs"))
    adoption.set("data.train_on", "all", *inputs, "what stands around turns, too");
  else if (inputs)
    adoption.off(*inputs);
  for (const Given& given : adoption.given()) {
    if (given.name.ends_with("datasets[].type") && is_chat(given.one())) take_set(given, adoption);
  }
  take_kwargs(adoption);
}

}  // namespace fsdp::adopt
