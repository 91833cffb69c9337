// Flat layout: alignment, and that the shards' pieces cover every element of every parameter once.
#include "core/flat_layout.h"

#include <memory>

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp {
namespace {

using Parameters = std::vector<std::unique_ptr<Parameter>>;

Parameters make_parameters(const std::vector<Shape>& shapes) {
  Parameters parameters;
  for (size_t i = 0; i < shapes.size(); ++i) {
    parameters.push_back(std::make_unique<Parameter>(fmt::format("p{}", i), shapes[i],
                                                     Initializer{}, shapes[i].rank() >= 2));
  }
  return parameters;
}

std::vector<Parameter*> pointers(const Parameters& parameters) {
  std::vector<Parameter*> out;
  for (const auto& parameter : parameters) out.push_back(parameter.get());
  return out;
}

// From one parameter of one element to parameters much larger and much smaller than a shard.
const std::vector<std::vector<Shape>> kCases = {
    {Shape{1}},
    {Shape{64}},
    {Shape{65}},
    {Shape{3}, Shape{1}, Shape{2}},
    {Shape{24, 72}, Shape{72}, Shape{24}, Shape{24}},
    {Shape{97, 40}, Shape{1000}, Shape{1}, Shape{7, 13}, Shape{63}},
    {Shape{}, Shape{5, 0}, Shape{128}},  // a scalar and a parameter without elements
    {}};

void check_cover(const FlatLayout& layout) {
  std::vector<std::vector<int>> seen;
  for (const FlatParameter& p : layout.parameters()) {
    seen.emplace_back(static_cast<size_t>(p.numel), 0);
  }
  for (int shard = 0; shard < layout.shards(); ++shard) {
    int64_t end_before = 0;
    for (const ShardPiece& piece : layout.pieces(shard)) {
      const FlatParameter& p = layout.parameters()[static_cast<size_t>(piece.parameter)];
      CHECK(piece.count > 0);
      CHECK(piece.shard_begin >= end_before);  // in order, disjoint
      end_before = piece.shard_begin + piece.count;
      CHECK(end_before <= layout.shard_numel());
      CHECK(shard * layout.shard_numel() + piece.shard_begin == p.offset + piece.parameter_begin);
      std::vector<int>& counts = seen[static_cast<size_t>(piece.parameter)];
      for (int64_t i = 0; i < piece.count; ++i) {
        ++counts[static_cast<size_t>(piece.parameter_begin + i)];
      }
    }
  }
  for (const std::vector<int>& counts : seen) {
    CHECK(counts == std::vector<int>(counts.size(), 1));
  }
}

TEST_CASE("pieces cover every parameter exactly once, aligned, for any number of shards") {
  for (size_t i = 0; i < kCases.size(); ++i) {
    const Parameters parameters = make_parameters(kCases[i]);
    for (const int shards : {1, 2, 3, 4, 8}) {
      CAPTURE(i);
      CAPTURE(shards);
      const FlatLayout layout(pointers(parameters), shards);
      CHECK(layout.numel() == shards * layout.shard_numel());
      CHECK(layout.shard_numel() % kFlatAlignment == 0);
      int64_t total = 0, end = 0;
      for (const FlatParameter& p : layout.parameters()) {
        CHECK(p.offset % kFlatAlignment == 0);
        CHECK(p.offset >= end);
        end = p.offset + p.numel;
        total += p.numel;
      }
      CHECK(layout.parameter_numel() == total);
      CHECK(layout.numel() >= end);
      CHECK(layout.numel() < end + kFlatAlignment * (shards + 1));  // no more padding than needed
      check_cover(layout);
    }
  }
}

TEST_CASE("offsets do not depend on the number of shards") {
  const Parameters parameters = make_parameters(kCases[5]);
  const FlatLayout one(pointers(parameters), 1);
  for (const int shards : {2, 3, 8}) {
    const FlatLayout many(pointers(parameters), shards);
    for (size_t i = 0; i < parameters.size(); ++i) {
      CHECK(many.parameters()[i].offset == one.parameters()[i].offset);
      CHECK(many.parameters()[i].parameter == parameters[i].get());
    }
  }
}

TEST_CASE("a shard may be empty, and a parameter may lie in several shards") {
  const Parameters small = make_parameters({Shape{3}});
  const FlatLayout few(pointers(small), 8);
  CHECK(few.shard_numel() == 64);
  CHECK(few.pieces(0).size() == 1);
  for (int shard = 1; shard < 8; ++shard) {
    CHECK(few.pieces(shard).empty());
    CHECK(few.segments(shard).empty());
    CHECK(few.spans(shard).empty());
  }
  const Parameters large = make_parameters({Shape{1000}});
  const FlatLayout many(pointers(large), 3);
  CHECK(many.shard_numel() == 384);
  CHECK(many.pieces(2)[0].parameter_begin == 768);
  CHECK(many.pieces(2)[0].count == 232);
}

TEST_CASE("shards that are cut into parts") {
  const Parameters parameters = make_parameters({Shape{1000}, Shape{70}});
  for (const int shards : {1, 2, 3}) {
    for (const int parts : {1, 2, 3, 6}) {
      const FlatLayout layout(pointers(parameters), shards, kNormBlock, parts);
      CAPTURE(shards);
      CAPTURE(parts);
      CHECK(layout.shard_numel() % parts == 0);
      CHECK(layout.shard_numel() % kNormBlock == 0);
      const int64_t whole = FlatLayout(pointers(parameters), shards, kNormBlock).shard_numel();
      CHECK(layout.shard_numel() >= whole);
      if (parts == 2) CHECK(layout.shard_numel() == whole);  // as blocks can be halved
      check_cover(layout);
    }
  }
}

TEST_CASE("segments carry the decay flag of their parameter; spans leave gaps out") {
  const Parameters parameters = make_parameters({Shape{5, 5}, Shape{70}, Shape{2, 2}});
  const FlatLayout layout(pointers(parameters), 2);  // offsets 0, 64, 192; shards of 128
  const std::vector<ShardSegment> first = layout.segments(0), second = layout.segments(1);
  REQUIRE(first.size() == 2);
  CHECK(first[0].begin == 0);
  CHECK(first[0].end == 25);
  CHECK(first[0].decay);
  CHECK(first[0].parameter == 0);
  CHECK(first[1].begin == 64);
  CHECK(first[1].end == 128);
  CHECK_FALSE(first[1].decay);
  using Spans = std::vector<std::pair<int64_t, int64_t>>;
  CHECK(layout.spans(0) == Spans{{0, 25}, {64, 128}});
  CHECK(layout.spans(1) == Spans{{0, 6}, {64, 68}});
  REQUIRE(second.size() == 2);
  CHECK(second[0].first == 64);  // of the parameter's 70 elements
  CHECK(second[1].parameter == 2);
  CHECK(second[1].first == 0);
}

// Layers of weight, bias, weight, bias, weight, bias, as q, k and v are registered; a norm's
// weight.
Parameters three_layers(int64_t channels, std::vector<int64_t> rows) {
  Parameters out =
      make_parameters({Shape{rows[0], channels}, Shape{rows[0]}, Shape{rows[1], channels},
                       Shape{rows[1]}, Shape{rows[2], channels}, Shape{rows[2]}, Shape{channels}});
  for (size_t i = 2; i < 6; ++i) out[i]->set_predecessor(out[i - 2].get());
  return out;
}

TEST_CASE("a parameter lies behind its predecessor, without a gap, whatever the alignment") {
  const Parameters parameters = three_layers(64, {128, 64, 64});
  for (const int64_t alignment : {kFlatAlignment, int64_t{kNormBlock}}) {
    CAPTURE(alignment);
    const FlatLayout layout(pointers(parameters), 2, alignment);
    const std::vector<FlatParameter>& all = layout.parameters();
    const std::vector<size_t> order = {0, 2, 4, 1, 3, 5, 6};
    for (size_t i = 0; i < order.size(); ++i) CHECK(all[i].parameter == parameters[order[i]].get());
    CHECK(all[1].offset == 8192);
    CHECK(all[2].offset == 12288);
    CHECK(all[3].offset == 16384);
    CHECK(all[4].offset == 16384 + 128);
    CHECK(all[5].offset == 16384 + 192);
    CHECK(all[6].offset == 16384 + (alignment == kFlatAlignment ? 256 : 1024));
    check_cover(layout);
  }
}

TEST_CASE("a predecessor that does not fill whole lines is not joined; nor is one elsewhere") {
  const Parameters odd = three_layers(5, {3, 2, 2});
  const FlatLayout layout(pointers(odd), 1);
  CHECK(layout.parameters()[1].parameter == odd[2].get());
  CHECK(layout.parameters()[1].offset == 64);
  CHECK(layout.spans(0).size() == 7);
  const Parameters even = three_layers(64, {1, 1, 1});
  std::vector<Parameter*> without_first = pointers(even);
  without_first.erase(without_first.begin());
  const FlatLayout rest(without_first, 1);
  CHECK(rest.parameters()[0].parameter == even[1].get());
  CHECK(rest.parameters()[3].parameter == even[2].get());
  CHECK(rest.parameters()[4].parameter == even[4].get());
}

TEST_CASE("norm blocks of joined parameters are cut as of one, for any number of shards") {
  const Parameters parameters = three_layers(64, {17, 9, 9});  // 1088, 576, 576: no whole blocks
  const FlatLayout one(pointers(parameters), 1, kNormBlock);
  CHECK(one.spans(0)[0] == std::pair<int64_t, int64_t>{0, 2240});
  CHECK(one.blocks() == 3 + 1 + 1 + 1 + 1);  // the biases are no multiples of 64: a block each
  for (const int shards : {1, 2, 3, 4}) {
    CAPTURE(shards);
    const FlatLayout layout(pointers(parameters), shards, kNormBlock);
    CHECK(layout.blocks() == one.blocks());
    std::vector<int64_t> seen, numel;
    for (int shard = 0; shard < shards; ++shard) {
      const auto spans = layout.spans(shard);
      const auto first = layout.first_blocks(shard);
      REQUIRE(first.size() == spans.size());
      for (size_t i = 0; i < spans.size(); ++i) {
        CHECK(spans[i].first % kNormBlock == 0);
        for (int64_t at = spans[i].first; at < spans[i].second; at += kNormBlock) {
          seen.push_back(first[i] + (at - spans[i].first) / kNormBlock);
          numel.push_back(std::min<int64_t>(kNormBlock, spans[i].second - at));
        }
      }
    }
    CHECK(seen == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6});
    CHECK(numel == std::vector<int64_t>{1024, 1024, 192, 17, 9, 9, 64});
  }
}

TEST_CASE("no shards are refused") {
  CHECK(test::error_of([] { FlatLayout({}, 1, 64, 0); }) ==
        "[flat_layout] parts of a shard: expected at least 1, got 0");
  CHECK(test::error_of([] { FlatLayout({}, 0); }) ==
        "[flat_layout] shards: expected at least 1, got 0");
}

}  // namespace
}  // namespace fsdp
