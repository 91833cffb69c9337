// fsdp generate: continues prompts with the model of a Hugging Face folder, sharded over any number
// of ranks or not; the texts do not depend on how many. Read next:
// tools/generate/generation_plan.h.
#include <cstdio>
#include <optional>

#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/data/text_stream.h"
#include "tools/generate/generation_plan.h"
#include "tools/launch/launch.h"
#include "tools/predict/model_use.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

struct GenerateOptions {
  LaunchOptions launch;
  ModelOptions model;
  std::string prompt;
  std::vector<int32_t> ids;
  std::string prompts_file;
  int64_t batch = 16;  // prompts at a time, over all ranks
  bool ignore_end = false;
  bool no_cache = false;
  bool json = false;
  bool stats = false;
  GenerationOptions generation;
};

// ---------------------------------------------------------------------------- Prompts

std::vector<data::Prompt> given_prompts(const GenerateOptions& options) {
  if (!options.prompts_file.empty()) return data::read_prompts(options.prompts_file);
  if (!options.ids.empty()) return {{"--ids", "", options.ids}};
  return {{"--prompt", options.prompt, std::nullopt}};
}

// ---------------------------------------------------------------------------- Output

std::string joined(const std::vector<int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

// A single text is printed while its tokens come, in whole characters; several when they are done.
class Printer {
 public:
  Printer(const GenerateOptions& options, const EncodedPrompts& prompts)
      : json_(options.json), several_(!options.prompts_file.empty()), prompts_(prompts) {
    if (json_ || several_ || !prompts.tokenizer) return;
    stream_.emplace(*prompts.tokenizer, prompts.ids[0]);
    write(prompts.texts[0]);
  }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;
  ~Printer() {  // an error is told on a line of its own
    if (open_) write("\n");
  }
  void use(int32_t token) {
    if (json_ || several_) return;
    write(stream_ ? stream_->push(token) : fmt::format("{}{}", any_ ? " " : "", token));
    any_ = true;
  }
  void finish(size_t prompt, const Generated& text) {
    if (json_) {
      print_json(prompt, text);
    } else if (several_) {
      fmt::print("--- {}\n{}\n", prompt + 1,
                 prompts_.tokenizer ? whole_text(prompt, text) : joined(text.ids));
    } else {
      fmt::print("{}\n", stream_ ? stream_->finish() : "");
      open_ = false;
    }
    std::fflush(stdout);
  }

 private:
  std::string whole_text(size_t prompt, const Generated& text) const {
    return prompts_.texts[prompt] +
           data::text_after(*prompts_.tokenizer, prompts_.ids[prompt], text.ids);
  }
  void print_json(size_t prompt, const Generated& text) const {
    Json out = {
        {"prompt_ids", prompts_.ids[prompt]}, {"new_ids", text.ids}, {"stopped", text.stopped}};
    if (prompts_.tokenizer) {
      out["tokenizer"] = prompts_.tokenizer_name;
      out["text"] = whole_text(prompt, text);
    }
    // A byte model may stop within a character.
    fmt::print("{}\n", out.dump({.indent = several_ ? -1 : 2, .replace = true}));
  }
  void write(const std::string& text) {
    open_ = true;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  const bool json_, several_;
  const EncodedPrompts& prompts_;
  std::optional<data::TextStream> stream_;
  bool any_ = false;
  bool open_ = false;  // the line
};

void print_stats(const GenerationStats& stats) {
  const auto part = [](int64_t tokens, double seconds) {
    return fmt::format("{} tokens in {:.3f} s, {:.1f} tokens/s", tokens, seconds,
                       seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0);
  };
  const std::string cache = stats.cache_bytes == 0
                                ? "without cache"
                                : fmt::format("key-value cache of {:.2f} MiB on this rank",
                                              static_cast<double>(stats.cache_bytes) / (1 << 20));
  fmt::print(stderr, "fsdp: prompts: {}; after the first new token: {}; {}\n",
             part(stats.prompt_tokens, stats.prompt_seconds),
             part(stats.new_tokens, stats.new_token_seconds), cache);
}

// ---------------------------------------------------------------------------- The command

int run_generate(const GenerateOptions& options, RankContext& rank) {
  const bool speaks = rank.world.rank() == 0;
  GenerationPlan plan;
  agree(rank.world, [&] {
    const ModelSource source = find_model(options.model.folder, options.model.base);
    plan = plan_generation(source, given_prompts(options), options.model.tokenizer,
                           options.ignore_end, options.generation);
  });
  plan.options.cache = !options.no_cache;
  if (speaks) {
    for (const std::string& note : plan.notes) print_note(note);
  }
  if (speaks && plan.longest > plan.seen) {
    print_note(fmt::format(
        "the text may grow to {} tokens, but the model sees only the last {}: from there "
        "on every token takes a pass over all of them",
        plan.longest, plan.seen));
  }
  const PlacedOptions placed = options_for_use(plan.model, plan.seen, options.model, rank);
  check_fits(
      rank, placed,
      use_of_generation(plan.options, plan.prompts.ids, options.batch, plan.model.vocabulary));
  Session session = place_session(rank.world, placed);
  return with_session(rank, [&] {
    load_model(session, plan.source, print_note);
    std::optional<Printer> printer;
    if (speaks) printer.emplace(options, plan.prompts);
    GenerationStats stats;
    const std::vector<Generated> texts = generate_in_batches(
        session, plan.options, plan.prompts.ids, static_cast<size_t>(options.batch),
        [&](size_t, int32_t token) {
          if (printer) printer->use(token);
        },
        [&](size_t prompt, const Generated& text) {
          if (printer) printer->finish(prompt, text);
        },
        &stats);
    if (!speaks) return 0;
    const std::string note = note_on_unknown_ids(plan.prompts, texts);
    if (!note.empty()) print_note(note);
    if (options.stats) print_stats(stats);
    return 0;
  });
}

// For check() of an option that holds token ids: digits, nothing of what else C takes for a number.
std::string not_an_id(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
  return digits && (text.size() == 1 || text[0] != '0')
             ? ""
             : fmt::format("expected token ids such as 1,2,3, got \"{}\"", text);
}

}  // namespace

void add_generate_command(const Command& app) {
  const auto options = std::make_shared<GenerateOptions>();
  GenerationOptions& generation = options->generation;
  models::SamplingOptions& sampling = generation.sampling;
  const Command command = app.add_command("generate");
  add_model_options(command, options->model);
  command.add({{"--prompt", &options->prompt},
               {"--ids", &options->ids, not_an_id},
               {"--prompts", &options->prompts_file},
               {"--batch", &options->batch},
               {"--tokens", &generation.tokens},
               {"--temperature", &sampling.temperature},
               {"--top-k", &sampling.top_k},
               {"--top-p", &sampling.top_p},
               {"--seed", &sampling.seed},
               {"--stop-ids", &generation.stop, not_an_id},
               {"--ignore-end", &options->ignore_end},
               {"--no-cache", &options->no_cache},
               {"--stats", &options->stats},
               {"--json", &options->json}});
  add_launch_options(command, options->launch);
  runs_on_ranks(command, options, run_generate);
}

}  // namespace fsdp::tools
