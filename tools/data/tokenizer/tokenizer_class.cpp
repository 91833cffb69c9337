// Contract: tools/data/tokenizer/tokenizer_class.h.
#include "tools/data/tokenizer/tokenizer_class.h"

#include <algorithm>
#include <array>

#include "core/io/hub_files.h"
#include "tools/data/tokenizer/json_node.h"

namespace fsdp::data {
namespace {

constexpr std::string_view kEnd = "<|endoftext|>";

constexpr std::array kClasses = {
    TokenizerClass{.name = "PreTrainedTokenizer",
                   .model_types = "bitnet blt csm falcon glm glm4 glm4_moe glm4v glm4v_moe gpt_oss "
                                  "helium kosmos-2.5 modernbert moonshine moshi nemotron pixtral "
                                  "smollm3"},
    TokenizerClass{
        .name = "LlamaTokenizer",
        .bos = "<s>",
        .eos = "</s>",
        .unk = "<unk>",
        .frames = true,
        .adds_begin = true,
        .leaves_prefix = true,
        .model_types =
            "arcee aria chameleon code_llama colpali deepseek_v2 deepseek_v3 deepseek_vl "
            "deepseek_vl_hybrid diffllama ernie4_5 ernie4_5_moe granitevision idefics idefics2 "
            "idefics3 jamba janus jetmoe llama llama4 llama4_text llava llava_next "
            "llava_next_video llava_onevision mistral mixtral mllama paligemma "
            "persimmon phi3 phimoe video_llava vipllava voxtral zamba zamba2"},
    TokenizerClass{.name = "CodeLlamaTokenizer",
                   .bos = "<s>",
                   .eos = "</s>",
                   .unk = "<unk>",
                   .frames = true,
                   .adds_begin = true,
                   .infills = true},
    TokenizerClass{.name = "GemmaTokenizer",
                   .bos = "<bos>",
                   .eos = "<eos>",
                   .unk = "<unk>",
                   .pad = "<pad>",
                   .frames = true,
                   .adds_begin = true,
                   .model_types = "gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text "
                                  "recurrent_gemma shieldgemma2 siglip2 t5gemma"},
    TokenizerClass{.name = "CohereTokenizer",
                   .bos = "<BOS_TOKEN>",
                   .eos = "<|END_OF_TURN_TOKEN|>",
                   .unk = "<UNK>",
                   .frames = true,
                   .adds_begin = true,
                   .prefixes_nested = true,
                   .model_types = "aya_vision cohere cohere2"},
    TokenizerClass{.name = "GPTNeoXTokenizer",
                   .bos = kEnd,
                   .eos = kEnd,
                   .unk = kEnd,
                   .frames = true,
                   .keeps_no_padding = true,
                   .model_types = "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv "
                                  "stablelm xlstm"},
    TokenizerClass{.name = "GPT2Tokenizer",
                   .bos = kEnd,
                   .eos = kEnd,
                   .unk = kEnd,
                   .model_types =
                       "blip-2 dbrx emu3 exaone4 flex_olmo gpt-sw3 gpt2 gpt_bigcode gpt_neo "
                       "gptj instructblip instructblipvideo minimax olmo3 opt "
                       "starcoder2"},
    TokenizerClass{.name = "CodeGenTokenizer",
                   .bos = kEnd,
                   .eos = kEnd,
                   .unk = kEnd,
                   .refuses_begin = true,
                   .model_types = "codegen phi"},
    TokenizerClass{.name = "Qwen2Tokenizer",
                   .eos = kEnd,
                   .unk = kEnd,
                   .pad = kEnd,
                   .makes_special = true,
                   .model_types = "colqwen2 internvl qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio "
                                  "qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next qwen3_omni_moe "
                                  "qwen3_vl qwen3_vl_moe"},
    TokenizerClass{.name = "BloomTokenizer",
                   .bos = "<s>",
                   .eos = "</s>",
                   .unk = "<unk>",
                   .pad = "<pad>",
                   .prefixes_nested = true,
                   .model_types = "bloom"}};

bool lists(std::string_view words, std::string_view word) {
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(' ', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

const TokenizerClass* by_model_type(std::string_view type) {
  const auto found = std::find_if(kClasses.begin(), kClasses.end(), [&](const TokenizerClass& c) {
    return lists(c.model_types, type);
  });
  return found == kClasses.end() ? nullptr : &*found;
}

ChosenClass by_name(const std::string& name, const std::filesystem::path& file) {
  if (const TokenizerClass* of = tokenizer_class(name)) return {of, "", name};
  return {&kClasses.front(),
          fmt::format("{} names the tokenizer_class \"{}\", whose rules are not known here: it is "
                      "read as PreTrainedTokenizerFast",
                      file.filename().string(), name),
          name};
}

}  // namespace

std::span<const TokenizerClass> tokenizer_classes() { return kClasses; }

const TokenizerClass* tokenizer_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const auto found = std::find_if(kClasses.begin(), kClasses.end(),
                                  [&](const TokenizerClass& c) { return c.name == name; });
  return found == kClasses.end() ? nullptr : &*found;
}

ChosenClass choose_class(const std::filesystem::path& folder, const Json& config) {
  const auto file = folder / "tokenizer_config.json", model_file = folder / "config.json";
  const JsonNode keys(config, file.string());
  if (config.is_object() && keys.has("tokenizer_class")) {
    return by_name(keys.text("tokenizer_class"), file);
  }
  if (is_named(model_file)) {
    const Json model = read_json_file(model_file);
    const JsonNode of_model(model, model_file.string());
    if (of_model.has("tokenizer_class")) {
      return by_name(of_model.text("tokenizer_class"), model_file);
    }
    if (of_model.has("model_type")) {
      const std::string type = of_model.text("model_type");
      if (const TokenizerClass* of = by_model_type(type)) return {of, ""};
      return {&kClasses.front(),
              fmt::format("{} has the model_type \"{}\", whose tokenizer class is not known here: "
                          "it is read as PreTrainedTokenizerFast",
                          model_file.filename().string(), type)};
    }
  }
  if (config.is_null() && !is_named(folder / "special_tokens_map.json") &&
      !is_named(folder / "added_tokens.json")) {
    return {};
  }
  return {&kClasses.front(),
          "no file beside it names a tokenizer_class or a model_type: it is read as "
          "PreTrainedTokenizerFast"};
}

}  // namespace fsdp::data
