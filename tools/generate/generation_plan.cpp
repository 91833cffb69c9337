// Reading a folder and prompts before generation.
#include "tools/generate/generation_plan.h"

#include <algorithm>

#include "tools/data/row_encoder.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {

namespace {

std::vector<int32_t> encode_prompt(const data::Tokenizer& tokenizer, const data::Prompt& prompt) {
  const std::vector<int32_t> ids = tokenizer.encode(prompt.text);
  if (!ids.empty()) return ids;
  // Nothing to continue: what follows the end of a document is the beginning of one.
  FSDP_CHECK(tokenizer.end_of_text() >= 0, "{}: {}: an empty prompt has no tokens", prompt.where,
             tokenizer.name());
  return {tokenizer.end_of_text()};
}

// A model may have more ids than its tokenizer.
std::string text_of(const std::vector<int32_t>& ids, const std::string& where,
                    const models::ModelConfig& model, const EncodedPrompts& prompts) {
  try {
    return prompts.tokenizer->decode(ids);
  } catch (const Error& error) {
    fail("{}: {}, the model 0 to {} (--tokenizer)", where, error.what(), model.vocabulary - 1);
  }
}

}  // namespace

EncodedPrompts open_tokenizer(const std::string& given, const ModelSource& source,
                              const models::ModelConfig& model) {
  EncodedPrompts out;
  out.tokenizer_name = given.empty() ? source.default_tokenizer() : given;
  FSDP_CHECK(
      !given.empty() || out.tokenizer_name != "bytes" || fits_bytes(model.vocabulary),
      "{}: the folder has no tokenizer.json, and its vocabulary of {} tokens is not the byte "
      "tokenizer's ({}): give a --tokenizer (generate also takes prompts as --ids)",
      source.folder.string(), model.vocabulary, data::ByteTokenizer().vocab_size());
  out.tokenizer = data::make_tokenizer(out.tokenizer_name);
  out.note = check_vocabulary(source.folder.string(), out.tokenizer_name, *out.tokenizer,
                              model.vocabulary);
  return out;
}

void add_prompts(const std::vector<data::Prompt>& given, const models::ModelConfig& model,
                 EncodedPrompts& out) {
  constexpr auto all = data::SpecialTokens::kInclude;
  for (const data::Prompt& prompt : given) {
    const std::vector<int32_t> ids =
        prompt.ids ? *prompt.ids : encode_prompt(*out.tokenizer, prompt);
    for (const int32_t id : ids) {
      FSDP_CHECK(id >= 0 && id < model.vocabulary,
                 "{}: token {}{} is not in the model's vocabulary of {}", prompt.where, id,
                 prompt.ids ? "" : fmt::format(" (\"{}\")", out.tokenizer->decode({&id, 1}, all)),
                 model.vocabulary);
    }
    FSDP_CHECK(static_cast<int64_t>(ids.size()) <= most_tokens(model),
               "{}: the prompt has {} tokens, the model has {} positions", prompt.where, ids.size(),
               model.max_positions);
    if (!prompt.ids && out.doubled.empty()) {
      const data::RowEncoder encoder(*out.tokenizer, data::RowForm::kStream, /*separator=*/false);
      const std::string note = encoder.note_on_doubled(ids);
      if (!note.empty()) out.doubled = fmt::format("{}: {}", prompt.where, note);
    }
    out.ids.push_back(ids);
    out.texts.push_back(prompt.ids && out.tokenizer ? text_of(ids, prompt.where, model, out)
                                                    : prompt.text);
  }
}

EncodedPrompts encode_prompts(const std::vector<data::Prompt>& given, const std::string& tokenizer,
                              const ModelSource& source, const models::ModelConfig& model) {
  const bool any_text =
      std::any_of(given.begin(), given.end(), [](const auto& prompt) { return !prompt.ids; });
  EncodedPrompts out;
  if (any_text || !tokenizer.empty()) out = open_tokenizer(tokenizer, source, model);
  add_prompts(given, model, out);
  return out;
}

void add_stop_ids(bool ignore_end, const ModelSource& source, const models::ModelConfig& model,
                  const EncodedPrompts& prompts, std::vector<int32_t>& stop) {
  for (const int32_t id : stop) {
    FSDP_CHECK(id >= 0 && id < model.vocabulary,
               "--stop-ids: token {} is not in the model's vocabulary of {}", id, model.vocabulary);
  }
  if (ignore_end) return;
  for (const int64_t id : source.end_tokens()) stop.push_back(static_cast<int32_t>(id));
  const int32_t end = prompts.tokenizer ? prompts.tokenizer->end_of_text() : -1;
  if (end >= 0) stop.push_back(end);
}

namespace {

GenerationPlan plan_without_prompts(const ModelSource& source, const GenerationOptions& options) {
  models::validate(options.sampling);
  GenerationPlan plan = {.source = source, .model = source.config(), .options = options};
  FSDP_CHECK(plan.model.shifted_labels,
             "{}: shift_labels: false: such a model predicts the token that it sees, not the next "
             "one",
             (source.folder / "config.json").string());
  return plan;
}

// What follows from the prompts that the plan has.
void complete(bool ignore_end, GenerationPlan& plan) {
  add_stop_ids(ignore_end, plan.source, plan.model, plan.prompts, plan.options.stop);
  plan.options.vocabulary = plan.prompts.tokenizer ? plan.prompts.tokenizer->vocab_size() : 0;
  size_t prompt = 0;
  for (const std::vector<int32_t>& ids : plan.prompts.ids) prompt = std::max(prompt, ids.size());
  plan.longest = static_cast<int64_t>(prompt) + plan.options.tokens;
  plan.seen = seen_tokens(plan.model, static_cast<int64_t>(prompt), plan.options.tokens);
  const std::string of_files = plan.prompts.tokenizer ? plan.prompts.tokenizer->note() : "";
  for (const std::string& note : {of_files, plan.prompts.note, plan.prompts.doubled}) {
    if (!note.empty()) plan.notes.push_back(note);
  }
  for (std::string& note : plan.source.notes_on_generation()) plan.notes.push_back(std::move(note));
}

}  // namespace

GenerationPlan plan_generation(const ModelSource& source, const std::vector<data::Prompt>& prompts,
                               const std::string& tokenizer, bool ignore_end,
                               const GenerationOptions& options) {
  GenerationPlan plan = plan_without_prompts(source, options);
  plan.prompts = encode_prompts(prompts, tokenizer, source, plan.model);
  complete(ignore_end, plan);
  return plan;
}

GenerationPlan plan_generation(const ModelSource& source, const MakePrompts& make_prompts,
                               const std::string& tokenizer, bool ignore_end,
                               const GenerationOptions& options) {
  GenerationPlan plan = plan_without_prompts(source, options);
  plan.prompts = open_tokenizer(tokenizer, source, plan.model);
  add_prompts(make_prompts(*plan.prompts.tokenizer, plan.model), plan.model, plan.prompts);
  complete(ignore_end, plan);
  return plan;
}

std::string note_on_unknown_ids(const EncodedPrompts& prompts,
                                const std::vector<Generated>& texts) {
  if (!prompts.tokenizer) return "";
  std::vector<int32_t> ids;
  for (size_t i = 0; i < texts.size(); ++i) {
    ids.insert(ids.end(), prompts.ids[i].begin(), prompts.ids[i].end());
    ids.insert(ids.end(), texts[i].ids.begin(), texts[i].ids.end());
  }
  return data::note_on_unknown_ids(*prompts.tokenizer, ids);
}

}  // namespace fsdp::tools
