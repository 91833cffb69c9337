// Contract: tools/data/squad.h.
#include "tools/data/squad.h"

#include "core/error.h"
#include "tools/data/json_row.h"
#include "tools/data/row_template.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::data {
namespace {

constexpr const char* kNoAnswer = "No Answer";

// The elements of the member `name`; error when there is none.
void for_each_of(const char* name, const RowSpan& object, const std::string& file,
                 const std::function<void(const RowSpan&)>& use) {
  bool found = false;
  for_each_member(object, file, [&](std::string_view member, const RowSpan& value) {
    if (member != name) return;
    found = true;
    for_each_element(value, file, use);
  });
  FSDP_CHECK(found, "{}:{}: expected an object with \"{}\", as files of SQuAD have", file,
             object.line, name);
}

std::string_view context_of(const RowSpan& paragraph, const std::string& file) {
  std::string_view context;
  for_each_member(paragraph, file, [&](std::string_view member, const RowSpan& value) {
    if (member == "context") context = value.text;
  });
  return context;
}

}  // namespace

void for_each_question(std::string_view text, const std::string& file,
                       const std::function<void(const QuestionSpan&)>& use) {
  const auto of_paragraph = [&](const RowSpan& paragraph) {
    const std::string_view context = context_of(paragraph, file);
    for_each_of("qas", paragraph, file, [&](const RowSpan& question) {
      use({context,
           question.text,
           question.line,
           {.begin = paragraph.begin, .inside = question.begin - paragraph.begin}});
    });
  };
  for_each_of("data", {text, 1, 0}, file, [&](const RowSpan& article) {
    for_each_of("paragraphs", article, file, of_paragraph);
  });
}

QuestionSpan question_at(std::string_view text, const RowPlace& place, const std::string& file) {
  const bool inside = place.begin + place.inside < text.size();
  FSDP_CHECK(inside, "{}: byte {}: expected a question, got the end of the file", file,
             place.begin + place.inside);
  const RowSpan paragraph = {span_at(text.substr(place.begin), Spans::kElements), 1, place.begin};
  return {context_of(paragraph, file),
          span_at(text.substr(place.begin + place.inside), Spans::kElements), 1, place};
}

Json row_of(const QuestionSpan& question, const std::string& where) {
  for (const std::string_view part : {question.context, question.question}) {
    const size_t bad = first_invalid_utf8(part);
    FSDP_CHECK(bad == part.size(), "{}: invalid UTF-8: byte 0x{:02x}", where,
               static_cast<uint8_t>(part[bad]));
  }
  const Json parsed = parse_json_row(question.question, where);
  Json row = Json::object();
  row["question"] = field_of(parsed, where, "question");
  if (const Json* id = parsed.find("id"); id && id->is_string()) row["id"] = *id;
  FSDP_CHECK(!question.context.empty(), "{}: its paragraph has no \"context\"", where);
  row["context"] = parse_json_line(question.context, where);
  FSDP_CHECK(row["context"].is_string(), "{}: field \"context\": expected a string, got {}", where,
             row["context"].type_name());
  const Json* answers = parsed.find("answers");
  FSDP_CHECK(answers && answers->is_array(), "{}: field \"answers\": expected a list, got {}",
             where, answers ? answers->type_name() : "none");
  row["answer"] = answers->empty() ? kNoAnswer : field_of(answers->front(), where, "text");
  return row;
}

}  // namespace fsdp::data
