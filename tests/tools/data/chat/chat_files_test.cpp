// Where a chat template comes from, in which order; its special tokens, date and end tokens.
#include "tools/data/chat/chat_files.h"

#include <map>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::data {
namespace {

using test::TempFolder;

std::string find_error(const std::string& given, const std::filesystem::path& folder = {}) {
  return test::error_of([&] { find_chat_template(given, folder); });
}

// The text of a template for a system, a user, an assistant's answer, and with the prompt.
std::pair<std::string, std::string> rendered(const std::string& name) {
  Conversation given =
      conversation_of(Json::parse(R"({"messages": [{"role": "system", "content": "S"},
          {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]})"),
                      "row", {});
  Json special = Json::object();
  special["bos_token"] = "<s>";
  special["eos_token"] = "</s>";
  const ChatFormat format({.source = find_chat_template(name, {}).source,
                           .name = name,
                           .special_tokens = special,
                           .date = std::nullopt});
  const std::string text = format.text_of(given, "row").text;
  const std::string prompt = format.prompt_of(given, "row");
  CHECK(prompt.starts_with(text));
  return {text, prompt.substr(text.size())};
}

// Files of a folder that say where a template may stand.
constexpr const char* kPairs = R"([{"name": "default", "template": "pairs"},
                                   {"name": "tool_use", "template": "tools"}])";
void write_config(const TempFolder& folder, const std::string& chat_template) {
  folder.write("tokenizer_config.json", R"({"chat_template": )" + chat_template + "}");
}

std::filesystem::path made(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  return folder;
}

}  // namespace

TEST_CASE("chat files: our own templates by name") {
  CHECK(rendered("chatml") ==
        std::pair<std::string, std::string>("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU"
                                            "<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n",
                                            "<|im_start|>assistant\n"));
  CHECK(rendered("llama3") ==
        std::pair<std::string, std::string>(
            "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user"
            "<|end_header_id|>\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA"
            "<|eot_id|>",
            "<|start_header_id|>assistant<|end_header_id|>\n\n"));
  CHECK(rendered("zephyr") ==
        std::pair<std::string, std::string>(
            "<|system|>\nS</s>\n<|user|>\nU</s>\n<|assistant|>\nA</s>\n", "<|assistant|>\n"));
  CHECK(rendered("vicuna") ==
        std::pair<std::string, std::string>("<s>S USER: U ASSISTANT: A</s>", "ASSISTANT:"));
  for (const char* name : {"chatml", "llama3", "zephyr", "vicuna"}) {
    CHECK(is_own_chat_template(name));
    CHECK(find_chat_template(name, {}).name == name);
    CHECK(find_chat_template(name, {}).tool_source.empty());
  }
  CHECK_FALSE(is_own_chat_template(""));
  CHECK_FALSE(is_own_chat_template("chatml2"));
}

TEST_CASE("chat files: the order of places") {
  const TempFolder folder;
  const std::string given = folder.write("mine.jinja", "mine").string();
  CHECK(find_chat_template("", folder.path()).source.empty());
  CHECK(find_chat_template("", "").source.empty());
  write_config(folder, "null");
  CHECK(find_chat_template("", folder.path()).source.empty());
  const std::string config = (folder / "tokenizer_config.json").string() + ": chat_template";
  write_config(folder, "\"text\"");
  ChatTemplateFile found = find_chat_template("", folder.path());
  CHECK(found.source == "text");
  CHECK(found.name == config);
  CHECK(found.tool_source.empty());
  write_config(folder, kPairs);
  found = find_chat_template("", folder.path());
  CHECK(found.source == "pairs");
  CHECK(found.tool_source == "tools");
  CHECK(found.name == config);
  folder.write("chat_template.jinja", "file\n");
  found = find_chat_template("", folder.path());
  CHECK(found.source == "file\n");
  CHECK(found.name == (folder / "chat_template.jinja").string());
  CHECK(found.tool_source.empty());
  made(folder / "additional_chat_templates");
  folder.write("additional_chat_templates/tool_use.jinja", "for tools");
  CHECK(find_chat_template("", folder.path()).tool_source == "for tools");
  found = find_chat_template(given, folder.path());
  CHECK(found.source == "mine");
  CHECK(found.name == given);
  CHECK(found.tool_source.empty());
  CHECK(find_chat_template("chatml", folder.path()).source.starts_with("{% for"));
}

