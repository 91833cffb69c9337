// fsdp eval: how well a model predicts a text: loss, perplexity, bits per token and per byte, the
// same on any number of ranks. Read next: tools/train/evaluation.h.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>

#include <unistd.h>

#include "core/format_count.h"
#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/data/text_source.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"
#include "tools/report/progress.h"
#include "tools/train/evaluation.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

constexpr int64_t kLongestByDefault = 1024;

struct EvalOptions {
  LaunchOptions launch;
  ModelOptions model;
  std::vector<std::string> files;
  std::string field = "text";
  std::string cache;
  int64_t length = 0;  // 0: what the model has, at most kLongestByDefault
  int64_t stride = 0;  // 0: the length
  int64_t batch = 8;
  bool json = false;
};

// What is printed. Bits per byte is that of a token times tokens per byte of the text (Gao et al.,
// "The Pile", 2020, section 3.1): it does not depend on the tokenizer.
struct Figures {
  TextLoss loss;
  int64_t tokens = 0;  // of the text, with those that the tokenizer puts around documents
  int64_t bytes = 0;   // of the documents
  int64_t sequences = 0;
  double seconds = 0;

  double perplexity() const { return std::exp(loss.mean()); }
  double bits_per_token() const { return loss.mean() / std::numbers::ln2; }
  double bits_per_byte() const {
    return bits_per_token() * static_cast<double>(tokens) / static_cast<double>(bytes);
  }
};

class Evaluation {
 public:
  Evaluation(const EvalOptions& options, RankContext& rank) : options_(options), rank_(rank) {}
  int run();

 private:
  bool speaks() const { return rank_.world.rank() == 0; }
  void open_model();
  void open_text();
  void show_progress(int64_t batches, int64_t of, const TextLoss& loss);
  void print_text(const Figures& figures) const;
  void print_json(const Figures& figures) const;
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

  const EvalOptions& options_;
  RankContext& rank_;
  ModelSource source_;
  models::ModelConfig model_;
  std::string tokenizer_name_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::unique_ptr<data::TokenCache> cache_;
  TextSequences text_;
  int64_t bytes_ = 0;
  std::chrono::steady_clock::time_point started_;
  double shown_at_ = 0;
};

void Evaluation::open_model() {
  source_ = find_model(options_.model.folder, options_.model.base);
  model_ = source_.config();
  const std::string& given = options_.model.tokenizer;
  tokenizer_name_ = given.empty() ? source_.default_tokenizer() : given;
  tokenizer_ = data::make_tokenizer(tokenizer_name_);
  const std::string note =
      check_vocabulary(options_.model.folder, tokenizer_name_, *tokenizer_, model_.vocabulary);
  if (speaks() && !note.empty()) fmt::print(stderr, "fsdp: note: {}\n", note);
  text_.length =
      options_.length > 0 ? options_.length : std::min(model_.max_positions, kLongestByDefault);
  text_.stride = options_.stride > 0 ? options_.stride : text_.length;
  text_.batch = options_.batch;
  text_.shifted_labels = model_.shifted_labels;
  FSDP_CHECK(text_.length <= most_tokens(model_),
             "--sequence-length: the model has {} positions, got {}", model_.max_positions,
             text_.length);
}

void Evaluation::open_text() {
  data::TokenSource source;
  source.files.assign(options_.files.begin(), options_.files.end());
  source.text.field = options_.field;
  source.document_separator = tokenizer_->end_of_text() >= 0;
  cache_ = open_token_cache(rank_.world, options_.cache, source, *tokenizer_);
  agree(rank_.world, [&] {
    text_.tokens = cache_->tokens();
    if (!speaks()) return;
    for (const auto& file : source.files) {
      data::for_each_document(file, source.text, [&](std::string_view document) {
        bytes_ += static_cast<int64_t>(document.size());
      });
    }
  });
}

// On a terminal a line that is rewritten, elsewhere a line now and then; stderr, beside the result.
void Evaluation::show_progress(int64_t batches, int64_t of, const TextLoss& loss) {
  const bool terminal = !rank_.under_launcher && ::isatty(STDERR_FILENO) != 0;
  const double now = seconds();
  const bool last = batches == of;
  if (!speaks() || (last ? shown_at_ == 0 : now - shown_at_ < (terminal ? 0.2 : 10))) return;
  shown_at_ = now;
  const double left = now / static_cast<double>(batches) * static_cast<double>(of - batches);
  fmt::print(stderr, "{}fsdp: batch {}/{}  loss {:.4f}  {} tokens/s  ETA {}{}",
             terminal ? "\r\x1b[K" : "", batches, of, loss.mean(),
             format_count(std::llround(static_cast<double>(loss.tokens) / now)),
             format_duration(left), terminal && !last ? "" : "\n");
  std::fflush(stderr);
}

