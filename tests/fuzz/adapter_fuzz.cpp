// Fuzz target: an adapter_config.json. What is read must be written and read again to the same
// text.
#include "models/adapter_folder.h"
#include "tests/fuzz/fuzz_target.h"

namespace fsdp::fuzz {

std::vector<std::string> seeds() {
  return {
      models::adapter_config_json(models::preset("gpt2-124m"),
                                  {.targets = {"c_attn"}, .base = "b"}),
      // As PEFT 0.18 writes it.
      R"({"alora_invocation_tokens":null,"alpha_pattern":{},"arrow_config":null,"auto_mapping":null,)"
      R"("base_model_name_or_path":"base","bias":"none","corda_config":null,"ensure_weight_tying":)"
      R"(false,"eva_config":null,"exclude_modules":null,"fan_in_fan_out":true,"inference_mode":true,)"
      R"("init_lora_weights":true,"layer_replication":null,"layers_pattern":null,)"
      R"("layers_to_transform":null,"loftq_config":{},"lora_alpha":8,"lora_bias":false,)"
      R"("lora_dropout":0.0,"modules_to_save":null,"peft_type":"LORA","r":4,"rank_pattern":{},)"
      R"("target_modules":["c_attn"],"task_type":"CAUSAL_LM","use_dora":false,"use_rslora":false})",
      R"({"peft_type":"LORA","r":8,"lora_alpha":0.5,"lora_dropout":0.25,"use_rslora":true,)"
      R"("init_lora_weights":"gaussian","target_modules":"all-linear"})",
      R"({"peft_type":"LORA","r":8,"lora_alpha":8,"init_lora_weights":"mica","corda_config":{"a":1}})",
      R"({"fine_tune_type":"lora","lora_parameters":{"rank":8},"model":"some_model"})",
      R"({"r":1,"lora_alpha":16,"target_modules":".*(q|v)_proj","rank_pattern":{"a":2}})"};
}

}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fsdp::models;
  static const ModelConfig model = preset("gpt2-124m");
  const std::string text(reinterpret_cast<const char*>(data), size);
  LoraConfig lora;
  if (!fsdp::fuzz::accepts([&] { lora = parse_adapter_config(text, "adapter_config.json"); })) {
    return 0;
  }
  fsdp::fuzz::require(lora.r > 0 && lora.scale() == lora.scale());
  const std::string written = adapter_config_json(model, lora);
  const LoraConfig again = parse_adapter_config(written, "written");
  fsdp::fuzz::require(adapter_config_json(model, again) == written);
  return 0;
}
