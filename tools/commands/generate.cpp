// fsdp generate: continues a prompt with the model of a Hugging Face folder, sharded over any
// number of ranks; the result does not depend on how many. Read next: tools/runtime/generation.h.
#include <algorithm>
#include <cstdio>
#include <optional>

#include <CLI/CLI.hpp>

#include "core/io/json.h"
#include "tools/commands/commands.h"
#include "tools/data/text_stream.h"
#include "tools/data/tokenizer.h"
#include "tools/runtime/generation.h"
#include "tools/runtime/launch.h"
#include "tools/runtime/model_source.h"

namespace fsdp::tools {
namespace {

struct GenerateOptions {
  LaunchOptions launch;
  std::string folder;
  std::string base;
  std::string prompt;
  std::vector<int32_t> ids;
  std::string tokenizer;  // "": the model folder's, or bytes if the vocabulary fits
  std::string dtype = "f32";
  bool ignore_end = false;
  bool json = false;
  GenerationOptions generation;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::string tokenizer_name;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the user gave ids and gets ids
};

std::vector<int32_t> encode_prompt(const data::Tokenizer& tokenizer, const std::string& text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  if (!ids.empty()) return ids;
  // Nothing to continue: what follows the end of a document is the beginning of one.
  FSDP_CHECK(tokenizer.end_of_text() >= 0, "{}: an empty prompt has no tokens", tokenizer.name());
  return {tokenizer.end_of_text()};
}

Prompt read_prompt(const GenerateOptions& options, const ModelSource& source,
                   const models::ModelConfig& model) {
  Prompt out;
  if (!options.ids.empty()) {
    out.ids = options.ids;
  } else {
    const data::ByteTokenizer bytes;
    // Up to the padding that training accepts (tools/runtime/train_data.h).
    const bool fits = model.vocabulary >= bytes.vocab_size() && model.vocabulary <= 1024;
    out.tokenizer_name = options.tokenizer.empty() ? source.default_tokenizer() : options.tokenizer;
    FSDP_CHECK(!options.tokenizer.empty() || out.tokenizer_name != "bytes" || fits,
               "{}: there is no tokenizer.json, and its vocabulary of {} tokens is not that of the "
               "built-in byte tokenizer ({}): give the prompt as --ids, or a --tokenizer",
               options.folder, model.vocabulary, bytes.vocab_size());
    out.tokenizer = data::make_tokenizer(out.tokenizer_name);
    out.ids = encode_prompt(*out.tokenizer, options.prompt);
  }
  for (const int32_t id : out.ids) {
    FSDP_CHECK(id >= 0 && id < model.vocabulary,
               "prompt: token {} is not in the model's vocabulary of {}", id, model.vocabulary);
  }
  return out;
}

// Prints while the tokens come: text in whole characters, ids with spaces between them; JSON at the
// end.
class Printer {
 public:
  Printer(const GenerateOptions& options, const Prompt& prompt)
      : options_(options), prompt_(prompt) {
    if (prompt.tokenizer) stream_.emplace(*prompt.tokenizer, prompt.ids);
    if (prompt.tokenizer) write(options.prompt);
  }
  void use(int32_t token) {
    const char* const space = made_.empty() ? "" : " ";
    made_.push_back(token);
    write(stream_ ? stream_->push(token) : fmt::format("{}{}", space, token));
  }
  void finish() {
    if (stream_) write(stream_->finish());
    if (options_.json) {
      OrderedJson out = {{"prompt_ids", prompt_.ids}, {"new_ids", made_}};
      if (stream_) {
        out["tokenizer"] = prompt_.tokenizer_name;
        out["text"] = text_;
      }
      // A byte model may stop within a character.
      fmt::print("{}", out.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

 private:
  void write(const std::string& text) {
    text_ += text;
    if (options_.json || text.empty()) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }

  const GenerateOptions& options_;
  const Prompt& prompt_;
  std::optional<data::TextStream> stream_;
  std::vector<int32_t> made_;
  std::string text_;
};

int run_generate(const GenerateOptions& options, RankContext& rank) {
  SessionOptions session_options;
  ModelSource source;
  Prompt prompt;
  GenerationOptions generation = options.generation;
  agree(rank.world, [&] {
    source = find_model(options.folder, options.base);
    session_options.model = source.config();
    const models::ModelConfig& model = session_options.model;
    prompt = read_prompt(options, source, model);
    const int32_t own_end = prompt.tokenizer ? prompt.tokenizer->end_of_text() : -1;
    const int64_t end = own_end >= 0 ? own_end : model.eos_token;
    generation.stop = options.ignore_end ? -1 : static_cast<int32_t>(end);
    generation.vocabulary = prompt.tokenizer ? prompt.tokenizer->vocab_size() : 0;
    FSDP_CHECK(generation.top_k == 0 || generation.temperature > 0,
               "--top-k: needs a --temperature above 0; without one the likeliest token is taken");
  });
  const int64_t longest = static_cast<int64_t>(prompt.ids.size()) + generation.tokens;
  const int64_t positions = session_options.model.max_positions;
  session_options.max_length = std::min(longest, positions);
  session_options.fsdp.param_dtype = parse_dtype(options.dtype);
  session_options.fsdp.reduce_dtype = accumulation_dtype(session_options.fsdp.param_dtype);
  session_options.cpu.threads = rank.threads;
  session_options.training = false;
  if (longest > positions && rank.world.rank() == 0) {
    fmt::print(stderr,
               "fsdp: the text may grow to {} tokens, the model has {} positions: it sees "
               "the last {} tokens only\n",
               longest, positions, positions);
  }
  Session session(rank.world, session_options);
  models::FillFunction fill;
  agree(rank.world, [&] { fill = source.values(session.model()); });
  session.initialise(fill);
  std::optional<Printer> printer;
  if (rank.world.rank() == 0) printer.emplace(options, prompt);
  generate_tokens(session, generation, prompt.ids, [&](int32_t token) {
    if (printer) printer->use(token);
  });
  if (printer) printer->finish();
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<GenerateOptions>();
  GenerationOptions& generation = options->generation;
  CLI::App* command = app.add_subcommand("generate", "continues a prompt with a trained model");
  command->add_option("folder", options->folder, "of a model, or of a LoRA adapter for one")
      ->required();
  command->add_option("--base", options->base,
                      "of an adapter: its model's folder (default: as the adapter says)");
  CLI::Option* text = command->add_option("--prompt", options->prompt, "the text to continue");
  command->add_option("--ids", options->ids, "the prompt as token ids: 1,2,3")
      ->delimiter(',')
      ->excludes(text);
  command->add_option("--tokens", generation.tokens, "how many at most (default: 64)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--temperature", generation.temperature, "0: greedy (default)")
      ->check(not_below_zero);
  command->add_option("--top-k", generation.top_k, "draw from the k likeliest (default: from all)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--seed", generation.seed, "of the random numbers (default: 0)");
  command->add_option("--tokenizer", options->tokenizer,
                      "bytes, a tokenizer.json or a folder with one (default: the model folder's, "
                      "or bytes)");
  command->add_flag("--ignore-end", options->ignore_end, "do not stop at end-of-text");
  command->add_option("--dtype", options->dtype, "of the computation (default: f32)")
      ->check(CLI::IsMember({"f64", "f32", "bf16"}));
  command->add_flag("--json", options->json, "print token ids and text as JSON");
  add_launch_options(*command, options->launch);
  command->callback([&chosen, options] {
    chosen = [options] {
      return launch(options->launch,
                    [&](RankContext& rank) { return run_generate(*options, rank); });
    };
  });
}

}  // namespace fsdp::tools
