// Fuzz target: a config.json. What is read must be written and read again to the same text.
#include "models/block.h"
#include "models/family.h"
#include "models/key_bias.h"
#include "models/names.h"
#include "tests/fuzz/fuzz_target.h"

namespace fsdp::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  for (const models::Family* family : models::families()) {
    out.push_back(models::config_json(
        models::preset(models::data_of(*family)["presets"][0]["name"].text()), "float32"));
  }
  out.push_back(models::config_json(models::preset("llama3.1-8b"), "bfloat16"));
  // The old and the new spellings that the writer does not use.
  out.push_back(
      R"({"model_type":"gpt_neox","vocab_size":9,"hidden_size":8,"num_hidden_layers":1,)"
      R"("num_attention_heads":2,"intermediate_size":8,"rope_parameters":{"rope_type":"linear",)"
      R"("rope_theta":1e4,"factor":2.0,"partial_rotary_factor":0.5},"eos_token_id":[1,2]})");
  out.push_back(R"({"model_type":"bloom","vocab_size":9,"n_embed":8,"num_hidden_layers":1,)"
                R"("num_attention_heads":2,"seq_length":8})");
  out.push_back(
      R"({"model_type":"gpt2","vocab_size":9,"n_embd":8,"n_layer":1,"n_head":2,"n_ctx":8,)"
      R"("n_inner":null,"activation_function":"gelu"})");
  out.push_back(R"({"model_type":"mistral","vocab_size":9,"hidden_size":8,"num_hidden_layers":1,)"
                R"("num_attention_heads":2,"intermediate_size":8,"head_dim":2,"sliding_window":4,)"
                R"("rope_scaling":{"type":"linear","factor":4}})");
  return out;
}

}  // namespace fsdp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace fsdp::models;
  const std::string text(reinterpret_cast<const char*>(data), size);
  ModelConfig config;
  if (!fsdp::fuzz::accepts([&] { config = parse_config(text, "config.json"); })) return 0;
  fsdp::fuzz::require(config.parameter_count() > 0);
  fsdp::fuzz::require(!hugging_face_name(config, "embedding.tokens.weight").empty());
  if (config.positions == PositionKind::kRope && config.head_dim <= 4096) {
    rope_frequencies(config.rope, config.rotary_dim());
  }
  if (config.positions == PositionKind::kAlibi && config.heads <= 4096) alibi_slopes(config.heads);
  const std::string written = config_json(config, "float32");
  fsdp::fuzz::require(config_json(parse_config(written, "written"), "float32") == written);
  return 0;
}
