// padding_side of a tokenizer's folder, and what data.pad: auto makes of it.
#include "tools/data/padding_side.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"
#include "tools/config/config.h"
#include "tools/train/data_paths.h"

namespace fsdp::data {
namespace {

TEST_CASE("padding side: of a folder, of its file, of a folder that says none, of bytes") {
  const test::TempFolder folder;
  const std::string file = folder.write("tokenizer.json", "{}").string(),
                    here = folder.path().string();
  CHECK(padding_side_of(here) == std::nullopt);
  const std::string config =
      folder.write("tokenizer_config.json", R"({"padding_side": "left"})").string();
  CHECK(padding_side_of(here) == PadSide::kLeft);
  CHECK(padding_side_of(file) == PadSide::kLeft);
  folder.write("tokenizer_config.json", R"({"padding_side": "right"})");
  CHECK(padding_side_of(here) == PadSide::kRight);
  folder.write("tokenizer_config.json", R"({"padding_side": null})");
  CHECK(padding_side_of(here) == std::nullopt);
  folder.write("tokenizer_config.json", R"({"padding_side": "up"})");
  CHECK(test::error_of([&] { padding_side_of(here); }) ==
        config + ": padding_side: expected \"left\" or \"right\", got \"up\"");
  CHECK(padding_side_of("bytes") == std::nullopt);
}

TEST_CASE("data.pad: auto is the tokenizer's side, where rows are padded and no side is given") {
  const test::TempFolder folder;
  folder.write("tokenizer.json", "{}");
  folder.write("tokenizer_config.json", R"({"padding_side": "left"})");
  const auto side = [&](std::vector<config::Override> overrides) {
    overrides.emplace_back("data.tokenizer=" + folder.path().string());
    config::TrainConfig c = config::parse_config("", "", overrides);
    tools::resolve_paths(c, "");
    return c.data.pad;
  };
  CHECK(side({"data.pack=examples"}) == PadSide::kLeft);
  CHECK(side({"data.pack=examples", "data.pad=right"}) == PadSide::kRight);
  CHECK(side({}) == std::nullopt);
}

}  // namespace
}  // namespace fsdp::data
