// Files to questions, questions to prompts. Contract: squad_questions.h.
#include "tools/evaluate/squad_questions.h"

#include <unordered_map>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/data/json_row.h"
#include "tools/data/row_template.h"
#include "tools/data/squad.h"
#include "tools/data/text_format.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/utf8.h"

namespace fsdp::tools {
namespace {

SquadQuestion question_of(const data::QuestionSpan& span, std::string where) {
  SquadQuestion out = {.row = data::row_of(span, where)};
  const Json parsed = data::parse_json_row(span.question, where);
  out.id = data::field_of(parsed, where, "id");
  out.answers = data::answers_of(parsed, where);
  FSDP_CHECK(!out.answers.empty(),
             "{}: field \"answers\": expected an answer to compare with, got none (questions "
             "without an answer are SQuAD 2.0's)",
             where);
  out.where = std::move(where);
  return out;
}

// The row's text up to the answer, with the first `bytes` of its context.
std::string prompt_of(const data::RowTemplate& row_template, const SquadQuestion& question,
                      size_t bytes) {
  Json row = question.row;
  row["context"] = question.row["context"].text().substr(0, bytes);
  const data::RowParts parts = row_template.fill(row, question.where);
  return parts.text + parts.cue;
}

// Where the characters of a text begin, and its end.
std::vector<size_t> ends_of_characters(const std::string& text) {
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); i += data::character_length(text[i])) out.push_back(i);
  out.push_back(text.size());
  return out;
}

// The longest that fits. More context has more tokens, but for a few at its end that join: what is
// returned has been counted.
std::string shortened_prompt(const data::RowTemplate& row_template, const SquadQuestion& question,
                             const data::Tokenizer& tokenizer, int64_t room) {
  const auto tokens = [&](size_t bytes) {
    return static_cast<int64_t>(tokenizer.encode(prompt_of(row_template, question, bytes)).size());
  };
  FSDP_CHECK(tokens(0) <= room,
             "{}: the question has {} tokens without its context, there is room for {}",
             question.where, tokens(0), room);
  const std::vector<size_t> ends = ends_of_characters(question.row["context"].text());
  size_t fits = 0, too_many = ends.size() - 1;  // characters
  while (too_many - fits > 1) {
    const size_t middle = fits + (too_many - fits) / 2;
    (tokens(ends[middle]) <= room ? fits : too_many) = middle;
  }
  return prompt_of(row_template, question, ends[fits]);
}

}  // namespace

std::vector<SquadQuestion> read_questions(const std::vector<std::string>& files, int64_t limit) {
  std::vector<SquadQuestion> out;
  std::unordered_map<std::string, std::string> places;  // of each id
  const auto full = [&] { return limit > 0 && static_cast<int64_t>(out.size()) >= limit; };
  for (const std::string& file : files) {
    if (full()) break;
    const MappedFile mapped(file);
    const std::string_view text = data::without_byte_order_mark(mapped.text());
    FSDP_CHECK(!text.empty(), "{}: the file is empty", file);
    data::check_kind(mapped, data::TextFormat::kSquad);
    const size_t before = out.size();
    data::for_each_question(text, file, [&](const data::QuestionSpan& span) {
      if (full()) return;
      SquadQuestion question = question_of(span, fmt::format("{}:{}", file, span.line));
      const auto [place, is_new] = places.emplace(question.id, question.where);
      FSDP_CHECK(is_new, "{}: the id \"{}\" is that of the question at {}, too", question.where,
                 question.id, place->second);
      out.push_back(std::move(question));
    });
    FSDP_CHECK(out.size() > before, "{}: no questions", file);
  }
  return out;
}

SquadPrompts make_prompts(const std::vector<SquadQuestion>& questions,
                          const data::Tokenizer& tokenizer, int64_t room) {
  const auto row_template = data::find_template("squad");
  SquadPrompts out;
  for (const SquadQuestion& question : questions) {
    data::Prompt prompt = {question.where, prompt_of(*row_template, question, std::string::npos),
                           std::nullopt};
    if (static_cast<int64_t>(tokenizer.encode(prompt.text).size()) > room) {
      prompt.text = shortened_prompt(*row_template, question, tokenizer, room);
      ++out.cut;
    }
    out.prompts.push_back(std::move(prompt));
  }
  return out;
}

}  // namespace fsdp::tools
