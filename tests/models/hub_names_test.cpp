// Presets by the names that their models have on Hugging Face's hub.
#include "models/hub_names.h"

#include <doctest/doctest.h>

#include "models/config.h"
#include "tests/support/temp_folder.h"

namespace fsdp::models {
namespace {

TEST_CASE("hub names: a preset by its name on the hub, with or without the organisation") {
  CHECK(preset_named("gpt2") == "gpt2-124m");
  CHECK(preset_named("openai-community/gpt2-xl") == "gpt2-1558m");
  CHECK(preset_named("meta-llama/Llama-3.1-8B") == "llama3.1-8b");
  CHECK(preset_named("meta-llama/llama-3.1-8b-instruct") == "llama3.1-8b");
  CHECK(preset_named("bigscience/bloom") == "bloom-176b");
  CHECK(preset_named("EleutherAI/pythia-1.4b-deduped") == "pythia-1.4b");
  for (const std::string& name : preset_names()) CHECK(preset_named(name) == name);
  for (const char* none : {"", "/", "gpt5", "meta-llama/gpt2", "mistralai/Mistral-7B-v0.3",
                           "meta-llama/Llama-3.1-8B/config.json", "./gpt2"}) {
    CAPTURE(none);
    CHECK(preset_named(none) == "");
  }
  CHECK(test::contains(test::error_of([] { preset("someone/else"); }),
                       "preset: expected one of gpt2-124m, "));
}

TEST_CASE("hub names: none of them is a preset, whose weights are random") {
  CHECK(is_preset("gpt2-124m"));
  CHECK_FALSE(is_preset("gpt2"));
  CHECK(test::error_of([] { preset("gpt2"); }) ==
        "preset: unknown name \"gpt2\"; the nearest preset is gpt2-124m (gpt2 on the hub)");
  const std::string error = test::error_of([] { preset("bigscience/bloom-560m"); });
  CHECK(
      test::contains(error, "the nearest preset is bloom-560m (bigscience/bloom-560m on the hub)"));
  CHECK(test::contains(error, "\n  hf download bigscience/bloom-560m "));
  CHECK(test::contains(instead_of("EleutherAI/pythia-70"),
                       "; the nearest preset is pythia-70m (EleutherAI/pythia-70m on the hub), "
                       "which has no weights; of a model on"));
  CHECK(instead_of("/no/such") == "");
}

TEST_CASE("hub names: the nearest name, where one is near") {
  CHECK(near_preset("gpt2-12m") == "gpt2-124m");
  CHECK(near_preset("gpt2-mediun") == "gpt2-medium");
  CHECK(near_preset("LLAMA3.2-1") == "llama3.2-1b");
  CHECK(near_preset("meta-llama/Llama-3.1-9B") == "meta-llama/Llama-3.1-8B");
  CHECK(near_preset("Qwen/Qwen2.5-7") == "Qwen/Qwen2.5-7B");
  CHECK(near_preset("foo/gpt2-mediun") == "gpt2-medium");
  CHECK(near_preset("my-model") == "");
  CHECK(near_preset("") == "");
  CHECK(test::error_of([] { preset("pythia-1bb"); }) ==
        "preset: unknown name \"pythia-1bb\"; the nearest preset is pythia-1b");
}

}  // namespace
}  // namespace fsdp::models
