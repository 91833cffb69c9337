// Contract: tools/data/chat/chat_files.h.
#include "tools/data/chat/chat_files.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/io/file.h"
#include "core/text/similar_names.h"
#include "tools/data/tokenizer/python_json.h"
#include "tools/data/tokenizer/vocabulary_files.h"

namespace fsdp::data {
namespace {

namespace fs = std::filesystem;

struct OwnTemplate {
  std::string_view name, source;
};
constexpr std::array kOwn = {
    OwnTemplate{"chatml",
                "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + "
                "'<|im_end|>\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"},
    OwnTemplate{"llama3",
                "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
                "'<|end_header_id|>\n\n' + m.content.strip() + '<|eot_id|>' }}{% endfor %}"
                "{% if add_generation_prompt %}"
                "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"},
    OwnTemplate{"zephyr",
                "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + eos_token + '\n' }}"
                "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"},
    OwnTemplate{
        "vicuna",
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
        "{{ m.content + ' ' }}{% elif m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}"
        "{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + eos_token }}"
        "{% else %}{{ raise_exception('vicuna knows system, user and assistant') }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"}};

std::vector<std::string> own_names() {
  std::vector<std::string> out;
  for (const OwnTemplate& own : kOwn) out.emplace_back(own.name);
  return out;
}

Json json_in(const fs::path& file) {
  return fs::exists(file) ? read_python_json(file) : Json::object();
}

// The template of this name in {name, template} pairs; "": it has none.
std::string named(const Json& pairs, std::string_view name, const fs::path& file) {
  std::string out;
  for (const Json& pair : pairs) {
    const bool whole = pair.is_object() && pair.contains("name") && pair.contains("template") &&
                       pair["template"].is_string();
    FSDP_CHECK(whole, "{}: chat_template: expected {{\"name\": ..., \"template\": ...}}, got {}",
               file.string(), pair.dump({.replace = true}).substr(0, 60));
    if (pair["name"] == name) out = pair["template"].text();  // of equal names the last, as a dict
  }
  return out;
}

}  // namespace

ChatTemplateFile find_chat_template(const std::string& given, const fs::path& folder) {
  for (const OwnTemplate& own : kOwn) {
    if (given == own.name) return {std::string(own.source), given};
  }
  if (!given.empty()) {
    const std::vector<std::string> names = own_names();
    const std::string near = nearest_key(given, names);
    const bool is_path = given.find('/') != given.npos || given.ends_with(".jinja");
    FSDP_CHECK(fs::is_regular_file(given) || !is_path, "data.chat_template: {}: no such file",
               given);
    FSDP_CHECK(fs::is_regular_file(given),
               "data.chat_template: expected {}, or a file, got \"{}\"{}",
               "chatml, llama3, zephyr, vicuna", given,
               resembles(given, near) ? fmt::format("; did you mean \"{}\"?", near) : "");
    ChatTemplateFile out = {read_file(given), given};
    FSDP_CHECK(!out.source.empty(), "data.chat_template: {}: the file is empty", given);
    return out;
  }
  if (folder.empty()) return {};
  const fs::path own = folder / "chat_template.jinja";
  if (fs::exists(own)) {
    const fs::path for_tools = folder / "additional_chat_templates" / "tool_use.jinja";
    return {read_file(own), own.string(), fs::exists(for_tools) ? read_file(for_tools) : ""};
  }
  const fs::path file = folder / "tokenizer_config.json";
  const Json config = json_in(file);
  const Json* const found = config.is_object() ? config.find("chat_template") : nullptr;
  if (!found || found->is_null()) return {};
  const std::string name = file.string() + ": chat_template";
  if (found->is_string()) return {found->text(), name};
  FSDP_CHECK(found->is_array(), "{}: expected a text, or a list of named templates", name);
  ChatTemplateFile out = {named(*found, "default", file), name, named(*found, "tool_use", file)};
  FSDP_CHECK(!out.source.empty() || found->empty(),
             "{}: none is named \"default\"; data.chat_template names a file", name);
  return out;
}

bool is_own_chat_template(const std::string& name) {
  return std::ranges::find(kOwn, name, &OwnTemplate::name) != kOwn.end();
}

Json special_tokens_in(const fs::path& folder) {
  Json out = Json::object();
  if (folder.empty()) return out;
  for (const char* const file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const Json values = json_in(folder / file);
    if (!values.is_object()) continue;
    for (const char* const key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                                  "cls_token", "mask_token"}) {
      const Json* const value = values.find(key);
      if (!value || value->is_null()) continue;
      const Json* const text = value->is_object() ? value->find("content") : value;
      FSDP_CHECK(text && text->is_string(), "{}: {}: expected a text, or an object with content",
                 (folder / file).string(), key);
      out[key] = *text;
      if (text->text().empty()) out.erase(key);  // as if it had none
    }
    if (values.contains("added_tokens_decoder")) break;  // transformers reads no other file then
  }
  return out;
}

