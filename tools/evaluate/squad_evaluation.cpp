// Files to questions, questions to prompts, answers to scores. Contract: squad_evaluation.h.
#include "tools/evaluate/squad_evaluation.h"

#include <chrono>
#include <filesystem>
#include <unordered_map>

#include "core/error.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/data/json_row.h"
#include "tools/data/row_template.h"
#include "tools/data/squad.h"
#include "tools/data/text_format.h"
#include "tools/data/text_stream.h"
#include "tools/data/tokenizer/characters.h"
#include "tools/data/tokenizer/utf8.h"
#include "tools/generate/generation_plan.h"
#include "tools/predict/model_use.h"

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
             "{}: the question has {} tokens without its context, and only {} fit", question.where,
             tokens(0), room);
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
      FSDP_CHECK(is_new, "{}: the id \"{}\" also belongs to the question at {}", question.where,
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

namespace {

struct PlannedAnswers {
  std::vector<SquadQuestion> questions;
  GenerationPlan generation;
  int64_t length = 0;  // that bounds a prompt and its answer
  int64_t cut = 0;
};

int64_t length_of(const SquadEvaluationOptions& options, const models::ModelConfig& model) {
  const int64_t most = most_tokens(model);
  FSDP_CHECK(options.length <= most, "--sequence-length: the model has {} positions, got {}",
             model.max_positions, options.length);
  const int64_t length = options.length > 0 ? options.length : model.max_positions;
  FSDP_CHECK(options.tokens < length,
             "--tokens: expected fewer than the {} tokens of a prompt and its answer, got {}",
             length, options.tokens);
  return length;
}

PlannedAnswers plan_answers(const SquadEvaluationOptions& options) {
  PlannedAnswers out;
  const ModelSource source = find_model(options.model.folder, options.model.base);
  out.questions = read_questions(options.files, options.limit);
  const auto make = [&](const data::Tokenizer& tokenizer, const models::ModelConfig& model) {
    out.length = length_of(options, model);
    SquadPrompts made = make_prompts(out.questions, tokenizer, out.length - options.tokens);
    out.cut = made.cut;
    return std::move(made.prompts);
  };
  out.generation = plan_generation(source, make, options.model.tokenizer, /*ignore_end=*/false,
                                   {.tokens = options.tokens});
  return out;
}

// Before the answers, which may take hours: a file that cannot be written is told at once.
void check_predictions(const SquadEvaluationOptions& options) {
  if (options.predictions.empty()) return;
  const std::filesystem::path path = options.predictions;
  std::error_code none;
  FSDP_CHECK(!std::filesystem::is_directory(path, none),
             "--predictions: {}: expected a file, got a folder", path.string());
  for (const std::string& file : options.files) {
    FSDP_CHECK(!std::filesystem::equivalent(path, file, none),
               "--predictions: {}: this file holds the questions", path.string());
  }
  const AtomicFile can_be_made(path);
}

std::string without_outer_space(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

// A byte model may stop within a character, which is replaced as in transformers.
std::string answer_of(const EncodedPrompts& prompts, size_t prompt, const Generated& text) {
  const std::string bytes = data::text_after(*prompts.tokenizer, prompts.ids[prompt], text.ids);
  return without_outer_space(data::to_valid_utf8(bytes));
}

std::string as_file(const std::vector<SquadQuestion>& questions, const SquadAnswers& answers) {
  Json out = Json::object();
  for (const SquadQuestion& question : questions) out[question.id] = answers.at(question.id);
  return out.dump({.indent = 2}) + "\n";
}

void note_what_is_odd(const PlannedAnswers& planned, const SquadEvaluationOptions& options,
                      const SquadListener& listener) {
  for (const std::string& note : planned.generation.notes) listener.note(note);
  if (planned.cut == 0) return;
  listener.note(fmt::format(
      "{} of {} contexts are cut at their end: a prompt and its answer of {} tokens have {} "
      "tokens at most",
      planned.cut, planned.questions.size(), options.tokens, planned.length));
}

}  // namespace

AnswerScore mean_score(const std::vector<SquadQuestion>& questions, const SquadAnswers& answers,
                       const AnswerMetric& metric) {
  AnswerScore sum;
  for (const SquadQuestion& question : questions) {
    std::string_view answer = answers.at(question.id);
    const size_t cue = metric.cue.empty() ? answer.npos : answer.rfind(metric.cue);
    if (cue != answer.npos) answer.remove_prefix(cue + metric.cue.size());
    const AnswerScore score = metric.score(answer, question.answers);
    sum.exact_match += score.exact_match;
    sum.f1 += score.f1;
  }
  const auto count = static_cast<double>(questions.size());
  return {sum.exact_match / count, sum.f1 / count};
}

SquadFigures evaluate_squad(const SquadEvaluationOptions& options, RankContext& rank,
                            const SquadListener& listener) {
  const bool speaks = rank.world.rank() == 0;
  PlannedAnswers planned;
  agree(rank.world, [&] {
    if (speaks) check_predictions(options);
    planned = plan_answers(options);
    if (speaks) note_what_is_odd(planned, options, listener);
  });
  const GenerationPlan& plan = planned.generation;
  const PlacedOptions placed = options_for_use(plan.model, plan.longest, options.model, rank);
  check_fits(
      rank, placed,
      use_of_generation(plan.options, plan.prompts.ids, options.batch, plan.model.vocabulary));
  Session session = place_session(rank.world, placed);
  return with_session(rank, [&] {
    load_model(session, plan.source, listener.note);
    const auto started = std::chrono::steady_clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    };
    const auto count = static_cast<int64_t>(planned.questions.size());
    const std::vector<Generated> texts = generate_in_batches(
        session, plan.options, plan.prompts.ids, static_cast<size_t>(options.batch), {},
        [&](size_t prompt, const Generated&) {
          if (speaks) listener.progress(static_cast<int64_t>(prompt) + 1, count, seconds());
        });
    SquadFigures out = {.questions = count,
                        .cut = planned.cut,
                        .length = planned.length,
                        .seconds = seconds(),
                        .tokenizer = plan.prompts.tokenizer_name};
    agree(rank.world, [&] {
      if (!speaks) return;
      const std::string note = note_on_unknown_ids(plan.prompts, texts);
      if (!note.empty()) listener.note(note);
      SquadAnswers answers;
      for (size_t i = 0; i < texts.size(); ++i) {
        answers[planned.questions[i].id] = answer_of(plan.prompts, i, texts[i]);
        out.stopped += texts[i].stopped ? 1 : 0;
      }
      for (const AnswerMetric* metric : options.metrics) {
        out.scores.push_back(mean_score(planned.questions, answers, *metric));
      }
      if (options.predictions.empty()) return;
      write_file_atomically(options.predictions, as_file(planned.questions, answers));
    });
    return out;
  });
}

}  // namespace fsdp::tools
