// Reading a folder and prompts before generation.
#include "tools/generate/generation_plan.h"

#include <algorithm>

namespace fsdp::tools {

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
