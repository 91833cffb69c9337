// The tokens of turns, against the masks of tests/fixtures/chat.
#include "tools/data/chat/turn_tokens.h"

#include <memory>

#include <doctest/doctest.h>

#include "tests/support/chat_goldens.h"
#include "tools/data/tokenizer/hugging_face.h"

namespace fsdp::test {
namespace {

using namespace fsdp::data;

// A tokenizer of the fixtures with the tokens that the goldens add to it.
std::unique_ptr<Tokenizer> golden_tokenizer(const Json& given) {
  const std::string folder = given.at("tokenizer").text();
  const std::string name = folder.substr(std::string("tests/fixtures/").size());
  Json file = Json::parse(read_file(fixture_path(name + "/tokenizer.json")));
  Json added = Json::array();  // also tokens that the file has, which become special by this
  for (const Json& pair : given.at("added_tokens")) {
    Json token = Json::object();
    token["id"] = pair[0];
    token["content"] = pair[1];
    for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"}) token[key] = false;
    token["special"] = true;
    added.push_back(token);
  }
  file["added_tokens"] = added;
  return std::make_unique<HuggingFaceTokenizer>(file.dump(), name, fixture_path(name));
}

// The tokens that data.train_on: assistant trains.
std::string mask_of(const ChatTokens& tokens) {
  std::string out(tokens.ids.size(), '0');
  for (const RowTurn& turn : tokens.turns) {
    if (turn.role != static_cast<uint16_t>(Role::kAssistant) || turn.flags & RowTurn::kOff)
      continue;
    out.replace(turn.first, turn.count, turn.count, '1');
  }
  return out;
}

struct Golden {
  const Json& goldens;
  const Json& given;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatFormat> format;
  std::vector<int32_t> ends;

  Golden(const Json& all, const std::string& name)
      : goldens(all), given(all.at("templates").at(name)), tokenizer(golden_tokenizer(given)) {
    Json special = Json::object();
    for (const char* key : {"bos_token", "eos_token"}) special[key] = given.at(key);
    format = std::make_unique<ChatFormat>(ChatFormatOptions{.source = given.at("template").text(),
                                                            .name = name,
                                                            .special_tokens = special,
                                                            .kwargs = Json::object(),
                                                            .date = chat_clock()});
    ends = tokenizer->encode(given.at("eos_token").text(), SpecialTokens::kOmit);
    if (name == "role_token_ends") ends = {1325, 1327};  // GLM-4: the next role's token
  }
};

Conversation golden_conversation(const Json& goldens, const std::string& name) {
  Conversation out;
  for (const Json& message : goldens.at("conversations").at(name)) {
    out.messages.push_back(message);
    const std::string& role = message.at("role").text();
    out.roles.push_back(role == "assistant" ? Role::kAssistant
                        : role == "tool"    ? Role::kTool
                        : role == "user"    ? Role::kUser
                                            : Role::kSystem);
    out.trained.push_back(true);
  }
  for (const Json& with : goldens.at("with_tools")) {
    if (with.text() == name) out.tools = goldens.at("tools");
  }
  return out;
}

TEST_CASE("texts, ids and masks of the goldens") {
  const Json goldens = chat_fixture("goldens.json");
  std::unique_ptr<Golden> golden;
  std::string name;
  int compared = 0;
  for (const Json& result : goldens.at("results")) {
    if (result.contains("error")) continue;
    if (result.at("template").text() != name) {
      name = result.at("template").text();
      golden = std::make_unique<Golden>(goldens, name);
    }
    CAPTURE(name);
    const std::string conversation = result.at("conversation").text();
    CAPTURE(conversation);
    const ChatText chat =
        golden->format->text_of(golden_conversation(goldens, conversation), "row");
    CHECK(chat.text == result.at("text").text());
    const ChatTokens tokens = chat_tokens(chat, *golden->tokenizer, golden->ends);
    CHECK(Json(tokens.ids) == result.at("ids"));
    CHECK(mask_of(tokens) == result.at("mask").text());
    ++compared;
  }
  CHECK(compared > 300);
  MESSAGE("compared: " << compared);
}

}  // namespace
}  // namespace fsdp::test
