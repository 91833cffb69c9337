// Names in Hugging Face files, checked against the published lists of tensors and shapes.
#include "models/names.h"

#include <map>

#include <doctest/doctest.h>

#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "tests/support/temp_folder.h"

namespace fsdp::models {
namespace {

// Parameters have no values before they are sharded: a model of any size costs nothing.
std::map<std::string, std::string> shapes_by_name(const std::string& preset_name) {
  cpu::CpuBackend backend;
  const CausalLM model(preset(preset_name), backend, DType::kBF16, 8);
  std::map<std::string, std::string> shapes;
  for (const Parameter* p : model.parameters()) {
    shapes[hugging_face_name(model.config(), p->name())] = p->shape().str();
  }
  CHECK(shapes.size() == model.parameters().size());  // no two parameters share a name
  return shapes;
}

TEST_CASE("names: gpt2") {
  auto shapes = shapes_by_name("gpt2-124m");
  CHECK(shapes.size() == 148);
  CHECK(shapes["transformer.wte.weight"] == "(50257, 768)");
  CHECK(shapes["transformer.wpe.weight"] == "(1024, 768)");
  CHECK(shapes["transformer.h.0.attn.c_attn.weight"] == "(768, 2304)");
  CHECK(shapes["transformer.h.0.attn.c_attn.bias"] == "(2304)");
  CHECK(shapes["transformer.h.0.attn.c_proj.weight"] == "(768, 768)");
  CHECK(shapes["transformer.h.11.mlp.c_fc.weight"] == "(768, 3072)");
  CHECK(shapes["transformer.h.11.mlp.c_proj.weight"] == "(3072, 768)");
  CHECK(shapes["transformer.h.11.mlp.c_proj.bias"] == "(768)");
  CHECK(shapes["transformer.h.0.ln_1.weight"] == "(768)");
  CHECK(shapes["transformer.h.0.ln_2.bias"] == "(768)");
  CHECK(shapes["transformer.ln_f.bias"] == "(768)");
  CHECK(shapes.count("lm_head.weight") == 0);  // tied
}

TEST_CASE("names: fairseq's gpt3, the workshop's gpt") {
  auto fairseq = shapes_by_name("transformer_lm_gpt3_small");
  CHECK(fairseq.size() == 12 * 16 + 4);
  CHECK(fairseq["decoder.embed_tokens.weight"] == "(50272, 768)");
  CHECK(fairseq["decoder.embed_positions.weight"] == "(2050, 768)");
  CHECK(fairseq["decoder.layers.11.self_attn.k_proj.weight"] == "(768, 768)");
  CHECK(fairseq["decoder.layers.0.self_attn.out_proj.bias"] == "(768)");
  CHECK(fairseq["decoder.layers.0.self_attn_layer_norm.weight"] == "(768)");
  CHECK(fairseq["decoder.layers.0.fc1.weight"] == "(3072, 768)");
  CHECK(fairseq["decoder.layers.0.final_layer_norm.bias"] == "(768)");
  CHECK(fairseq["decoder.layer_norm.weight"] == "(768)");
  CHECK(is_ignorable(preset("transformer_lm_gpt3_small"), "decoder.version"));
  auto workshop = shapes_by_name("workshop-gpt-3");
  CHECK(workshop.size() == 3 * 12 + 2);
  CHECK(workshop["token_embedding.weight"] == "(250680, 2048)");
  CHECK(workshop["lm_head.bias"] == "(250680)");
  CHECK(workshop["transformer.layers.2.self_attn.in_proj_weight"] == "(6144, 2048)");
  CHECK(workshop["transformer.layers.2.self_attn.in_proj_bias"] == "(6144)");
  CHECK(workshop["transformer.layers.0.linear2.weight"] == "(2048, 8192)");
  CHECK(workshop["transformer.layers.0.norm2.bias"] == "(2048)");
  CHECK(is_ignorable(preset("workshop-gpt-3"), "lm_head.weight"));
}

TEST_CASE("names: bloom, pythia, mistral, qwen2") {
  auto bloom = shapes_by_name("bloom-560m");
  CHECK(bloom.size() == 293);
  CHECK(bloom["transformer.word_embeddings.weight"] == "(250880, 1024)");
  CHECK(bloom["transformer.word_embeddings_layernorm.bias"] == "(1024)");
  CHECK(bloom["transformer.h.0.self_attention.query_key_value.weight"] == "(3072, 1024)");
  CHECK(bloom["transformer.h.23.self_attention.dense.weight"] == "(1024, 1024)");
  CHECK(bloom["transformer.h.0.mlp.dense_h_to_4h.weight"] == "(4096, 1024)");
  CHECK(bloom["transformer.h.0.mlp.dense_4h_to_h.weight"] == "(1024, 4096)");
  auto pythia = shapes_by_name("pythia-1b");
  CHECK(pythia.size() == 196);
  CHECK(pythia["gpt_neox.embed_in.weight"] == "(50304, 2048)");
  CHECK(pythia["gpt_neox.layers.15.attention.query_key_value.weight"] == "(6144, 2048)");
  CHECK(pythia["gpt_neox.layers.0.mlp.dense_h_to_4h.weight"] == "(8192, 2048)");
  CHECK(pythia["gpt_neox.final_layer_norm.weight"] == "(2048)");
  CHECK(pythia["embed_out.weight"] == "(50304, 2048)");
  auto mistral = shapes_by_name("mistral-7b");
  CHECK(mistral.size() == 291);
  CHECK(mistral["model.layers.0.self_attn.k_proj.weight"] == "(1024, 4096)");
  CHECK(mistral["model.layers.0.mlp.down_proj.weight"] == "(4096, 14336)");
  auto qwen = shapes_by_name("qwen2.5-0.5b");
  CHECK(qwen.size() == 290);
  CHECK(qwen["model.layers.0.self_attn.q_proj.bias"] == "(896)");
  CHECK(qwen["model.layers.0.self_attn.v_proj.weight"] == "(128, 896)");
  CHECK(qwen.count("model.layers.0.self_attn.o_proj.bias") == 0);
  CHECK(qwen.count("lm_head.weight") == 0);
}

TEST_CASE("names: llama, with and without grouped heads") {
  auto shapes = shapes_by_name("codellama-7b");
  CHECK(shapes.size() == 291);
  CHECK(shapes["model.embed_tokens.weight"] == "(32016, 4096)");
  CHECK(shapes["model.layers.31.self_attn.q_proj.weight"] == "(4096, 4096)");
  CHECK(shapes["model.layers.0.mlp.gate_proj.weight"] == "(11008, 4096)");
  CHECK(shapes["model.layers.0.mlp.down_proj.weight"] == "(4096, 11008)");
  CHECK(shapes["model.layers.0.input_layernorm.weight"] == "(4096)");
  CHECK(shapes["model.layers.0.post_attention_layernorm.weight"] == "(4096)");
  CHECK(shapes["model.norm.weight"] == "(4096)");
  CHECK(shapes["lm_head.weight"] == "(32016, 4096)");
  auto grouped = shapes_by_name("llama3-8b");
  CHECK(grouped.size() == 291);
  CHECK(grouped["model.layers.3.self_attn.k_proj.weight"] == "(1024, 4096)");
  CHECK(grouped["model.layers.3.self_attn.v_proj.weight"] == "(1024, 4096)");
  CHECK(grouped["model.layers.3.self_attn.o_proj.weight"] == "(4096, 4096)");
  CHECK(grouped["model.layers.3.mlp.up_proj.weight"] == "(14336, 4096)");
}

TEST_CASE("names: prefixes that may be missing, and tensors that are no parameters") {
  ModelConfig gpt2 = preset("gpt2-124m");
  const ModelConfig llama = preset("llama-7b");
  CHECK(base_prefix(gpt2) == "transformer.");
  CHECK(base_prefix(llama) == "model.");
  CHECK(is_ignorable(gpt2, "h.0.attn.bias"));
  CHECK(is_ignorable(gpt2, "transformer.h.7.attn.masked_bias"));
  CHECK(is_ignorable(gpt2, "lm_head.weight"));  // a copy of the tied table
  gpt2.tied_head = false;
  CHECK_FALSE(is_ignorable(gpt2, "lm_head.weight"));
  CHECK_FALSE(is_ignorable(gpt2, "transformer.h.0.attn.c_attn.bias"));
  CHECK(is_ignorable(llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK(is_ignorable(llama, "rotary_emb.inv_freq"));  // of newer versions, without the prefix
  CHECK_FALSE(is_ignorable(llama, "model.layers.0.attn.bias"));
  const ModelConfig pythia = preset("pythia-70m");
  CHECK(is_ignorable(pythia, "gpt_neox.layers.0.attention.bias"));
  CHECK(is_ignorable(pythia, "layers.5.attention.masked_bias"));
  CHECK(is_ignorable(pythia, "gpt_neox.layers.0.attention.rotary_emb.inv_freq"));
  CHECK_FALSE(is_ignorable(pythia, "embed_out.weight"));
  CHECK_FALSE(is_ignorable(pythia, "gpt_neox.layers.0.attention.dense.bias"));
  CHECK(is_ignorable(preset("bloom-560m"), "transformer.causal_mask"));
}

TEST_CASE("names: what is no parameter of the family has no name") {
  const ModelConfig gpt2 = preset("gpt2-124m");
  CHECK(test::error_of([&] { hugging_face_name(gpt2, "blocks.0.mlp.gate.weight"); }) ==
        "[names] mlp.gate.weight: no Hugging Face name");
  CHECK(test::error_of([&] { hugging_face_name(gpt2, "norm.weight"); }) ==
        "[names] norm.weight: no Hugging Face name");
  ModelConfig other = gpt2;
  other.family = "bert";
  CHECK(test::contains(test::error_of([&] { base_prefix(other); }), ", got \"bert\""));
}

}  // namespace
}  // namespace fsdp::models
