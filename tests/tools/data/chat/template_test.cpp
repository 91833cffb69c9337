// Chat templates: the texts, prompts and errors of transformers (tests/fixtures/chat/goldens.json),
// which message wrote which bytes, and limits.
#include "tools/data/chat/template.h"

#include <doctest/doctest.h>

#include "tests/support/chat_goldens.h"

namespace fsdp::data {
namespace {

using test::chat_input;
using test::contains;
using test::error_of;

const Json& two_turns() {
  static const Json messages = Json::parse(
      R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"},
          {"role": "user", "content": "And?"}, {"role": "assistant", "content": "So."}])");
  return messages;
}

Rendering render_two(const std::string& source) {
  return ChatTemplate(source, "t").render(chat_input(two_turns()));
}

// "0:user 1:Hi": the number of each message and its text.
std::string written_by(const std::string& source) {
  const Rendering out = render_two(source);
  std::string all;
  for (const auto& [message, bytes] : out.written) {
    all += (all.empty() ? "" : " ") + std::to_string(message) + ":" +
           out.text.substr(bytes.begin, bytes.end - bytes.begin);
  }
  return all;
}

std::string generation_of(const std::string& source) {
  const Rendering out = render_two(source);
  std::string all;
  for (const auto& [begin, end] : out.generation) {
    all += "[" + out.text.substr(begin, end - begin) + "]";
  }
  return all;
}

// The report of transformers: the kind of the error, ": ", its text.
std::string python_error(const ChatTemplate& parsed, const RenderInput& input) {
  try {
    parsed.render(input);
  } catch (const RaisedByTemplate& raised) {
    return std::string("TemplateError: ") + raised.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("chat template: text, prompt and error of transformers") {
  const Json goldens = test::chat_fixture("goldens.json");
  int compared = 0;
  for (const Json& result : goldens.at("results")) {
    const Json& about = goldens.at("templates").at(result.at("template").text());
    CAPTURE(result.at("template").text());
    CAPTURE(result.at("conversation").text());
    const ChatTemplate parsed(about.at("template").text(), "t");
    RenderInput input = test::golden_input(goldens, result.at("conversation").text());
    input.special_tokens = &about;
    ++compared;
    if (const Json* error = result.find("error")) {
      const std::string found = python_error(parsed, input), wanted = error->text();
      CHECK(found.ends_with(wanted.substr(wanted.find(": "))));
      continue;
    }
    const std::string text = parsed.render(input).text;
    CHECK(text == result.at("text").text());
    input.add_generation_prompt = true;
    const std::string longer = parsed.render(input).text;
    CHECK(longer.starts_with(text) == !result.at("prompt").is_null());
    if (longer.starts_with(text)) CHECK(longer.substr(text.size()) == result.at("prompt").text());
  }
  CHECK(compared == 390);
}

TEST_CASE("chat template: what a loop over messages writes belongs to the message") {
  CHECK(written_by("a{% for m in messages %}{{ m.content }}{% endfor %}b") ==
        "0:Hello 1:Hi 2:And? 3:So.");
  CHECK(written_by("{% for m in messages[1:][::-1] %}{{ m.content }}{% endfor %}") ==
        "3:So. 2:And? 1:Hi");
  CHECK(written_by("{% set ns = namespace(all=messages|rejectattr('role', '==', 'user')|list) %}"
                   "{% for m in ns.all %}{{ m.content }}{% endfor %}") == "1:Hi 3:So.");
  CHECK(written_by("{% macro all(of) %}{% for m in of %}{{ m.content }},{% endfor %}{% endmacro %}"
                   "({{ all(messages) | trim }})") == "0:Hello, 1:Hi, 2:And?, 3:So.,");
  CHECK(written_by("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}") ==
        "0:Hello 2:And?");
  CHECK(written_by("{% for m in messages %}{% for c in m.content[:1] %}{{ c }}{% endfor %}!{% "
                   "endfor %}") == "0:H! 1:H! 2:A! 3:S!");
  CHECK(written_by("{{ messages[0].content }}{% for m in [{'content': 'x'}] %}{{ m.content }}{% "
                   "endfor %}") == "");
}

TEST_CASE("chat template: loops over numbers, inner loops, loops that end early") {
  CHECK(
      written_by("{% for i in range(messages|length) %}<{{ messages[i].content }}>{% endfor %}") ==
      "0:<Hello> 1:<Hi> 2:<And?> 3:<So.>");
  CHECK(written_by("{% for i in range(1, 3) %}{{ i }}{% set m = messages[1:][i] %}{{ m.role }}{% "
                   "endfor %}") == "2:1user 3:2assistant");
  CHECK(written_by("{% for i in range(2) %}{{ messages[i + 1].role }}{% endfor %}") == "");
  CHECK(written_by("{% for m in messages[:2] %}({% for n in messages[2:] %}{{ n.content }}{% "
                   "endfor %}){% endfor %}") == "0:( 2:And? 3:So. 0:) 1:( 2:And? 3:So. 1:)");
  CHECK(written_by("{% for m in messages %}{{ m.role[0] }}{% if loop.index == 2 %}{% break %}{% "
                   "endif %}{% continue %}{% endfor %}z") == "0:u 1:a");
  CHECK(written_by("{% set b %}x{% for m in messages %}{{ m.role[0] }}{% endfor %}{% endset %}y{{ "
                   "b[1:] + '!' }}{{ b ~ b }}") ==
        "0:u 1:a 2:u 3:a 0:u 1:a 2:u 3:a 0:u 1:a 2:u 3:a");
}

TEST_CASE("chat template: generation blocks") {
  const std::string block =
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}>{% generation "
      "%}{{ m.content }}.{% endgeneration %}{% endif %}{% endfor %}";
  CHECK(ChatTemplate(block, "t").has_generation_blocks());
  CHECK_FALSE(ChatTemplate("{% if false %}a{% endif %}", "t").has_generation_blocks());
  CHECK(generation_of(block) == "[Hi.][So..]");
  CHECK(generation_of("{% set x %}a{% generation %}b {% endgeneration %}{% endset %}c{{ x | trim "
                      "}}{{ 'd' + x }}") == "[b][b ]");
  CHECK(generation_of("{% generation %}{% endgeneration %}") == "");
}

TEST_CASE("chat template: variables") {
  const Json tokens = Json::parse(R"({"bos_token": "<s>", "additional_special_tokens": ["<x>"]})");
  const Json kwargs = Json::parse(R"({"bos_token": "<b>", "enable_thinking": false})");
  RenderInput input = chat_input(two_turns());
  const ChatTemplate shown(
      "{{ bos_token }}{{ eos_token }}{{ additional_special_tokens }}{{ enable_thinking }}{{ tools "
      "}}{{ documents }}{{ add_generation_prompt }}{{ messages|length }}{{ tools is defined }}",
      "t");
  CHECK(shown.render(input).text == "NoneNoneFalse4True");
  input.special_tokens = &tokens;
  CHECK(shown.render(input).text == "<s>['<x>']NoneNoneFalse4True");
  input.kwargs = &kwargs;
  CHECK(shown.render(input).text == "<b>['<x>']FalseNoneNoneFalse4True");
  input.clock.reset();
  CHECK(ChatTemplate("{{ strftime_now('%Y') }}", "t").render(input).text.size() == 4);
}

TEST_CASE("chat template: errors name the place, and raise_exception is a class of its own") {
  const auto error = [](const std::string& source) {
    return error_of([&] { render_two(source); });
  };
  CHECK(error("a\n  é{{ none + 'a' }}") ==
        "t:2:12: unsupported operand type(s) for +: 'NoneType' and 'str'");
  CHECK(error("{{ messages[9].role }}") == "t:1:15: list object has no such element");
  CHECK(error("{{ x.y }}") == "t:1:5: 'x' is undefined");
  CHECK(error("{% for a in 1 %}{% endfor %}") == "t:1:1: 'int' object is not iterable");
  CHECK(error("{{ raise_exception('no ' ~ 1) }}") == "no 1");
  CHECK_THROWS_AS(render_two("{{ raise_exception('no') }}"), RaisedByTemplate);
}

TEST_CASE("chat template: limits") {
  const auto error = [](const std::string& source) {
    return error_of([&] { render_two(source); });
  };
  CHECK(contains(error(std::string((1 << 20) + 1, 'a')), "1048577 bytes"));
  CHECK(contains(error("\xff"), "not UTF-8 at byte 0"));
  CHECK(contains(error("{{ 'a' * 67108865 }}"), "67108864 bytes"));
  CHECK(
      contains(error("{% for i in range(65) %}{{ 'a' * 1048576 }}{% endfor %}"), "67108864 bytes"));
  CHECK(contains(error("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% "
                       "endfor %}"),
                 "more than 10000000 steps"));
  CHECK(contains(error("{{ " + std::string(200, '(') + "1" + std::string(200, ')') + " }}"),
                 "100 levels"));
  CHECK(contains(error("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "nested too deeply"));
  CHECK(contains(error("{% set n = namespace(a=[]) %}{% for i in range(200) %}{% set n.a = [n.a] "
                       "%}{% endfor %}"),
                 "100 levels"));
  CHECK(contains(error("{% set n = namespace(a=['a']) %}{% for i in range(90) %}{% set n.a = [n.a, "
                       "n.a] %}{% endfor %}{{ n.a }}"),
                 "bytes"));
  CHECK(contains(error("{{ 9223372036854775807 + 1 }}"), "64 bits"));
  CHECK(contains(error("{{ range(100001) }}"), "100000 numbers"));
  // A namespace that holds itself is gone with the rendering.
  CHECK(error("{% set n = namespace() %}{% set n.n = [n] %}") == "");
  RenderInput input = chat_input(two_turns());
  input.most_steps = 3;
  CHECK(contains(error_of([&] { ChatTemplate("{{ 1 }}{{ 2 }}{{ 3 }}{{ 4 }}", "t").render(input); }),
                 "more than 3 steps"));
}

}  // namespace fsdp::data
