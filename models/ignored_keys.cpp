// The lists.
#include "models/ignored_keys.h"

#include <algorithm>
#include <array>

namespace fsdp::models {
namespace {

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
    IgnoredKey{"architectures", "names transformers' class; the weights say what there is"},
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

constexpr std::string_view kChoice = "says how generate() chooses tokens: here the command does";
constexpr std::string_view kLength = "says how long a text becomes: here the command does";
constexpr std::string_view kAssistant = "belongs to drafts by a second model, which are not made";

constexpr std::array kChoosesTokens = {
    IgnoredKey{"bad_words_ids", kChoice},
    IgnoredKey{"begin_suppress_tokens", kChoice},
    IgnoredKey{"constraints", kChoice},
    IgnoredKey{"diversity_penalty", kChoice},
    IgnoredKey{"do_sample", kChoice},
    IgnoredKey{"dola_layers", kChoice},
    IgnoredKey{"early_stopping", kChoice},
    IgnoredKey{"encoder_no_repeat_ngram_size", kChoice},
    IgnoredKey{"encoder_repetition_penalty", kChoice},
    IgnoredKey{"epsilon_cutoff", kChoice},
    IgnoredKey{"eta_cutoff", kChoice},
    IgnoredKey{"exponential_decay_length_penalty", kChoice},
    IgnoredKey{"force_words_ids", kChoice},
    IgnoredKey{"forced_bos_token_id", kChoice},
    IgnoredKey{"forced_eos_token_id", kChoice},
    IgnoredKey{"guidance_scale", kChoice},
    IgnoredKey{"length_penalty", kChoice},
    IgnoredKey{"min_length", kChoice},
    IgnoredKey{"min_new_tokens", kChoice},
    IgnoredKey{"min_p", kChoice},
    IgnoredKey{"no_repeat_ngram_size", kChoice},
    IgnoredKey{"num_beam_groups", kChoice},
    IgnoredKey{"num_beams", kChoice},
    IgnoredKey{"penalty_alpha", kChoice},
    IgnoredKey{"remove_invalid_values", kChoice},
    IgnoredKey{"renormalize_logits", kChoice},
    IgnoredKey{"repetition_penalty", kChoice},
    IgnoredKey{"sequence_bias", kChoice},
    IgnoredKey{"stop_strings", kChoice},
    IgnoredKey{"suppress_tokens", kChoice},
    IgnoredKey{"temperature", kChoice},
    IgnoredKey{"token_healing", kChoice},
    IgnoredKey{"top_k", kChoice},
    IgnoredKey{"top_p", kChoice},
    IgnoredKey{"typical_p", kChoice},
    IgnoredKey{"watermarking_config", kChoice},
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
    IgnoredKey{"max_length", kLength},
    IgnoredKey{"max_matching_ngram_size", kAssistant},
    IgnoredKey{"max_new_tokens", kLength},
    IgnoredKey{"max_time", kLength},
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
  std::copy(kChoosesTokens.begin(), kChoosesTokens.end(), all.begin());
  std::copy(kOtherGeneration.begin(), kOtherGeneration.end(), all.begin() + kChoosesTokens.size());
  return all;
}();

constexpr std::array kAdapter = {
    IgnoredKey{"auto_mapping", kOrigin},
    IgnoredKey{"ensure_weight_tying", "is about modules_to_save, which is refused"},
    IgnoredKey{"eva_config", "says how training began"},
    IgnoredKey{"fan_in_fan_out", "is the layout of the base's weights; PEFT corrects a wrong one"},
    IgnoredKey{"inference_mode", "freezes the adapter in PEFT; the command says what is trained"},
    IgnoredKey{"megatron_core", "names a module that megatron_config, which is refused, would use"},
    IgnoredKey{"peft_version", kOrigin},
    IgnoredKey{"qalora_group_size", "belongs to use_qalora, which is refused"},
    IgnoredKey{"revision", kOrigin},
    IgnoredKey{"runtime_config", "says where PEFT computes"},
    IgnoredKey{"task_type", "names PEFT's wrapper; the base's config.json says what the model is"},
};

}  // namespace

std::span<const IgnoredKey> ignored_config_keys() { return kConfig; }
std::span<const IgnoredKey> ignored_adapter_keys() { return kAdapter; }
std::span<const IgnoredKey> ignored_generation_keys() { return kGeneration; }
std::span<const IgnoredKey> keys_that_choose_tokens() { return kChoosesTokens; }

bool is_ignored(std::span<const IgnoredKey> keys, std::string_view key) {
  return std::any_of(keys.begin(), keys.end(), [&](const IgnoredKey& k) { return k.key == key; });
}

}  // namespace fsdp::models
