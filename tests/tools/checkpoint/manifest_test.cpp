// The manifest: what is written is read, and nothing else is taken for one.
#include "tools/checkpoint/manifest.h"

#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

Manifest an_example() {
  Manifest m;
  m.program = "1.0 abc";
  m.device = "cpu";
  m.config = "train:\n  steps: 3 # \"quoted\"\n";
  m.model = "{}";
  m.run_directory = "/runs/a";
  m.data = {{"tokens", "12"}};
  m.base_path = "llama";
  m.base_hash = 0xfedcba9876543210;
  m.world_size = 2;
  m.progress = {.steps = 7,
                .skipped = 3,
                .spikes = 2,
                .spikes_in_a_row = 1,
                .rollbacks = 2,
                .left_out = {{3, 5}, {1'000'000'000'000, 1'000'000'000'001}},
                .good_norms = {0.1, 2},
                .true_tokens = 1234567890123,
                .samples = 56,
                .wall_time_s = 0.1,
                .step_time_s = 1e-300,
                .recent_losses = {1.0 / 3, INFINITY, 2},
                .validation_loss = 0.7,
                .validated_at = 5,
                .best_validation_loss = 0.6};
  m.updates = 7;
  m.loss_scale = optim::LossScalerState{.scale = 0x1p16F, .counters = {1, 2, 3}, .aborted = 0};
  m.metrics = {{"train_loss", 1.5}};
  m.hash = {1, 0xffffffffffffffff};
  add_shards(m, {{.file = {.name = "b", .bytes = 40, .blocks = {5}},
                  .tensors = {{"w", {DType::kF32, {2, 5}, {{0, 3, 7, 12}}}}}},
                 {.file = {.name = "a", .bytes = 30, .blocks = {6}},
                  .tensors = {{"w", {DType::kF32, {2, 5}, {{0, 0, 3, 0}}}},
                              {"w/step", {DType::kI32, {}, {{0, 0, 1, 24}}}}}}});
  return m;
}

TEST_CASE("manifest: what was written is read") {
  const Manifest m = an_example();
  const std::string text = manifest_text(m);
  const Manifest read = parse_manifest(text, "x");
  CHECK(manifest_text(read) == text);
  CHECK(read.progress == m.progress);
  CHECK(read.loss_scale == m.loss_scale);
  CHECK(read.hash == m.hash);
  CHECK(read.files == m.files);
  CHECK(read.tensors == m.tensors);
  CHECK(read.base_hash == m.base_hash);
  CHECK(read.config == m.config);
  CHECK(read.metrics == m.metrics);
  CHECK(read.state_bytes() == 70);
  CHECK(read.tensors.at("w").pieces ==
        std::vector<StoredPiece>{{1, 0, 3, 0}, {0, 3, 7, 12}});  // in order
}

TEST_CASE("manifest: any flipped byte and any cut is told by its checksum") {
  const std::string text = manifest_text(an_example());
  const std::string damaged = "x: damaged: it does not have the checksum that it was written with";
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 5, 7}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      REQUIRE(test::error_of([&] { parse_manifest(changed, "x"); }) == damaged);
    }
    REQUIRE(test::error_of([&] { parse_manifest(text.substr(0, i), "x"); }) == damaged);
  }
  CHECK(test::error_of([&] { parse_manifest(text + " ", "x"); }) == damaged);
}

TEST_CASE("manifest: pieces are all of a tensor, once, inside of their files") {
  const auto error_with = [](const std::function<void(StoredTensor&, Manifest&)>& change) {
    Manifest m = an_example();
    change(m.tensors.at("w"), m);
    return test::error_of([&] { parse_manifest(manifest_text(m), "x"); });
  };
  CHECK(error_with([](StoredTensor&, Manifest&) {}) == "");
  CHECK(error_with([](StoredTensor& w, Manifest&) { w.pieces.pop_back(); }) ==
        "x: w: 3 of 10 elements");
  CHECK(error_with([](StoredTensor& w, Manifest&) { w.pieces[1].first = 2; }) ==
        "x: w: elements 2 come after 3");
  CHECK(error_with([](StoredTensor& w, Manifest&) { w.pieces[1].file = 2; }) ==
        "x: w: file 2 of 2");
  CHECK(error_with([](StoredTensor& w, Manifest&) { w.pieces[1].offset = 13; }) ==
        "x: w: lies beyond the end of b");
  CHECK(error_with([](StoredTensor&, Manifest& m) { m.files[0].blocks.push_back(1); }) ==
        "x: b: 2 checksums of 1 blocks");
  CHECK(test::contains(error_with([](StoredTensor&, Manifest& m) { m.files[0].name = "../b"; }),
                       "../b"));
}

TEST_CASE("manifest: a folder without one is incomplete") {
  const test::TempFolder folder;
  CHECK(test::contains(test::error_of([&] { read_manifest(folder.path()); }),
                       ": no checkpoint, or an incomplete one: no checkpoint.json"));
}

}  // namespace
}  // namespace fsdp::tools