TEST_CASE("chat files: named templates") {
  const TempFolder folder;
  write_config(folder, R"([{"name": "rag", "template": "r"}, {"name": "default", "template": "a"},
                           {"name": "default", "template": "b"}])");
  CHECK(find_chat_template("", folder.path()).source == "b");
  write_config(folder, "[]");
  CHECK(find_chat_template("", folder.path()).source.empty());
  const std::string place = (folder / "tokenizer_config.json").string() + ": chat_template: ";
  const auto error = [&](const std::string& chat_template) {
    write_config(folder, chat_template);
    const std::string out = find_error("", folder.path());
    CHECK(out.starts_with(place));
    return out.substr(std::min(out.size(), place.size()));
  };
  CHECK(error(R"([{"name": "rag", "template": "r"}])") ==
        "none is named \"default\"; data.chat_template names a file");
  CHECK(error("1") == "expected a text, or a list of named templates");
  CHECK(error(R"({"default": "a"})") == "expected a text, or a list of named templates");
  const std::string wanted = "expected {\"name\": ..., \"template\": ...}, got ";
  CHECK(error(R"([{"name": "default", "template": "a"}, {"name": "b"}])") ==
        wanted + R"({"name":"b"})");
  CHECK(error(R"([{"name": "default", "template": 1}])") ==
        wanted + R"({"name":"default","template":1})");
  CHECK(error("[\"a\"]") == wanted + "\"a\"");
}

TEST_CASE("chat files: a misspelt name") {
  const TempFolder folder;
  const std::string wanted =
      "data.chat_template: expected chatml, llama3, zephyr, vicuna, or a file, got ";
  CHECK(find_error("chatlm") == wanted + "\"chatlm\"; did you mean \"chatml\"?");
  CHECK(find_error("llama-3", folder.path()) == wanted + "\"llama-3\"; did you mean \"llama3\"?");
  const auto missing = [](const std::string& file) {
    return "data.chat_template: " + file + ": no such file";
  };
  CHECK(find_error("/no/such/file.jinja") == missing("/no/such/file.jinja"));
  CHECK(find_error(folder.path().string()) == missing(folder.path().string()));
  const std::string empty = folder.write("t.jinja", "").string();
  CHECK(find_error(empty) == "data.chat_template: " + empty + ": the file is empty");
}

TEST_CASE("chat files: files that are not JSON are named") {
  const TempFolder folder;
  const std::string file = folder.write("tokenizer_config.json", "{\n \"a\": 1,\n").string();
  CHECK(find_error("", folder.path()).starts_with(file + ":3: malformed JSON: "));
  CHECK(test::error_of([&] { special_tokens_in(folder.path()); }).starts_with(file + ":3: "));
  folder.write("tokenizer_config.json", "[1]");
  CHECK(find_chat_template("", folder.path()).source.empty());
  CHECK(special_tokens_in(folder.path()).empty());
  // As Python reads it.
  folder.write("tokenizer_config.json",
               R"({"model_max_length": Infinity, "chat_template": "a", "chat_template": "b"})");
  CHECK(find_chat_template("", folder.path()).source == "b");
  const std::string map = folder.write("special_tokens_map.json", "{").string();
  CHECK(test::error_of([&] { special_tokens_in(folder.path()); }).starts_with(map + ":1: "));
}

TEST_CASE("chat files: special tokens are texts or objects") {
  const TempFolder folder;
  CHECK(special_tokens_in("").empty());
  CHECK(special_tokens_in(folder.path()).empty());
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
                   "pad_token": null, "unk_token": "", "mask_token": "<m>", "model_max_length": 5})");
  CHECK(special_tokens_in(folder.path()).dump() ==
        R"({"bos_token":"<s>","eos_token":"</s>","mask_token":"<m>"})");
  folder.write("special_tokens_map.json",
               R"({"eos_token": {"content": "<end>"}, "pad_token": "<pad>", "bos_token": null})");
  CHECK(special_tokens_in(folder.path()).dump() ==
        R"({"bos_token":"<s>","eos_token":"<end>","mask_token":"<m>","pad_token":"<pad>"})");
  // transformers reads the second file only where the first has no added_tokens_decoder.
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "added_tokens_decoder": {}})");
  CHECK(special_tokens_in(folder.path()).dump() == R"({"eos_token":"</s>"})");
  for (const char* value : {"5", "[\"<s>\"]", "{}", R"({"content": null})"}) {
    CAPTURE(value);
    const std::string file =
        folder.write("tokenizer_config.json", std::string(R"({"bos_token": )") + value + "}")
            .string();
    CHECK(test::error_of([&] { special_tokens_in(folder.path()); }) ==
          file + ": bos_token: expected a text, or an object with content");
  }
}

