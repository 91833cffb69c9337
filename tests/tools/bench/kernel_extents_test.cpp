// Sizes of a model, changed by name.
#include "tools/bench/kernel_extents.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {

TEST_CASE("kernel extents: a preset, a folder, and changes of both") {
  const KernelExtents gpt2 = kernel_extents({.batch = 8, .length = 128, .dtype = DType::kBF16});
  CHECK(gpt2.model.hidden == 768);
  CHECK(gpt2.batch == 8);
  CHECK(gpt2.compute == DType::kBF16);
  CHECK(gpt2.gradient == DType::kF32);
  CHECK(gpt2.elements == 124439808 / 13);  // 12 blocks and a root

  const KernelExtents changed =
      kernel_extents({.model = "llama-7b", .shape = "ffn=1000,elements=77,kv_heads=4"});
  CHECK(changed.model.ffn == 1000);
  CHECK(changed.model.kv_heads == 4);
  CHECK(changed.model.hidden == 4096);
  CHECK(changed.elements == 77);

  const std::string folder = test::fixture_path("models/gpt2").string();
  const KernelExtents of_folder = kernel_extents({.model = folder, .length = 4});
  CHECK(of_folder.model.hidden == models::read_config(folder + "/config.json").hidden);
}

TEST_CASE("kernel extents: mistakes are named") {
  const auto error = [](const std::string& shape, int64_t length = 64) {
    return test::error_of([&] { kernel_extents({.shape = shape, .length = length}); });
  };
  CHECK(error("hiden=3") ==
        "--shape: expected NAME=NUMBER with one of elements, ffn, head_dim, heads, hidden, "
        "kv_heads, vocabulary; got \"hiden=3\"");
  CHECK(error("hidden") == "--shape: hidden: expected a positive number, got \"\"");
  for (const char* value : {"0", "-3", "1.5", "x", "99999999999999999999"}) {
    CHECK(test::contains(error(std::string("ffn=1,hidden=") + value), "--shape: hidden: expected"));
  }
  CHECK(test::contains(error("heads=5"), "kv_heads"));
  CHECK(error("", 1025) == "--seq: expected at most the 1024 positions of gpt2-124m, got 1025");
  CHECK(test::contains(test::error_of([] { kernel_extents({.model = "gpt9"}); }), "gpt9"));
}

}  // namespace fsdp::tools
