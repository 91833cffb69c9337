// The questions of a SQuAD file as rows; what is wrong with files and questions is named by line.
// Requirements: S1.3.
#include "tools/data/squad.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"
#include "tools/data/text_source.h"

namespace fsdp::data {
namespace {

std::vector<RowParts> rows(const std::filesystem::path& file, const TextOptions& options) {
  std::vector<RowParts> out;
  for_each_document(file, options, [&](const Document& d) {
    out.push_back({std::string(d.text), std::string(d.cue), std::string(d.answer)});
  });
  return out;
}

const TextOptions kSquad{.format = TextFormat::kSquad};

TEST_CASE("questions in the order of the file, the first answer of each") {
  test::TempFolder folder;
  const Json fixture = read_json_file(test::fixture_path("objectives.json"));
  for (const int indent : {-1, 2}) {
    const auto file = folder.write("a.json", fixture["questions"].dump({.indent = indent}) + "\n");
    const std::vector<RowParts> all = rows(file, kSquad);
    REQUIRE(all.size() == 3);
    CHECK(all[0] == RowParts{"Question: What colour was the sky? Context: The sky was blue, and it "
                             "rained in Z\xc3\xbcrich.",
                             " Answer:", " blue"});
    CHECK(all[1].answer == " No Answer");
    CHECK(all[1].text.starts_with("Question: Who counted the \"drops\"? Context: The sky"));
    CHECK(all[2].text.starts_with("Question: What was it about? Context: A long story {about}"));
    CHECK(all[2].answer == " bread, water");
    size_t i = 0;
    const MappedFile mapped(file);
    TextOptions complete = kSquad;
    complete.row_template = kSquad.template_of_rows();
    for_each_document(file, kSquad, [&](const Document& document) {
      CHECK(document_at(mapped, document.place, complete) == all[i++]);
    });
    TextOptions own = kSquad;
    own.row_template = std::make_shared<RowTemplate>("{id}: {question}{>answer}{answer}", "t");
    CHECK(rows(file, own)[2] == RowParts{"q3: What was it about?", "", "bread, water"});
  }
}

TEST_CASE("a row for each question, as on the hub") {
  const char* const first = R"({"id": "1", "title": "t", "context": "c [", "question": "q",)"
                            R"( "answers": {"text": ["a", "b"], "answer_start": [0, 1]}})";
  const char* const second = R"({"id": "2", "context": "d", "question": "r",)"
                             R"( "answers": {"text": [], "answer_start": []}})";
  const std::string lines = fmt::format("{}\n\n{}\n", first, second);
  const std::string array = fmt::format("\xef\xbb\xbf[{},\n{}]", first, second);
  const std::string within = fmt::format("{{\"version\": 1, \"data\": [{}, {}]}}", first, second);
  const std::string indented = Json::parse(first).dump({.indent = 1}) + "\n" +
                               Json::parse(second).dump({.indent = 1}) + "\n";
  TextOptions complete = kSquad;
  complete.row_template = kSquad.template_of_rows();
  for (const std::string& content : {lines, array, within, indented}) {
    CAPTURE(content);
    test::TempFolder folder;
    const auto file = folder.write("a.json", content);
    const std::vector<RowParts> all = rows(file, kSquad);
    REQUIRE(all.size() == 2);
    CHECK(all[0] == RowParts{"Question: q Context: c [", " Answer:", " a"});
    CHECK(all[1] == RowParts{"Question: r Context: d", " Answer:", " No Answer"});
    size_t i = 0;
    const MappedFile mapped(file);
    for_each_document(file, kSquad, [&](const Document& document) {
      CHECK(document_at(mapped, document.place, complete) == all[i++]);
    });
  }
}

// The error without the folder's name.
std::string refusal(std::string_view content, const TextOptions& options = kSquad) {
  test::TempFolder folder;
  const auto file = folder.write("a.json", content);
  const std::string error = test::error_of([&] { rows(file, options); });
  const std::string prefix = folder.path().string() + "/";
  return error.starts_with(prefix) ? error.substr(prefix.size()) : error;
}

std::string file_of(std::string_view paragraph) {
  return fmt::format("{{\"version\": \"1.1\",\n\"data\": [{{\"paragraphs\": [\n{}\n]}}]}}",
                     paragraph);
}

TEST_CASE("files of another form") {
  CHECK(refusal("[1]") == "a.json:1: expected an object");
  CHECK(refusal("{\"rows\": []}") ==
        "a.json:1: expected an object with \"data\", as files of SQuAD have");
  CHECK(refusal("{\n\"data\": 5}") == "a.json:2: expected an array");
  CHECK(refusal("{\"data\": [{}]}") ==
        "a.json:1: expected an object with \"paragraphs\", as files of SQuAD have");
  CHECK(refusal(file_of("{\"context\": \"c\"}")) ==
        "a.json:3: expected an object with \"qas\", as files of SQuAD have");
  CHECK(refusal("{\"data\": [") == "a.json:1: malformed JSON: the object does not end");
  CHECK(refusal("{\"data\" []}") == "a.json:1: malformed JSON: expected : after \"data\"");
  CHECK(refusal("{data: []}") == "a.json:1: malformed JSON: expected the name of a member");
  CHECK(refusal("{\"data\": []}") == "a.json: no rows");
}

TEST_CASE("bad questions are named by line, and can be skipped") {
  const std::string good = R"({"question": "q", "answers": [{"text": "a"}]})";
  const std::pair<std::string, std::string> bad[] = {
      {R"({"answers": []})", "no field \"question\" (fields: answers)"},
      {R"({"question": "q"})", "field \"answers\": expected a list, got none"},
      {R"({"question": "q", "answers": 5})", "field \"answers\": expected a list, got number"},
      {R"({"question": "q", "answers": [{}]})", "no field \"text\" (fields: none)"},
      {R"({"question": "q", "answers": [5]})", "expected an object, got number"},
      {R"({"question": q})", "malformed JSON: "},
      {"5", "expected an object, got number"},
      {"{\"question\": \"\xff\", \"answers\": []}", "invalid UTF-8: byte 0xff"}};
  for (const auto& [question, reason] : bad) {
    CAPTURE(question);
    const std::string file =
        file_of(fmt::format("{{\"context\": \"c\", \"qas\": [{},\n{}]}}", good, question));
    CHECK(test::contains(refusal(file), "a.json:4: " + reason));
    test::TempFolder folder;
    TextOptions skip = kSquad;
    skip.bad_rows = BadRows::kSkip;
    const auto skipped =
        for_each_document(folder.write("a.json", file), skip, [](const Document&) {});
    REQUIRE(skipped.size() == 1);
    CHECK(skipped[0].line == 4);
    CHECK(skipped[0].reason.starts_with(reason));
    CHECK(skipped[0].reason.ends_with(" (row 2)"));  // all rows may stand in one line
  }
  for (const auto& [row, reason] :
       {std::pair{R"({"question": "q", "answers": []})", "no field \"context\""},
        {R"({"question": "q", "context": "c", "answers": {"text": "a"}})",
         "field \"answers\": expected a list, got string"},
        {R"({"question": "q", "context": "c", "answers": {}})",
         "field \"answers\": expected a list, got none"},
        {R"({"question": "q", "context": "c", "answers": "{'text': array(['a'])}"})",
         "field \"answers\": expected a list, got string"}}) {
    CHECK(test::contains(refusal(std::string("\n") + row), std::string("a.json:2: ") + reason));
  }
  CHECK(refusal(file_of("{\"qas\": [" + good + "]}")) ==
        "a.json:3: its paragraph has no \"context\" (row 1)");
  CHECK(test::contains(refusal(file_of("{\"context\": 5, \"qas\": [" + good + "]}")),
                       "a.json:3: field \"context\": expected a string, got number"));
}

}  // namespace
}  // namespace fsdp::data