fs::path chat_folder(const std::string& tokenizer, const fs::path& model) {
  if (tokenizer == "bytes") return model;
  const fs::path file =
      fs::is_directory(tokenizer) ? tokenizer_file_in(tokenizer) : fs::path(tokenizer);
  return file.empty() ? fs::path() : folder_of_tokenizer(file);
}

std::optional<std::tm> parse_date(const std::string& text) {
  std::tm given{};
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%d", &given);
  if (!end || *end != '\0') return std::nullopt;
  std::tm out = given;
  if (::timegm(&out) == -1 && given.tm_year != 69) return std::nullopt;
  return out.tm_mday == given.tm_mday ? std::optional(out) : std::nullopt;  // no February 30
}

namespace {

Json special_tokens_of(const fs::path& folder, const Tokenizer& tokenizer) {
  Json out = special_tokens_in(folder);
  const NamedTokens named = tokenizer.named();
  const auto add = [&](const char* key, std::optional<int32_t> id) {
    if (out.contains(key) || !id || *id < 0) return;
    const std::string text = tokenizer.decode({&*id, 1}, SpecialTokens::kInclude);
    if (!text.empty()) out[key] = text;
  };
  add("bos_token", named.begin);
  if (named.end_is_said) add("eos_token", named.end);
  add("pad_token", named.padding);
  return out;
}

}  // namespace

std::optional<ChatFormat> open_chat_format(const ChatChoices& choices, const Tokenizer& tokenizer) {
  const ChatTemplateFile found = find_chat_template(choices.chat_template, choices.folder);
  if (found.source.empty()) return std::nullopt;
  return ChatFormat({.source = found.source,
                     .name = found.name,
                     .tool_source = found.tool_source,
                     .special_tokens = special_tokens_of(choices.folder, tokenizer),
                     .kwargs = choices.kwargs,
                     .date = parse_date(choices.date)});
}

bool has_word(const ChatChoices& choices, std::string_view text) {
  const ChatTemplateFile found = find_chat_template(choices.chat_template, choices.folder);
  const std::string source = found.source + found.tool_source;
  return !source.empty() && source.find(text) != source.npos;
}

std::vector<int32_t> end_tokens_in(const std::vector<fs::path>& folders) {
  std::vector<int32_t> out;
  for (const fs::path& folder : folders) {
    for (const char* const name : {"generation_config.json", "config.json"}) {
      if (folder.empty() || !fs::exists(folder / name)) continue;
      Json keys;
      try {
        keys = read_python_json(folder / name);
      } catch (const SystemError&) {
        throw;
      } catch (const Error&) {
      }
      const Json* const said = keys.is_object() ? keys.find("eos_token_id") : nullptr;
      if (!said) continue;
      const Json list = said->is_array() ? *said : Json::array({*said});
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].is_number_integer()) out.push_back(list[i].get<int32_t>());
      }
    }
  }
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

namespace {

// Texts that only special tokens have: <|im_start|>, <start_of_turn>, and DeepSeek's wide bars.
bool looks_special(std::string_view name) {
  const bool has_bars = name.starts_with("<|") && name.ends_with("|>");
  const bool has_wide_bars = name.starts_with("<\uff5c") && name.ends_with("\uff5c>");
  return has_bars || has_wide_bars || name.find("_of_") != name.npos;
}

}  // namespace

std::vector<std::string> split_tokens_of(const ChatChoices& choices, const Tokenizer& tokenizer) {
  constexpr size_t kMost = 8, kLongest = 64;
  const ChatTemplateFile found = find_chat_template(choices.chat_template, choices.folder);
  const std::string source = found.source + found.tool_source;
  std::vector<std::string> out;
  for (size_t at = source.find('<'); at != source.npos && out.size() < kMost;
       at = source.find('<', at + 1)) {
    const size_t end = source.find_first_of("> \t\n'\"{}", at);
    if (end == source.npos || source[end] != '>' || end - at > kLongest) continue;
    const std::string name = source.substr(at, end + 1 - at);
    const bool is_new = std::ranges::find(out, name) == out.end();
    if (is_new && looks_special(name) && tokenizer.encode(name, SpecialTokens::kOmit).size() > 1) {
      out.push_back(name);
    }
  }
  return out;
}

}  // namespace fsdp::data