int Evaluation::run() {
  agree(rank_.world, [&] { open_model(); });
  open_text();
  BatchSource batches;
  agree(rank_.world, [&] { batches = batches_of(text_, rank_.world.rank(), rank_.world.size()); });
  Session session(rank_.world, options_for_use(model_, text_.length, options_.model.strategy,
                                               parse_dtype(options_.model.dtype), rank_));
  load_model(session, source_);
  started_ = std::chrono::steady_clock::now();
  Figures figures = {.tokens = static_cast<int64_t>(text_.tokens.size()),
                     .bytes = bytes_,
                     .sequences = text_.count()};
  figures.loss = loss_of_batches(session, batches, [&](int64_t done, const TextLoss& so_far) {
    show_progress(done, batches.batches, so_far);
    return true;
  });
  figures.seconds = seconds();
  // Every rank has the same sum.
  if (!std::isfinite(figures.loss.nats)) {
    throw AgreedError(fmt::format("{}: the loss is not finite ({}) in {}", options_.model.folder,
                                  figures.loss.nats, options_.model.dtype));
  }
  if (speaks()) options_.json ? print_json(figures) : print_text(figures);
  return 0;
}

void Evaluation::print_text(const Figures& figures) const {
  fmt::print("loss            {:10.4f}   nats per token\n", figures.loss.mean());
  fmt::print("perplexity      {:10.4f}\n", figures.perplexity());
  fmt::print("bits per token  {:10.4f}\n", figures.bits_per_token());
  fmt::print("bits per byte   {:10.4f}\n", figures.bits_per_byte());
  fmt::print("{} tokens predicted of {} ({} bytes; tokenizer: {})\n",
             format_count(figures.loss.tokens), format_count(figures.tokens),
             format_count(figures.bytes), tokenizer_name_);
  fmt::print("{} sequence{} of up to {} tokens, one every {}; {:.1f} s, {} tokens/s\n",
             format_count(figures.sequences), figures.sequences == 1 ? "" : "s", text_.length,
             text_.stride, figures.seconds,
             format_count(std::llround(static_cast<double>(figures.loss.tokens) /
                                       std::max(figures.seconds, 1e-9))));
}

void Evaluation::print_json(const Figures& figures) const {
  const Json out = {{"loss", figures.loss.mean()},
                    {"perplexity", figures.perplexity()},
                    {"bits_per_token", figures.bits_per_token()},
                    {"bits_per_byte", figures.bits_per_byte()},
                    {"predicted_tokens", figures.loss.tokens},
                    {"tokens", figures.tokens},
                    {"bytes", figures.bytes},
                    {"sequences", figures.sequences},
                    {"sequence_length", text_.length},
                    {"stride", text_.stride},
                    {"tokenizer", tokenizer_name_},
                    {"dtype", options_.model.dtype},
                    {"ranks", rank_.world.size()},
                    {"seconds", figures.seconds}};
  fmt::print("{}\n", out.dump({.indent = 2}));
}

}  // namespace

void add_eval_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<EvalOptions>();
  const Command command =
      app.add_command("eval", "loss, perplexity and bits per byte of a model on a text");
  add_model_options(command, options->model);
  command.add_option("--data", options->files, "text, or rows of JSON (.jsonl); several are one")
      .required();
  command.add_option("--field", options->field,
                     "field of a JSON row that holds the text (default: text)");
  command.add_option("--cache-dir", options->cache, "for the tokens (default: .cache/tokens)");
  command
      .add_option("--sequence-length", options->length,
                  "tokens that the model sees at once (default: its positions, at most " +
                      std::to_string(kLongestByDefault) + ")")
      .from_to(int64_t{2}, int64_t{1} << 40);
  command
      .add_option("--stride", options->stride,
                  "tokens from one sequence to the next; if fewer than the sequence length, "
                  "sequences overlap, and each predicted token after the first sequence has at "
                  "least the overlap before it (default: equal)")
      .from_to(int64_t{1}, int64_t{1} << 40);
  command.add_option("--batch", options->batch, "sequences at a time, over all ranks (default: 8)")
      .from_to(int64_t{1}, int64_t{1} << 20);
  command.add_flag("--json", options->json, "print the figures as JSON, in full precision");
  add_launch_options(command, options->launch);
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      return launch(options->launch,
                    [&](RankContext& rank) { return Evaluation(*options, rank).run(); });
    };
  });
}

}  // namespace fsdp::tools
