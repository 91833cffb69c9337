// The lists.
#include "models/ignored_keys.h"

#include <algorithm>
#include <array>
#include <optional>

namespace fsdp::models {
namespace {

constexpr std::string_view kBeginning = "says how training began, as init_lora_weights does";
constexpr std::string_view kOrigin = "says where the file comes from";
constexpr std::string_view kOutputs = "says what transformers' classes return besides the logits";
constexpr std::string_view kClassifier = "belongs to a head that classifies";
constexpr std::string_view kEncoder = "belongs to models with an encoder, which are refused";
constexpr std::string_view kTokenizer = "belongs to the tokenizer, whose own files say it";
constexpr std::string_view kDtype = "says how the weights are stored, which their file says too";
constexpr std::string_view kSpeed = "says how transformers computes, not what";
constexpr std::string_view kTensorFlow = "was read by classes for TensorFlow only";

constexpr std::array kConfig = {
    IgnoredKey{"_attn_implementation", kSpeed},
    IgnoredKey{"_commit_hash", kOrigin},
    IgnoredKey{"_name_or_path", kOrigin},
    IgnoredKey{"attn_implementation", kSpeed},
    IgnoredKey{"auto_map", "names code of the folder, which transformers runs only where told to"},
    IgnoredKey{"chunk_size_feed_forward", "splits a product that has the same rows in one piece"},
    IgnoredKey{"cross_attention_hidden_size", kEncoder},
    IgnoredKey{"decoder_start_token_id", kEncoder},
    IgnoredKey{"dtype", kDtype},
    IgnoredKey{"finetuning_task", kOrigin},
    IgnoredKey{"gradient_checkpointing", "saves memory; here the section recompute says so"},
    IgnoredKey{"id2label", kClassifier},
    IgnoredKey{"is_decoder", "has no effect on models without an encoder"},
    IgnoredKey{"label2id", kClassifier},
    IgnoredKey{"name_or_path", kOrigin},
    IgnoredKey{"num_labels", kClassifier},
    IgnoredKey{"output_attentions", kOutputs},
    IgnoredKey{"output_hidden_states", kOutputs},
    IgnoredKey{"prefix", kTokenizer},
    IgnoredKey{"problem_type", kClassifier},
    IgnoredKey{"prune_heads", "is documented under this name but read as pruned_heads"},
    IgnoredKey{"return_dict", kOutputs},
    IgnoredKey{"sep_token_id", kTokenizer},
    IgnoredKey{"task_specific_params", "says what pipelines of transformers ask generate() for"},
    IgnoredKey{"tf_legacy_loss", kTensorFlow},
    IgnoredKey{"tie_encoder_decoder", kEncoder},
    IgnoredKey{"tokenizer_class", kTokenizer},
    IgnoredKey{"torch_dtype", kDtype},
    IgnoredKey{"transformers_version", kOrigin},
    IgnoredKey{"use_bfloat16", kTensorFlow},
    IgnoredKey{"use_cache", kSpeed},
};

constexpr std::string_view kChoice =
    "says how generate() chooses tokens, or how many: here the command does";
constexpr std::string_view kAssistant = "belongs to drafts by a second model, which are not made";

struct ChoosingKey {
  std::string_view key;
  std::optional<double> off = {};  // the number that chooses nothing
};

constexpr std::array kChoosesTokens = {
    ChoosingKey{"bad_words_ids"},
    ChoosingKey{"begin_suppress_tokens"},
    ChoosingKey{"constraints"},
    ChoosingKey{"diversity_penalty", 0},
    ChoosingKey{"do_sample"},
    ChoosingKey{"dola_layers"},
    ChoosingKey{"early_stopping"},
    ChoosingKey{"encoder_no_repeat_ngram_size", 0},
    ChoosingKey{"encoder_repetition_penalty", 1},
    ChoosingKey{"epsilon_cutoff", 0},
    ChoosingKey{"eta_cutoff", 0},
    ChoosingKey{"exponential_decay_length_penalty"},
    ChoosingKey{"force_words_ids"},
    ChoosingKey{"forced_bos_token_id"},
    ChoosingKey{"forced_eos_token_id"},
    ChoosingKey{"guidance_scale", 1},
    ChoosingKey{"length_penalty", 1},
    ChoosingKey{"max_length", 20},
    ChoosingKey{"max_new_tokens"},
    ChoosingKey{"max_time"},
    ChoosingKey{"min_length", 0},
    ChoosingKey{"min_new_tokens", 0},
    ChoosingKey{"min_p", 0},
    ChoosingKey{"no_repeat_ngram_size", 0},
    ChoosingKey{"num_beam_groups", 1},
    ChoosingKey{"num_beams", 1},
    ChoosingKey{"penalty_alpha", 0},
    ChoosingKey{"remove_invalid_values"},
    ChoosingKey{"renormalize_logits"},
    ChoosingKey{"repetition_penalty", 1},
    ChoosingKey{"sequence_bias"},
    ChoosingKey{"stop_strings"},
    ChoosingKey{"suppress_tokens"},
    ChoosingKey{"temperature", 1},
    ChoosingKey{"token_healing"},
    ChoosingKey{"top_k", 0},
    ChoosingKey{"top_p", 1},
    ChoosingKey{"typical_p", 1},
    ChoosingKey{"watermarking_config"},
};

constexpr std::array kOtherGeneration = {
    IgnoredKey{"_commit_hash", kOrigin},
    IgnoredKey{"_from_model_config", kOrigin},
    IgnoredKey{"assistant_confidence_threshold", kAssistant},
    IgnoredKey{"assistant_early_exit", kAssistant},
    IgnoredKey{"assistant_lookbehind", kAssistant},
    IgnoredKey{"bos_token_id", "begins a text without a prompt; a prompt is asked for here"},
    IgnoredKey{"cache_config", kSpeed},
    IgnoredKey{"cache_implementation", kSpeed},
    IgnoredKey{"compile_config", kSpeed},
    IgnoredKey{"decoder_start_token_id", kEncoder},
    IgnoredKey{"disable_compile", kSpeed},
    IgnoredKey{"is_assistant", kAssistant},
    IgnoredKey{"low_memory", kSpeed},
    IgnoredKey{"max_matching_ngram_size", kAssistant},
    IgnoredKey{"num_assistant_tokens", kAssistant},
    IgnoredKey{"num_assistant_tokens_schedule", kAssistant},
    IgnoredKey{"num_return_sequences", "asks for several texts; here a prompt is continued once"},
    IgnoredKey{"output_attentions", kOutputs},
    IgnoredKey{"output_hidden_states", kOutputs},
    IgnoredKey{"output_logits", kOutputs},
    IgnoredKey{"output_scores", kOutputs},
    IgnoredKey{"pad_token_id", "fills rows of a batch, which are masked"},
    IgnoredKey{"prefill_chunk_size", kSpeed},
    IgnoredKey{"prompt_lookup_num_tokens", kAssistant},
    IgnoredKey{"return_dict_in_generate", kOutputs},
    IgnoredKey{"return_legacy_cache", kOutputs},
    IgnoredKey{"target_lookbehind", kAssistant},
    IgnoredKey{"transformers_version", kOrigin},
    IgnoredKey{"use_cache", kSpeed},
};

constexpr auto kGeneration = [] {
  std::array<IgnoredKey, kChoosesTokens.size() + kOtherGeneration.size()> all;
  std::transform(kChoosesTokens.begin(), kChoosesTokens.end(), all.begin(),
                 [](const ChoosingKey& k) {
                   return IgnoredKey{k.key, kChoice};
                 });
  std::copy(kOtherGeneration.begin(), kOtherGeneration.end(), all.begin() + kChoosesTokens.size());
  return all;
}();

constexpr std::array kAdapter = {
    IgnoredKey{"auto_mapping", kOrigin},
    IgnoredKey{"corda_config", kBeginning},
    IgnoredKey{"ensure_weight_tying", "is about modules_to_save, which is refused"},
    IgnoredKey{"eva_config", kBeginning},
    IgnoredKey{"fan_in_fan_out", "is the layout of the base's weights; PEFT corrects a wrong one"},
    IgnoredKey{"inference_mode", "freezes the adapter in PEFT; the command says what is trained"},
    IgnoredKey{"loftq_config", kBeginning},
    IgnoredKey{"lora_ga_config", kBeginning},
    IgnoredKey{"megatron_core", "names a module that megatron_config, which is refused, would use"},
    IgnoredKey{"peft_version", kOrigin},
    IgnoredKey{"qalora_group_size", "belongs to use_qalora, which is refused"},
    IgnoredKey{"revision", kOrigin},
    IgnoredKey{"runtime_config", "says where PEFT computes"},
};

}  // namespace

std::span<const IgnoredKey> ignored_config_keys() { return kConfig; }
std::span<const IgnoredKey> ignored_adapter_keys() { return kAdapter; }
std::span<const IgnoredKey> ignored_generation_keys() { return kGeneration; }

bool chooses_tokens(std::string_view key, const Json& value) {
  const auto found = std::find_if(kChoosesTokens.begin(), kChoosesTokens.end(),
                                  [&](const ChoosingKey& k) { return k.key == key; });
  const bool nothing =
      value.is_null() || value == false || (value.is_structured() && value.empty());
  if (found == kChoosesTokens.end() || nothing) return false;
  return !value.is_number() || value.get<double>() != found->off;
}

bool is_ignored(std::span<const IgnoredKey> keys, std::string_view key) {
  return std::any_of(keys.begin(), keys.end(), [&](const IgnoredKey& k) { return k.key == key; });
}

}  // namespace fsdp::models
