// The conversations and templates of tests/fixtures/chat, as inputs of a rendering.
// Not here: the comparisons (tests/tools/data/chat).
#pragma once

#include <ctime>
#include <string>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/data/chat/template.h"

namespace fsdp::test {

// Keeps the order of keys, which templates print.
inline Json chat_fixture(const std::string& name) {
  return Json::parse(read_file(fixture_path("chat/" + name)));
}

inline std::tm chat_clock() {  // 2024-07-26 09:05, a Friday
  std::tm out{};
  out.tm_year = 124;
  out.tm_mon = 6;
  out.tm_mday = 26;
  out.tm_hour = 9;
  out.tm_min = 5;
  out.tm_wday = 5;
  out.tm_yday = 207;
  return out;
}

inline data::RenderInput chat_input(const Json& messages) {
  data::RenderInput out;
  if (!messages.empty()) out.messages = {&messages.front(), messages.size()};
  out.clock = chat_clock();
  return out;
}

// A conversation of goldens.json, with the tools that it was rendered with.
inline data::RenderInput golden_input(const Json& goldens, const std::string& conversation) {
  data::RenderInput out = chat_input(goldens.at("conversations").at(conversation));
  for (const Json& name : goldens.at("with_tools")) {
    if (name.text() == conversation) out.tools = &goldens.at("tools");
  }
  return out;
}

}  // namespace fsdp::test
