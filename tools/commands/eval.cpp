// fsdp eval: how well a model predicts a text: loss, perplexity, bits per token and per byte, the
// same on any number of ranks. Read next: tools/evaluate/text_evaluation.h.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <unistd.h>

#include "core/format_count.h"
#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/evaluate/text_evaluation.h"
#include "tools/launch/launch.h"
#include "tools/report/progress.h"

namespace fsdp::tools {
namespace {

struct EvalOptions {
  LaunchOptions launch;
  ModelOptions model;
  TextEvaluationOptions text;
  bool json = false;
};

// On a terminal a line that is rewritten, elsewhere a line now and then; stderr, beside the result.
class ProgressLine {
 public:
  explicit ProgressLine(bool under_launcher)
      : terminal_(!under_launcher && ::isatty(STDERR_FILENO) != 0) {}
  void show(int64_t batches, int64_t of, const TextLoss& loss, double seconds) {
    const bool last = batches == of;
    if (last ? shown_at_ == 0 : seconds - shown_at_ < (terminal_ ? 0.2 : 10)) return;
    shown_at_ = seconds;
    const double left = seconds / static_cast<double>(batches) * static_cast<double>(of - batches);
    fmt::print(stderr, "{}fsdp: batch {}/{}  loss {:.4f}  {} tokens/s  ETA {}{}",
               terminal_ ? "\r\x1b[K" : "", batches, of, loss.mean(),
               format_count(std::llround(static_cast<double>(loss.tokens) / seconds)),
               format_duration(left), terminal_ && !last ? "" : "\n");
    std::fflush(stderr);
  }

 private:
  const bool terminal_;
  double shown_at_ = 0;
};

void print_text(const TextFigures& figures) {
  fmt::print("loss            {:10.4f}   nats per token\n", figures.loss.mean());
  fmt::print("perplexity      {:10.4f}\n", figures.perplexity());
  fmt::print("bits per token  {:10.4f}\n", figures.bits_per_token());
  fmt::print("bits per byte   {:10.4f}\n", figures.bits_per_byte());
  fmt::print("{} tokens predicted of {} ({} bytes; tokenizer: {})\n",
             format_count(figures.loss.tokens), format_count(figures.tokens),
             format_count(figures.bytes), figures.tokenizer);
  fmt::print("{} sequence{} of up to {} tokens, one every {}; {:.1f} s, {} tokens/s\n",
             format_count(figures.sequences), figures.sequences == 1 ? "" : "s", figures.length,
             figures.stride, figures.seconds,
             format_count(std::llround(static_cast<double>(figures.loss.tokens) /
                                       std::max(figures.seconds, 1e-9))));
}

void print_json(const TextFigures& figures, const std::string& dtype, int ranks) {
  const Json out = {{"loss", figures.loss.mean()},
                    {"perplexity", figures.perplexity()},
                    {"bits_per_token", figures.bits_per_token()},
                    {"bits_per_byte", figures.bits_per_byte()},
                    {"predicted_tokens", figures.loss.tokens},
                    {"tokens", figures.tokens},
                    {"bytes", figures.bytes},
                    {"sequences", figures.sequences},
                    {"sequence_length", figures.length},
                    {"stride", figures.stride},
                    {"tokenizer", figures.tokenizer},
                    {"dtype", dtype},
                    {"ranks", ranks},
                    {"seconds", figures.seconds}};
  fmt::print("{}\n", out.dump({.indent = 2}));
}

int run_eval(const EvalOptions& options, RankContext& rank) {
  TextEvaluationOptions text = options.text;
  text.folder = options.model.folder;
  text.base = options.model.base;
  text.tokenizer = options.model.tokenizer;
  text.dtype = options.model.dtype;
  text.strategy = options.model.strategy;
  ProgressLine line(rank.under_launcher);
  const TextFigures figures =
      evaluate_text(text, rank,
                    {.note = print_note,
                     .progress = [&](int64_t batches, int64_t of, const TextLoss& loss,
                                     double seconds) { line.show(batches, of, loss, seconds); }});
  if (rank.world.rank() != 0) return 0;
  if (options.json) {
    print_json(figures, text.dtype, rank.world.size());
  } else {
    print_text(figures);
  }
  return 0;
}

}  // namespace

void add_eval_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<EvalOptions>();
  const Command command =
      app.add_command("eval", "loss, perplexity and bits per byte of a model on a text");
  add_model_options(command, options->model);
  command
      .add_option("--data", options->text.files, "text, or rows of JSON (.jsonl); several are one")
      .required();
  command.add_option("--field", options->text.field,
                     "field of a JSON row that holds the text (default: text)");
  command.add_option("--cache-dir", options->text.cache, "for the tokens (default: .cache/tokens)");
  command
      .add_option("--sequence-length", options->text.length,
                  "tokens that the model sees at once (default: its positions, at most " +
                      std::to_string(kLongestByDefault) + ")")
      .from_to(int64_t{2}, int64_t{1} << 40);
  command
      .add_option("--stride", options->text.stride,
                  "tokens from one sequence to the next; if fewer than the sequence length, "
                  "sequences overlap, and each predicted token after the first sequence has at "
                  "least the overlap before it (default: equal)")
      .from_to(int64_t{1}, int64_t{1} << 40);
  command
      .add_option("--batch", options->text.batch,
                  "sequences at a time, over all ranks (default: 8)")
      .from_to(int64_t{1}, int64_t{1} << 20);
  command.add_flag("--json", options->json, "print the figures as JSON, in full precision");
  add_launch_options(command, options->launch);
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      return launch(options->launch, [&](RankContext& rank) { return run_eval(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
