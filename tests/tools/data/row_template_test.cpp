// What templates make of rows, and what is wrong with templates and rows. The prompts that have a
// name against those of Stanford Alpaca's program.
#include "tools/data/row_template.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tools/config/guests.h"
#include "tools/data/json_row.h"

namespace fsdp::data {
namespace {

RowParts filled(std::string_view text, std::string_view row) {
  return RowTemplate(text, "t").fill(parse_json_row(row, "r:1", Numbers::kSpelled), "r:1");
}

TEST_CASE("Alpaca's prompts with and without an input; the response is the answer") {
  const Json fixture = read_json_file(test::fixture_path("alpaca.json"));
  const auto alpaca = find_template("alpaca");
  CHECK(alpaca->has_answer());
  size_t with_input = 0;
  for (size_t i = 0; i < fixture["rows"].size(); ++i) {
    const Json& row = fixture["rows"][i];
    with_input += !row.value("input", "").empty();
    const RowParts parts = alpaca->fill(row, "");
    CHECK(parts.whole() == fixture["texts"][i].text());
    CHECK(parts.cue == "\n\n### Response:");
    CHECK(parts.answer == row["output"].text());
  }
  CHECK(fixture["rows"].size() == 4);
  CHECK(with_input == 2);
}

TEST_CASE("the other templates that have a name") {
  const char* const row = R"({"instruction": "i", "input": "x", "output": "o"})";
  const auto named = [](const char* name, const char* json) {
    return find_template(name, config::guests_of<NamedTemplate>())
        ->fill(Json::parse(json), "")
        .whole();
  };
  CHECK(named("alpaca_short", row) == "### Instruction:\ni\n\n### Input:\nx\n\n### Response:\no");
  CHECK(named("alpaca_short", R"({"instruction": "i", "input": "", "output": "o"})") ==
        "### Instruction:\ni\n\n### Response:\no");
  CHECK(find_template("squad")->fill(
            Json::parse(R"({"question": "q", "context": "c", "answer": "a"})"), "") ==
        RowParts{"Question: q Context: c", " Answer:", " a"});
  CHECK(named("chess", R"({"text": "e2e4 c7c5"})") == "e2e4 c7c5");
  CHECK(named("chess", R"({"Moves": ["e2e4", "c7c5"], "Result": "1-0"})") == "e2e4 c7c5");
  CHECK_FALSE(find_template("chess", config::guests_of<NamedTemplate>())->has_answer());
  CHECK(is_template_name("chess", config::guests_of<NamedTemplate>()));
  CHECK_FALSE(is_template_name("chess"));
  CHECK_FALSE(is_template_name("checkers", config::guests_of<NamedTemplate>()));
}

TEST_CASE("fields, lists, conditions, braces, and the end of the file") {
  CHECK(filled("a{x}b{y z}\n", R"({"x": "1", "y z": "2"})").text == "a1b2");
  CHECK(filled("{x}\n\n", R"({"x": "1"})").text == "1\n");  // an editor adds one end of a line
  CHECK(filled("{{{x}}} }}{{", R"({"x": "1"})").text == "{1} }{");
  CHECK(filled("{x}", R"({"x": ["1", "2", "3"]})").text == "1 2 3");
  for (const auto& [row, expected] : {std::pair{R"({"x": "1"})", "[1]"},
                                      {R"({"x": ""})", "(-)"},
                                      {R"({})", "(-)"},
                                      {R"({"x": null})", "(-)"},
                                      {R"({"x": NaN})", "(-)"},
                                      {R"({"x": false})", "(-)"},
                                      {R"({"x": true})", "[true]"},
                                      {R"({"x": 0})", "[0]"},
                                      {R"({"x": []})", "(-)"}}) {
    CHECK(filled("{if x}[{x}]{else}(-){end}", row).text == expected);
  }
  CHECK(filled("a{if x}b{end}{>cue}c{x}{>answer}d{x}", R"({"x": "1"})") ==
        RowParts{"ab", "c1", "d1"});
  CHECK(filled("{x}{>answer}b", R"({"x": "1"})") == RowParts{"1", "", "b"});
}

TEST_CASE("numbers and truths as they are spelled") {
  for (const char* spelling : {"4", "-7", "1.50", "1e5", "1E+5", "123456789012345678901", "true",
                               "false", "18446744073709551615", "-0.0"}) {
    CHECK(filled("{x}", fmt::format("{{\"x\": {}}}", spelling)).text == spelling);
  }
  CHECK(filled("{x}", R"({"x": -0})").text == "0");  // as Python's str
  CHECK(filled("{x}", R"({"x": ["a", 5, 2.0, true]})").text == "a 5 2.0 true");
  CHECK(find_template("alpaca")
            ->fill(parse_json_row(R"({"instruction": "i", "input": null, "output": 4})", ""), "")
            .whole()
            .ends_with("completes the request.\n\n### Instruction:\ni\n\n### Response:4"));
}

TEST_CASE("rows that a template cannot be filled with") {
  const auto refusal = [](const char* row) { return test::error_of([&] { filled("{x}", row); }); };
  CHECK(refusal(R"({"y": "1", "z": 2})") == "r:1: no field \"x\" (fields: y, z)");
  CHECK(test::error_of([&] { filled("{answers.text}", R"({"answers": {"text": ["a"]}})"); }) ==
        "r:1: no field \"answers.text\" (fields: answers); data.format=squad has the first as "
        "{answer}");
  CHECK(refusal(R"({"x": null})") ==
        "r:1: field \"x\": expected a text, got null ({if x} asks whether a row has one)");
  CHECK(test::contains(refusal(R"({"x": NaN})"), "expected a text, got NaN"));
  CHECK(test::contains(refusal(R"({"x": Infinity})"), "expected a text, got number"));
  CHECK(refusal(R"({"x": {"y": 1}})") == "r:1: field \"x\": expected a string, got object");
  CHECK(refusal(R"({"x": ["a", null]})") ==
        "r:1: field \"x\": expected texts in the list, got null");
  CHECK(refusal("[1]") == "r:1: expected an object, got array");
}

TEST_CASE("what is no template") {
  const auto refusal = [](const char* text) {
    return test::error_of([&] { RowTemplate(text, "f"); });
  };
  CHECK(refusal("{a}\n{if b}\n") == "f:2: expected {end} after {if b}");
  CHECK(refusal("\n{a") == "f:2: expected } after {");
  CHECK(refusal("a}") == "f:1: expected }} for a brace in the text, got }");
  CHECK(refusal("{if a}{if b}") == "f:1: expected {end} before another {if}");
  CHECK(refusal("{a}{else}") == "f:1: {else} without {if ...}");
  CHECK(refusal("{if a}{else}{else}") == "f:1: {else} without {if ...}");
  CHECK(refusal("{a}{end}") == "f:1: {end} without {if ...}");
  CHECK(refusal("{if a}{>answer}{end}") == "f:1: expected {>answer} outside of {if}");
  CHECK(test::contains(refusal("{a}{>answer}{>cue}"), "got another {>cue}"));
  CHECK(test::contains(refusal("{a}{>answer}{>answer}"), "got another {>answer}"));
  CHECK(test::contains(refusal("{>anwser}{a}"), "got \">anwser\""));
  CHECK(test::contains(refusal("{}"), "expected the name of a field"));
  CHECK(refusal("text") == "f: expected a field in braces, such as {text}");
  CHECK(
      test::error_of([] { find_template("no/such.txt", config::guests_of<NamedTemplate>()); }) ==
      "data.template: expected alpaca, alpaca_short, squad, chess, axolotl_alpaca, or a file, got "
      "\"no/such.txt\"");
  const test::TempFolder folder;
  const auto in_file = [&](std::string_view text) {
    return find_template(folder.write("a.template", text).string())->text();
  };
  CHECK(in_file("<{text}>\n") == "<{text}>");
  CHECK(in_file("\xef\xbb\xbfQ: {q}\r\nA: {a}\r\n") == "Q: {q}\nA: {a}");  // of Windows
  CHECK(test::contains(test::error_of([&] { in_file(std::string_view("\xff\xfe{\0a\0", 6)); }),
                       "a.template: expected a text of UTF-8, got UTF-16; convert it: iconv"));
  CHECK(test::contains(test::error_of([&] { in_file("a\xff{b}"); }),
                       "a.template: invalid UTF-8: byte 0xff at offset 1"));
}

}  // namespace
}  // namespace fsdp::data
