// Files of SQuAD v1.1 as rows: a row is a question, with the fields id, question, context and
// answer (the first of its answers; "No Answer" where it has none). The file is walked, not held:
//   {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers":
//   [...]}]}]}]}
// or has a row for each question, as the hub's data set, also as the elements of "data":
//   {"id", "title", "context", "question", "answers": {"text": [...], "answer_start": [...]}}
// Not here: what text a row becomes (row_template.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "tools/data/document.h"
#include "tools/data/row_spans.h"

namespace fsdp::data {

// As JSON: spans of the file.
struct QuestionSpan {
  std::string_view context;   // a string; empty: the paragraph has none, or the row holds it
  std::string_view question;  // an object
  int64_t line = 0;           // that the question begins in, from 1
  RowPlace place;             // of its paragraph, and of the question in it; or of a row

  bool is_row() const { return place.inside == 0; }
};

// Error that names `file` and the line for a file of another form. A question may be malformed in
// itself.
void for_each_question(std::string_view text, const std::string& file,
                       const std::function<void(const QuestionSpan&)>& use);
// The same question again. `text`: of the whole file.
QuestionSpan question_at(std::string_view text, const RowPlace& place, const std::string& file);

// The texts of the first `most` answers of a question, or of a row. Error that begins with `where`.
std::vector<std::string> answers_of(const Json& question, const std::string& where,
                                    size_t most = SIZE_MAX);
// Its fields. Error that begins with `where`.
Json row_of(const QuestionSpan& question, const std::string& where);

}  // namespace fsdp::data
