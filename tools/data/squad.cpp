// Contract: tools/data/squad.h.
#include "tools/data/squad.h"

#include <algorithm>

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

// Whether an object is a row of one question; false: it holds questions, or is neither.
bool is_question(std::string_view object) {
  const std::string_view first =
      first_member(object, {"data", "paragraphs", "question", "context", "answers"});
  return !first.empty() && first != "data" && first != "paragraphs";
}

bool begins_with_question(std::string_view text) {
  return is_question(text.substr(std::min(text.find_first_not_of(" \t\r\n["), text.size())));
}

}  // namespace

void for_each_question(std::string_view text, const std::string& file,
                       const std::function<void(const QuestionSpan&)>& use) {
  const auto of_row = [&](const RowSpan& row) {
    use({"", without_blanks_behind(row.text), row.line, {.begin = row.begin, .inside = 0}});
  };
  if (begins_with_question(text)) return for_each_span(text, spans_of(text), file, of_row);
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
    if (is_question(article.text)) return of_row(article);
    for_each_of("paragraphs", article, file, of_paragraph);
  });
}

QuestionSpan question_at(std::string_view text, const RowPlace& place, const std::string& file) {
  const bool inside = place.begin + place.inside < text.size();
  FSDP_CHECK(inside, "{}: byte {}: expected a question, got the end of the file", file,
             place.begin + place.inside);
  if (place.inside == 0) {
    const std::string_view whole = without_byte_order_mark(text);
    const Spans spans = begins_with_question(whole) ? spans_of(whole) : Spans::kElements;
    return {"", without_blanks_behind(span_at(text.substr(place.begin), spans)), 1, place};
  }
  const RowSpan paragraph = {span_at(text.substr(place.begin), Spans::kElements), 1, place.begin};
  return {context_of(paragraph, file),
          span_at(text.substr(place.begin + place.inside), Spans::kElements), 1, place};
}

std::vector<std::string> answers_of(const Json& question, const std::string& where, size_t most) {
  const Json* answers = question.find("answers");
  if (answers && answers->is_object()) answers = answers->find("text");
  FSDP_CHECK(answers && answers->is_array(), "{}: field \"answers\": expected a list, got {}",
             where, answers ? answers->type_name() : "none");
  std::vector<std::string> out;
  for (const Json& answer : *answers) {
    if (out.size() == most) break;
    out.push_back(answer.is_string() ? answer.text() : field_of(answer, where, "text"));
  }
  return out;
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
  if (question.is_row()) {
    row["context"] = field_of(parsed, where, "context");
  } else {
    FSDP_CHECK(!question.context.empty(), "{}: its paragraph has no \"context\"", where);
    row["context"] = parse_json_line(question.context, where);
    FSDP_CHECK(row["context"].is_string(), "{}: field \"context\": expected a string, got {}",
               where, row["context"].type_name());
  }
  const std::vector<std::string> answers = answers_of(parsed, where, 1);
  row["answer"] = answers.empty() ? kNoAnswer : answers[0];
  return row;
}

}  // namespace fsdp::data
