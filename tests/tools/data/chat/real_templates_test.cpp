// Real chat templates, which are not in the repository: FSDP_REAL_TEMPLATES is a folder of files
// that are named by the first 16 digits of their SHA-256 and end in .jinja. Compared with
// tests/fixtures/chat/goldens.json: the text of every conversation, and which characters of "two
// turns" are trained.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>

#include <doctest/doctest.h>

#include "tests/support/chat_goldens.h"
#include "tests/support/sha256.h"
#include "tools/data/chat/chat_text.h"

namespace fsdp::data {
namespace {

// Bytes of a turn that are trained, by characters: behind the longest common prefix with what
// inference is given.
ByteSpan trained_of(const ChatText& chat, const ChatTurn& turn) {
  ByteSpan out = turn.bytes;
  for (const TurnStart& start : turn.starts) {
    const std::string given = chat.text.substr(0, start.shared) + start.rest;
    const auto differ =
        std::mismatch(given.begin(), given.end(), chat.text.begin(), chat.text.end()).first;
    out.begin = std::max(out.begin, static_cast<size_t>(differ - given.begin()));
  }
  return {std::min(out.begin, out.end), out.end};
}

// As `spans` of goldens.json, in characters. A message that several turns write has one span.
Json trained_spans(const ChatText& chat) {
  const auto characters = [&](size_t bytes) {
    return std::count_if(chat.text.begin(), chat.text.begin() + static_cast<ptrdiff_t>(bytes),
                         [](char c) { return (c & 0xc0) != 0x80; });
  };
  Json out = Json::array();
  for (const ChatTurn& turn : chat.turns) {
    if (turn.role != Role::kAssistant || turn.bytes.begin == turn.bytes.end) continue;
    const ByteSpan bytes = trained_of(chat, turn);
    Json span = Json::array();
    span.push_back(turn.is_block ? Json() : Json(turn.message));
    span.push_back(Json(characters(bytes.begin)));
    span.push_back(Json(characters(bytes.end)));
    out.push_back(span);
  }
  return out;
}

Conversation conversation_of_golden(const Json& goldens, const std::string& name) {
  Conversation out;
  for (const Json& message : goldens.at("conversations").at(name)) {
    out.messages.push_back(message);
    out.roles.push_back(find_role(message.at("role").text()).value_or(Role::kSystem));
    out.trained.push_back(true);
  }
  for (const Json& with : goldens.at("with_tools")) {
    if (with.text() == name) out.tools = goldens.at("tools");
  }
  return out;
}

}  // namespace

TEST_CASE("real chat templates: text of every conversation, and the trained bytes") {
  const char* const folder = std::getenv("FSDP_REAL_TEMPLATES");
  if (!folder) {
    std::printf("[SKIP] real chat templates: FSDP_REAL_TEMPLATES names no folder\n");
    return;
  }
  const Json goldens = test::chat_fixture("goldens.json");
  const Json tokens = Json::parse(
      R"({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"})");
  int templates = 0, compared = 0;
  for (const auto& [name, about] : goldens.at("real").items()) {
    const auto file = std::filesystem::path(folder) / (name + ".jinja");
    if (!std::filesystem::exists(file)) continue;
    CAPTURE(name);
    const std::string source = read_file(file);
    REQUIRE(test::sha256(source).substr(0, 16) == name);
    const ChatFormat format({.source = source,
                             .name = about.at("name").text(),
                             .special_tokens = tokens,
                             .kwargs = Json::object(),
                             .date = test::chat_clock()});
    std::istringstream wanted(about.at("sha").text());
    for (const auto& conversation : goldens.at("conversations").items()) {
      CAPTURE(conversation.name);
      std::optional<ChatText> chat;
      try {
        chat = format.text_of(conversation_of_golden(goldens, conversation.name), name);
      } catch (const Error&) {  // as Python raises
      }
      std::string sha;
      wanted >> sha;
      CHECK((chat ? test::sha256(chat->text).substr(0, 16) : "!") == sha);
      if (conversation.name == "two turns") {
        CHECK((chat ? trained_spans(*chat) : Json()) == about.at("spans"));
      }
      ++compared;
    }
    ++templates;
  }
  std::printf("%d renderings of %d real chat templates compared\n", compared, templates);
  CHECK(compared >= 100);
}

}  // namespace fsdp::data
