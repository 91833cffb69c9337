// fsdp generate: continues a prompt with the model of a Hugging Face folder, sharded over any
// number of ranks; the result does not depend on how many. Read next: tools/runtime/generation.h.
#include <algorithm>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "core/io/json.h"
#include "models/weights.h"
#include "tools/commands/commands.h"
#include "tools/data/tokenizer.h"
#include "tools/runtime/generation.h"
#include "tools/runtime/launch.h"

namespace fsdp::tools {
namespace {

struct GenerateOptions {
  LaunchOptions launch;
  std::string folder;
  std::string prompt;
  std::vector<int32_t> ids;
  std::string tokenizer;  // "": by the size of the vocabulary
  std::string dtype = "f32";
  bool ignore_end = false;
  bool json = false;
  GenerationOptions generation;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the user gave ids and gets ids
};

Prompt read_prompt(const GenerateOptions& options, const models::ModelConfig& model) {
  Prompt out;
  if (!options.ids.empty()) {
    out.ids = options.ids;
  } else {
    const data::ByteTokenizer bytes;
    // Up to the padding that training accepts (tools/data/token_cache.h).
    const bool fits = model.vocabulary >= bytes.vocab_size() && model.vocabulary <= 1024;
    FSDP_CHECK(!options.tokenizer.empty() || fits,
               "{}: its vocabulary of {} tokens is not that of the built-in byte tokenizer ({}): "
               "give the prompt as --ids",
               options.folder, model.vocabulary, bytes.vocab_size());
    out.tokenizer = data::make_tokenizer(options.tokenizer.empty() ? "bytes" : options.tokenizer);
    out.ids = out.tokenizer->encode(options.prompt);
    // Nothing to continue: what follows the end of a document is the beginning of one.
    if (out.ids.empty()) out.ids = {out.tokenizer->end_of_text()};
  }
  for (const int32_t id : out.ids) {
    FSDP_CHECK(id >= 0 && id < model.vocabulary,
               "prompt: token {} is not in the model's vocabulary of {}", id, model.vocabulary);
  }
  return out;
}

void print_result(const GenerateOptions& options, const Prompt& prompt,
                  const std::vector<int32_t>& made) {
  const std::string text = prompt.tokenizer ? prompt.tokenizer->decode(made) : "";
  if (options.json) {
    OrderedJson out = {{"prompt_ids", prompt.ids}, {"new_ids", made}};
    if (prompt.tokenizer) out["text"] = options.prompt + text;
    // A byte model may stop within a character.
    fmt::print("{}\n", out.dump(2, ' ', false, OrderedJson::error_handler_t::replace));
  } else if (prompt.tokenizer) {
    fmt::print("{}{}\n", options.prompt, text);
  } else {
    fmt::print("{}\n", fmt::join(made, " "));
  }
  std::fflush(stdout);
}

int run_generate(const GenerateOptions& options, RankContext& rank) {
  SessionOptions session_options;
  Prompt prompt;
  GenerationOptions generation = options.generation;
  agree(rank.world, [&] {
    session_options.model = models::read_config(options.folder + "/config.json");
    const models::ModelConfig& model = session_options.model;
    prompt = read_prompt(options, model);
    const int64_t end = prompt.tokenizer ? prompt.tokenizer->end_of_text() : model.eos_token;
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
  agree(rank.world, [&] {
    fill = models::from_folder(options.folder, session_options.model, session.parameters());
  });
  session.initialise(fill);
  const std::vector<int32_t> made = generate_tokens(session, generation, prompt.ids);
  if (rank.world.rank() == 0) print_result(options, prompt, made);
  return 0;
}

}  // namespace

void add_generate_command(CLI::App& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<GenerateOptions>();
  GenerationOptions& generation = options->generation;
  CLI::App* command = app.add_subcommand("generate", "continues a prompt with a trained model");
  command->add_option("folder", options->folder, "config.json and model.safetensors")->required();
  CLI::Option* text = command->add_option("--prompt", options->prompt, "the text to continue");
  command->add_option("--ids", options->ids, "the prompt as token ids: 1,2,3")
      ->delimiter(',')
      ->excludes(text);
  command->add_option("--tokens", generation.tokens, "how many at most (default: 64)")
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", generation.temperature, "0: greedy (default)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--top-k", generation.top_k, "draw from the k likeliest (default: from all)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--seed", generation.seed, "of the random numbers (default: 0)");
  command->add_option("--tokenizer", options->tokenizer, "bytes (default: by the vocabulary)")
      ->check(CLI::IsMember({"bytes"}));
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
