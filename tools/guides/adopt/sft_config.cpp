// What SFTConfig, of TRL's SFTTrainer, has beside TrainingArguments: rows, and which of their
// tokens are trained. Contract: tools/guides/adopt/hugging_face_keys.h.
#include <algorithm>

#include "tools/guides/adopt/hugging_face_keys.h"

namespace fsdp::adopt {
namespace {

// A row is a sequence, or rows are joined and cut.
void take_packing(const Given& given, Adoption& adoption) {
  const Given* how = adoption.find("packing_strategy");
  const bool packs = given.truth();
  const bool cuts = how && how->one() == "wrapped";
  adoption.set("data.pack", packs ? "stream" : "examples", given,
               packs && !cuts ? "joined and cut; there rows stay whole" : "");
}

void take_packing_strategy(const Given& given, Adoption& adoption) {
  const bool packs = adoption.is_on("packing");
  adoption.leave(given, packs ? "as data.pack says" : "no effect without packing");
}

void take_completion_only(const Given& given, Adoption& adoption) {
  adoption.set("data.objective", given.truth() ? "sft" : "lm", given);
}

void take_loss_type(const Given& given, Adoption& adoption) {
  if (given.one() != "nll" && given.one() != "chunked_nll") given.fail("nll or chunked_nll");
  adoption.leave(given, "fsdp train has no other loss");
}

void take_truncation(const Given& given, Adoption& adoption) {
  if (given.one() != "keep_start") given.fail("keep_start");
  adoption.leave(given, "rows are cut at their end");
}

void take_offloading(const Given& given, Adoption& adoption) {
  if (!given.truth()) return adoption.off(given);
  if (!adoption.is_on("gradient_checkpointing")) {
    given.refuse("expected gradient_checkpointing with it: what recompute keeps waits on the host");
  }
  adoption.leave(given, "train.recompute.mode: offload does it");
}

}  // namespace

std::vector<Rule> sft_rules() {
  const auto tokens = leave("texts become tokens once, on threads of their own");
  const auto from_tokenizer = leave("the tokenizer's folder says it");
  const auto padded = leave("rows are padded as data.pad and data.pad_to say");
  return {
      {"max_length", whole_to("data.sequence_length")},
      {"dataset_text_field", to("data.field")},
      {"packing", take_packing},
      {"packing_strategy", take_packing_strategy},
      {"completion_only_loss", take_completion_only},
      {"assistant_only_loss", refuse("there are no rows of chats here")},
      {"loss_type", take_loss_type},
      {"router_aux_loss_coef", refuse("there are no models of experts here")},
      {"truncation_mode", take_truncation},
      {"activation_offloading", take_offloading},
      {"shuffle_dataset", same("data.shuffle: rows are shuffled in every epoch")},
      {"eval_packing", same("validation rows are packed as the others")},
      {"padding_free", padded},
      {"pad_to_multiple_of", padded},
      {"eos_token", from_tokenizer},
      {"pad_token", from_tokenizer},
      {"chat_template_path", leave("data.template says how a row becomes a text")},
      {"model_init_kwargs.*", leave("weights come from model.path, and compute has train.dtype")},
      {"dataset_kwargs.*", tokens},
      {"dataset_num_proc", tokens},
      {"dataset_batch_size", tokens},
      {"num_of_sequences", tokens},
      {"chars_per_token", tokens},
      {"use_liger", leave("there is no graph compiler: kernels are fused by hand")},
  };
}

// Of SFTConfig, whose completion_only_loss is null unless something is said: then the rows decide.
void note_on_completions(Adoption& adoption) {
  const std::vector<Rule> rules = sft_rules();
  const bool is_sft = std::ranges::any_of(
      rules, [&](const Rule& rule) { return adoption.find(rule.name) != nullptr; });
  if (!is_sft || adoption.has("data.objective")) return;
  adoption.note(
      "completion_only_loss is not set: of rows with prompt and completion TRL trains the "
      "completion only; --set data.objective=sft does it here");
}

}  // namespace fsdp::adopt
