// fsdp eval: how well a model predicts a text: loss, perplexity, bits per token and per byte; with
// keys of data, how well it predicts what a run trains of rows, as the run's own evaluation; or, as
// a task, how well it answers the questions of SQuAD. The same on any number of ranks. Read
// next: tools/evaluate/text_evaluation.h, tools/evaluate/squad_evaluation.h.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/ranges.h>
#include <unistd.h>

#include "core/io/json.h"
#include "core/text/numbers.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/data/text_source.h"
#include "tools/evaluate/squad_evaluation.h"
#include "tools/evaluate/text_evaluation.h"
#include "tools/guides/squad_metrics.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"
#include "tools/report/progress.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kBatch = 8;

struct EvalOptions {
  LaunchOptions launch;
  ModelOptions model;
  TextEvaluationOptions text;  // of a task, too: its files, length and batch
  DataKeys keys;               // given: rows as fsdp train has them
  int64_t batch = 0;           // 0: kBatch, or that of the configuration
  std::string task;            // "": the loss of a text
  SquadEvaluationOptions squad;
  bool json = false;
};

// On a terminal a line that is rewritten, elsewhere a line now and then; stderr, beside the result.
class ProgressLine {
 public:
  explicit ProgressLine(bool under_launcher)
      : terminal_(!under_launcher && ::isatty(STDERR_FILENO) != 0) {}
  // `what` of `of`, such as "batch", are done.
  void show(const char* what, int64_t done, int64_t of, double seconds,
            const std::string& figures) {
    const bool last = done == of;
    if (last ? shown_at_ == 0 : seconds - shown_at_ < (terminal_ ? 0.2 : 10)) return;
    shown_at_ = seconds;
    const double left = seconds / static_cast<double>(done) * static_cast<double>(of - done);
    fmt::print(stderr, "{}fsdp: {} {}/{}  {}  ETA {}{}", terminal_ ? "\r\x1b[K" : "", what, done,
               of, figures, format_duration(left), terminal_ && !last ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const bool terminal_;
  double shown_at_ = 0;
};

void print_text(const TextFigures& figures) {
  fmt::print("loss            {:>10}   nats per token\n", format_fixed(figures.loss.mean(), 4));
  fmt::print("perplexity      {:>10}\n", format_fixed(figures.perplexity(), 4));
  fmt::print("bits per token  {:>10}\n", format_fixed(figures.bits_per_token(), 4));
  for (const auto& [role, loss] : figures.by_role) {
    fmt::print("  {:<14}{:>10}   of {} tokens of its turns\n", role,
               loss.tokens > 0 ? format_fixed(loss.mean(), 4) : "none", format_count(loss.tokens));
  }
  const bool of_text = figures.bytes > 0;
  if (of_text) {
    fmt::print("bits per byte   {:>10}\n", format_fixed(figures.bits_per_byte(), 4));
    fmt::print("{} tokens predicted of {} ({} bytes; tokenizer: {})\n",
               format_count(figures.loss.tokens), format_count(figures.tokens),
               format_count(figures.bytes), figures.tokenizer);
  } else {
    fmt::print("{} tokens predicted (tokenizer: {})\n", format_count(figures.loss.tokens),
               figures.tokenizer);
  }
  fmt::print("{} sequence{} of up to {} tokens{}; {:.1f} s, {} tokens/s\n",
             format_count(figures.sequences), figures.sequences == 1 ? "" : "s", figures.length,
             of_text ? fmt::format(", one every {}", figures.stride) : "", figures.seconds,
             format_count(std::llround(static_cast<double>(figures.loss.tokens) /
                                       std::max(figures.seconds, 1e-9))));
}

void print_json(const TextFigures& figures, const std::string& dtype, int ranks) {
  Json out = {{"loss", figures.loss.mean()},
              {"perplexity", figures.perplexity()},
              {"bits_per_token", figures.bits_per_token()},
              {"predicted_tokens", figures.loss.tokens},
              {"sequences", figures.sequences},
              {"sequence_length", figures.length},
              {"tokenizer", figures.tokenizer},
              {"dtype", dtype},
              {"ranks", ranks},
              {"seconds", figures.seconds}};
  for (const auto& [role, loss] : figures.by_role) {
    Json& of = out["by_role"][role];
    of["predicted_tokens"] = loss.tokens;
    if (loss.tokens > 0) of["loss"] = loss.mean();
  }
  if (figures.bytes > 0) {
    out["bits_per_byte"] = figures.bits_per_byte();
    out["tokens"] = figures.tokens;
    out["bytes"] = figures.bytes;
    out["stride"] = figures.stride;
  }
  fmt::print("{}\n", out.dump({.indent = 2}));
}

void print_squad(const SquadFigures& figures) {
  const AnswerScore &official = figures.scores.at(0), &kaust = figures.scores.at(1);
  fmt::print("exact match     {:10.4f}   of 100, as the official evaluation of SQuAD v1.1\n",
             100 * official.exact_match);
  fmt::print("F1              {:10.4f}\n", 100 * official.f1);
  fmt::print("exact match     {:10.4f}   of 1, as the KAUST workshop's script\n",
             kaust.exact_match);
  fmt::print("F1              {:10.4f}\n", kaust.f1);
  fmt::print(
      "{} question{}, {} with a context that is cut; {} answer{} ended by end-of-text "
      "(tokenizer: {})\n",
      format_count(figures.questions), figures.questions == 1 ? "" : "s", format_count(figures.cut),
      format_count(figures.stopped), figures.stopped == 1 ? "" : "s", figures.tokenizer);
  fmt::print("prompt and answer of up to {} tokens; {:.1f} s\n", figures.length, figures.seconds);
}

void print_json(const SquadFigures& figures, const SquadEvaluationOptions& options, int ranks) {
  const AnswerScore &official = figures.scores.at(0), &kaust = figures.scores.at(1);
  const Json out = {{"task", "squad"},
                    {"exact_match", 100 * official.exact_match},
                    {"f1", 100 * official.f1},
                    {"kaust_exact_match", kaust.exact_match},
                    {"kaust_f1", kaust.f1},
                    {"questions", figures.questions},
                    {"cut_contexts", figures.cut},
                    {"stopped", figures.stopped},
                    {"new_tokens", options.tokens},
                    {"sequence_length", figures.length},
                    {"tokenizer", figures.tokenizer},
                    {"dtype", options.model.dtype},
                    {"ranks", ranks},
                    {"seconds", figures.seconds}};
  fmt::print("{}\n", out.dump({.indent = 2}));
}

// With keys of data: as a run that has them evaluates data.validation.
config::TrainConfig config_of(const EvalOptions& options, bool speaks) {
  const TextEvaluationOptions& text = options.text;
  std::vector<config::Override> more;
  add_override("data.validation", "--data", text.files, more);
  add_override("data.sequence_length", "--sequence-length",
               text.length > 0 ? std::to_string(text.length) : "", more);
  add_override("data.cache_dir", "--cache-dir", text.cache, more);
  config::TrainConfig config = read_data_keys(options.keys, more, [&](const std::string& note) {
    if (speaks) print_note(note);
  });
  FSDP_CHECK(!config.data.validation.empty(),
             "--data: expected files, or --config with data.validation");
  const auto typed = [&](const char* key) {
    const auto place = config.places.find(key);
    return place != config.places.end() && place->second.starts_with("--");
  };
  for (const char* key : {"data.train", "data.sources"}) {
    FSDP_CHECK(!typed(key) || config.data.held_out(),
               "--set {}: it has no effect on an evaluation of files; they are data.validation, "
               "or --data",
               key);
  }
  // In a file it is the subset of what is trained.
  if (!typed("data.subset.n") && !typed("data.subset")) config.data.subset = {};
  if (options.batch > 0 || options.keys.config.empty()) {
    config.train.batch = options.batch > 0 ? options.batch : kBatch;
    config.train.rows_per_pass = 0;
    config.train.micro_steps.reset();
  }
  return config;
}

// Rows as a run has them, if keys of data are given, or if the first row is a conversation.
void take_rows_of_run(const EvalOptions& options, bool speaks, TextEvaluationOptions& text) {
  const bool given = options.keys.given();
  if (!given && !data::begins_with_conversation(options.text.files.at(0), {})) return;
  FSDP_CHECK(text.stride == 0 && text.field == TextEvaluationOptions().field,
             "--stride, --field: expected neither with rows that are conversations");
  ModelOptions& model = text.model;
  const ModelSource source = find_model(model.folder, model.base);
  text.config = config_of(options, speaks);
  config::DataSection& data = text.config->data;
  if (!model.tokenizer.empty()) data.tokenizer = model.tokenizer;
  if (data.tokenizer.empty()) data.tokenizer = source.default_tokenizer();
  model.tokenizer = data.tokenizer;
  if (!given && text.length == 0) {
    data.sequence_length = std::min(source.config().max_positions, kLongestByDefault);
  }
}

int run_text(const EvalOptions& options, RankContext& rank) {
  TextEvaluationOptions text = options.text;
  text.model = options.model;
  text.batch = options.batch > 0 ? options.batch : kBatch;
  agree(rank.world, [&] { take_rows_of_run(options, rank.world.rank() == 0, text); });
  ProgressLine line(rank.under_launcher);
  const auto progress = [&](int64_t batches, int64_t of, const TextLoss& loss, double seconds) {
    const double rate = static_cast<double>(loss.tokens) / seconds;
    line.show("batch", batches, of, seconds,
              fmt::format("loss {}  {} tokens/s", format_fixed(loss.mean(), 4),
                          format_count(std::llround(rate))));
  };
  const TextFigures figures = evaluate_text(text, rank, {.note = print_note, .progress = progress});
  if (rank.world.rank() != 0) return 0;
  if (options.json) {
    print_json(figures, text.model.dtype, rank.world.size());
  } else {
    print_text(figures);
  }
  return 0;
}

int run_squad(const EvalOptions& options, RankContext& rank) {
  SquadEvaluationOptions squad = options.squad;
  squad.model = options.model;
  squad.metrics = {&kOfficialSquad, &kKaustSquad};
  squad.files = options.text.files;
  squad.length = options.text.length;
  squad.batch = options.batch > 0 ? options.batch : kBatch;
  ProgressLine line(rank.under_launcher);
  const auto progress = [&](int64_t questions, int64_t of, double seconds) {
    line.show("question", questions, of, seconds,
              fmt::format("{:.2f} questions/s", static_cast<double>(questions) / seconds));
  };
  const SquadFigures figures =
      evaluate_squad(squad, rank, {.note = print_note, .progress = progress});
  if (rank.world.rank() != 0) return 0;
  if (options.json) {
    print_json(figures, squad, rank.world.size());
  } else {
    print_squad(figures);
  }
  return 0;
}

int run_eval(const EvalOptions& options, RankContext& rank) {
  FSDP_CHECK(!options.text.files.empty() || options.keys.given(), "--data: expected files");
  return options.task.empty() ? run_text(options, rank) : run_squad(options, rank);
}

}  // namespace

void add_eval_command(const Command& app) {
  const auto options = std::make_shared<EvalOptions>();
  const Command command = app.add_command("eval");
  add_model_options(command, options->model);
  command.add({{"--data", &options->text.files}, {"--task", &options->task}});
  add_data_key_options(command, "data.validation", options->keys);
  command.add({{"--field", &options->text.field},
               {"--cache-dir", &options->text.cache},
               {"--stride", &options->text.stride},
               {"--limit", &options->squad.limit},
               {"--tokens", &options->squad.tokens},
               {"--predictions", &options->squad.predictions},
               {.name = "--sequence-length",
                .target = &options->text.length,
                .shown = std::to_string(kLongestByDefault)},
               {"--batch", &options->batch},
               {"--json", &options->json}});
  add_launch_options(command, options->launch);
  runs_on_ranks(command, options, run_eval);
}

}  // namespace fsdp::tools