TEST_CASE("chat files: dates") {
  const std::optional<std::tm> date = parse_date("2024-07-26");
  REQUIRE(date);
  char text[64];
  CHECK(std::string(text, std::strftime(text, sizeof(text), "%Y %B %d %A %j %H:%M:%S", &*date)) ==
        "2024 July 26 Friday 208 00:00:00");
  CHECK(parse_date("2024-02-29"));
  CHECK(parse_date("1969-12-31"));
  for (const char* no : {"", "2024", "2024-13-01", "2023-02-29", "2024-04-31", "2024-07-26 ",
                         "26.07.2024", "2024-07-26T00:00"}) {
    CAPTURE(no);
    CHECK_FALSE(parse_date(no));
  }
}

TEST_CASE("chat files: a format of a folder") {
  const TempFolder folder;
  CHECK_FALSE(open_chat_format({.chat_template = "", .folder = folder.path()}, ByteTokenizer()));
  folder.write(
      "tokenizer_config.json",
      R"({"bos_token": "<s>", "chat_template": "{{ bos_token }}{{ mood }}{{ strftime_now('%d %b') }}"})");
  Json mood = Json::object();
  mood["mood"] = "!";
  const ChatChoices choices = {
      .chat_template = "", .kwargs = mood, .date = "2026-01-31", .folder = folder.path()};
  const std::optional<ChatFormat> format = open_chat_format(choices, ByteTokenizer());
  REQUIRE(format);
  Conversation given =
      conversation_of(Json::parse(R"({"messages": [{"role": "user", "content": ""}]})"), "row", {});
  CHECK(format->text_of(given, "row").text == "<s>!31 Jan");
  CHECK(asks_for_date(choices));
  CHECK_FALSE(asks_for_date({.chat_template = "chatml", .folder = folder.path()}));
  write_config(folder, R"([{"name": "default", "template": "a"},
                           {"name": "tool_use", "template": "{{ strftime_now('%d') }}"}])");
  CHECK(asks_for_date({.chat_template = "", .folder = folder.path()}));
  write_config(folder, "\"{% call %}\"");
  CHECK(test::error_of([&] {
          open_chat_format({.chat_template = "", .folder = folder.path()}, ByteTokenizer());
        }) == (folder / "tokenizer_config.json").string() +
                  ": chat_template:1:1: {% call %} is not known");
}

TEST_CASE("chat files: the folder of a tokenizer's template") {
  const TempFolder folder;
  CHECK(chat_folder("bytes", folder.path()) == folder.path());
  CHECK(chat_folder("bytes", "") == "");
  const std::filesystem::path file = folder.write("tokenizer.json", "{}");
  CHECK(chat_folder(file.string(), "model") == folder.path());
  CHECK(chat_folder(folder.path().string(), "model") == folder.path());
}

TEST_CASE("chat files: ids that end a turn") {
  const TempFolder folder, other;
  using Ids = std::vector<int32_t>;
  CHECK(end_tokens_in({}).empty());
  CHECK(end_tokens_in({"", folder.path()}).empty());
  folder.write("config.json", R"({"eos_token_id": 2})");
  CHECK(end_tokens_in({folder.path()}) == Ids{2});
  folder.write("generation_config.json", R"({"eos_token_id": [7, 5, 2, "a", null]})");
  CHECK(end_tokens_in({folder.path()}) == Ids{2, 5, 7});
  other.write("config.json", R"({"eos_token_id": null})");
  CHECK(end_tokens_in({other.path()}).empty());
  other.write("generation_config.json", "{");
  CHECK(end_tokens_in({other.path()}).empty());
  other.write("config.json", R"({"eos_token_id": 9})");
  CHECK(end_tokens_in({folder.path(), other.path(), folder.path()}) == Ids{2, 5, 7, 9});
}

TEST_CASE("chat files: names of the template that the tokenizer splits") {
  const std::unique_ptr<Tokenizer> llama =
      make_tokenizer(test::fixture_path("tokenizers/llama3").string());
  using Names = std::vector<std::string>;
  CHECK(split_tokens_of({.chat_template = "chatml"}, *llama) ==
        Names{"<|im_start|>", "<|im_end|>"});
  CHECK(split_tokens_of({.chat_template = "llama3"}, *llama).empty());
  const TempFolder folder;
  const auto split = [&](const std::string& source) {
    const std::string file = folder.write("t.jinja", source).string();
    return split_tokens_of({.chat_template = file}, *llama);
  };
  CHECK(split("<|a|><|b c|><|a|>{{ '<|' + x + '|>' }}<|eot_id|><|d") == Names{"<|a|>"});
  CHECK(split("<|" + std::string(70, 'a') + "|>").empty());
  std::string many;
  for (int i = 0; i < 20; ++i) many += "<|n" + std::to_string(i) + "|>";
  CHECK(split(many).size() == 8);
}

}  // namespace fsdp::data
