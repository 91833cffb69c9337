// fsdp generate: continues prompts with the model of a Hugging Face folder, sharded over any number
// of ranks or not; the texts do not depend on how many. Read next:
// tools/generate/generation_plan.h.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <optional>

#include <unistd.h>

#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/data/text_stream.h"
#include "tools/generate/chat_prompts.h"
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
  bool chat = false;  // prompts are conversations
  ChatPromptOptions as_chat;
  GenerationOptions generation;

  bool has_prompts() const { return !prompt.empty() || !ids.empty() || !prompts_file.empty(); }
};

// ---------------------------------------------------------------------------- Prompts

std::vector<data::Prompt> given_prompts(const GenerateOptions& options) {
  if (!options.prompts_file.empty()) return data::read_prompts(options.prompts_file);
  if (!options.ids.empty()) return {{"--ids", "", options.ids}};
  return {{"--prompt", options.prompt, std::nullopt}};
}

// For a chat, `chat` is opened with the tokenizer.
GenerationPlan plan_of(const GenerateOptions& options, const ModelSource& source,
                       std::optional<ChatPrompter>& chat) {
  if (!options.chat) {
    return plan_generation(source, given_prompts(options), options.model.tokenizer,
                           options.ignore_end, options.generation);
  }
  const auto make_prompts = [&](const data::Tokenizer& tokenizer, const models::ModelConfig&) {
    chat.emplace(options.as_chat, source, options.model.tokenizer, tokenizer);
    if (!options.prompts_file.empty()) return chat->prompts_in(options.prompts_file);
    std::vector<data::Prompt> out;
    if (!options.has_prompts()) return out;
    data::Conversation conversation = chat->begin();
    say(conversation, data::Role::kUser, options.prompt);
    out.push_back(chat->prompt_of(conversation, "--prompt"));
    return out;
  };
  return plan_generation(source, make_prompts, options.model.tokenizer, options.ignore_end,
                         options.generation);
}

// ---------------------------------------------------------------------------- Output

std::string joined(const std::vector<int32_t>& ids) {
  return fmt::format("{}", fmt::join(ids, " "));
}

// A single text is printed while its tokens come, in whole characters; several when they are done.
class Printer {
 public:
  Printer(const GenerateOptions& options, const EncodedPrompts& prompts)
      : json_(options.json),
        several_(!options.prompts_file.empty()),
        chat_(options.chat),
        prompts_(prompts) {
    if (json_ || several_ || !prompts.tokenizer) return;
    stream_.emplace(*prompts.tokenizer, prompts.ids[0]);
    if (!chat_) write(prompts.texts[0]);
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
    const std::string after = data::text_after(*prompts_.tokenizer, prompts_.ids[prompt], text.ids);
    return chat_ ? after : prompts_.texts[prompt] + after;
  }
  void print_json(size_t prompt, const Generated& text) const {
    Json out = {
        {"prompt_ids", prompts_.ids[prompt]}, {"new_ids", text.ids}, {"stopped", text.stopped}};
    if (prompts_.tokenizer) {
      out["tokenizer"] = prompts_.tokenizer_name;
      out[chat_ ? "reply" : "text"] = whole_text(prompt, text);
    }
    // A byte model may stop within a character.
    fmt::print("{}\n", out.dump({.indent = several_ ? -1 : 2, .replace = true}));
  }
  void write(const std::string& text) {
    open_ = true;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  const bool json_, several_, chat_;  // of a chat the reply alone is printed
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

// The line that somebody types next on rank 0; nullopt: the end. Collective.
std::optional<std::string> next_line(comm::Communicator& world) {
  std::string line;
  if (world.rank() == 0) {
    if (::isatty(STDIN_FILENO) != 0) fmt::print(stderr, "> ");
    line = std::getline(std::cin, line) ? "+" + line : "";
  }
  const std::string said = world.exchange(line)[0];
  return said.empty() ? std::nullopt : std::optional(said.substr(1));
}

// Reads messages from standard input, one a line, and answers each.
void converse(const GenerateOptions& options, const ChatPrompter& chat, GenerationPlan& plan,
              Session& session, RankContext& rank) {
  const data::Tokenizer& tokenizer = *plan.prompts.tokenizer;
  data::Conversation conversation = chat.begin();
  uint64_t turn = 0;
  for (std::optional<std::string> line; (line = next_line(rank.world));) {
    if (line->find_first_not_of(" \t\r") == line->npos) continue;
    say(conversation, data::Role::kUser, *line);
    agree(rank.world, [&] {
      plan.prompts.ids.clear();
      plan.prompts.texts.clear();
      add_prompts({chat.prompt_of(conversation, "the conversation")}, plan.model, plan.prompts);
    });
    std::optional<Printer> printer;
    if (rank.world.rank() == 0) printer.emplace(options, plan.prompts);
    const std::vector<Generated> said = generate_tokens(
        session, plan.options, plan.prompts.ids,
        [&](size_t, int32_t token) {
          if (printer) printer->use(token);
        },
        turn++);
    if (printer) printer->finish(0, said[0]);
    say(conversation, data::Role::kAssistant,
        data::text_after(tokenizer, plan.prompts.ids[0], said[0].ids));
  }
}

int run_generate(const GenerateOptions& options, RankContext& rank) {
  const bool speaks = rank.world.rank() == 0;
  GenerationPlan plan;
  std::optional<ChatPrompter> chat;
  const bool converses = options.chat && !options.has_prompts();
  agree(rank.world, [&] {
    const ModelSource source = find_model(options.model.folder, options.model.base);
    plan = plan_of(options, source, chat);
    if (!converses) return;
    // A conversation may become as long as the model sees.
    plan.seen = plan.longest = seen_tokens(plan.model, 0, plan.model.max_positions);
    const int64_t before = std::max<int64_t>(plan.seen - plan.options.tokens, 1);
    plan.prompts.ids = {std::vector<int32_t>(static_cast<size_t>(before))};
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
    if (converses) {
      converse(options, *chat, plan, session, rank);
      return 0;
    }
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
               {"--json", &options->json},
               {"--chat", &options->chat},
               {"--system", &options->as_chat.system},
               {"--chat-template", &options->as_chat.chat_template},
               {"--chat-template-kwargs", &options->as_chat.kwargs},
               {"--chat-date", &options->as_chat.date}});
  add_launch_options(command, options->launch);
  runs_on_ranks(command, options, run_generate);
}

}  // namespace fsdp::tools
