// A run that goes on from a checkpoint: the same bits on the same ranks with everything that a run
// can have, the same state on any other number of ranks, and never a state that is not the stored
// one.
// Requirements: S2.11.
#include "tools/checkpoint/read_checkpoint.h"

#include <array>
#include <cmath>
#include <random>

#include <doctest/doctest.h>

#include "optim/optimizer_kind.h"
#include "tests/support/checkpoint_run.h"

namespace fsdp::tools {
namespace {

using comm::Strategy;

constexpr int64_t kCut = 3, kSteps = 6;

struct Variant {
  std::string name;
  int ranks;
  PlacedOptions options;
};

Variant variant(const std::string& name, int ranks,
                const std::function<void(PlacedOptions&)>& change) {
  Variant v{name, ranks, test::checkpoint_options()};
  change(v.options);
  return v;
}

void dtype(PlacedOptions& o, DType compute) {
  o.fsdp.param_dtype = compute;
  o.fsdp.reduce_dtype = accumulation_dtype(compute);
}

void dropout(PlacedOptions& o) {
  o.model.embedding_dropout = o.model.attention_dropout = o.model.residual_dropout = 0.2;
}

void narrow(PlacedOptions& o) {
  dtype(o, DType::kBF16);
  o.fsdp.master_dtype = DType::kBF16;
  o.optimizer.state_dtype = DType::kBF16;
  o.optimizer.rounds_masters_by_chance = true;
  o.optimizer.rounding_seed = 7;
}

std::vector<Variant> narrow_variants() {
  return {variant("masters and moments in bf16", 2, narrow),
          variant("masters in f16", 2,
                  [](PlacedOptions& o) {
                    dtype(o, DType::kF16);
                    o.loss_scale = {.initial = 1024, .rule = {.growth = 2, .interval = 2}};
                    o.fsdp.master_dtype = DType::kF16;
                  }),
          variant("LoRA, masters and moments in bf16", 2, [](PlacedOptions& o) {
            narrow(o);
            o.model = test::tiny_llama();
            o.lora = models::LoraConfig{.r = 3, .alpha = 5, .targets = {"all-linear"}};
          })};
}

std::vector<Variant> variants() {
  std::vector<Variant> all = {
      variant("f32", 2, [](PlacedOptions&) {}),
      variant("f64", 3, [&](PlacedOptions& o) { dtype(o, DType::kF64); }),
      variant("bf16", 2, [&](PlacedOptions& o) { dtype(o, DType::kBF16); }),
      variant("f16 with scaler", 2,
              [&](PlacedOptions& o) {
                dtype(o, DType::kF16);
                o.loss_scale = {.initial = 1024, .rule = {.growth = 2, .interval = 2}};
              }),
      variant("rounded by chance", 2,
              [&](PlacedOptions& o) {
                dtype(o, DType::kBF16);
                o.fsdp.rounding_seed = 7;
              }),
      variant("rounded by chance, resident", 1,
              [&](PlacedOptions& o) {
                dtype(o, DType::kBF16);
                o.fsdp.strategy = Strategy::kNoShard;
                o.fsdp.rounding_seed = 7;
              }),
      variant("dropout", 2, dropout),
      variant("LoRA", 2,
              [&](PlacedOptions& o) {
                o.model = test::tiny_llama();
                o.lora = models::LoraConfig{
                    .r = 3, .alpha = 5, .dropout = 0.1, .targets = {"all-linear"}};
              }),
      variant("frozen", 3, [](PlacedOptions& o) { o.frozen = {"transformer.h.0.*"}; }),
      variant("accumulation", 2,
              [&](PlacedOptions& o) {
                dropout(o);
                o.fsdp.micro_steps = 3;
              }),
      variant("sgd", 2,
              [](PlacedOptions& o) {
                o.optimizer = {.kind = optim::OptimizerKind::kSgd, .momentum = 0.9};
              }),
      variant("adam", 2,
              [](PlacedOptions& o) { o.optimizer = {.kind = optim::OptimizerKind::kAdam}; }),
      variant("adamax", 2,
              [](PlacedOptions& o) { o.optimizer = {.kind = optim::OptimizerKind::kAdamax}; }),
      variant("adadelta", 2,
              [](PlacedOptions& o) {
                o.optimizer = {.kind = optim::OptimizerKind::kAdadelta, .epsilon = 1e-6};
              }),
      variant("plain sgd", 2,
              [](PlacedOptions& o) { o.optimizer = {.kind = optim::OptimizerKind::kSgd}; })};
  for (const Variant& v : narrow_variants()) all.push_back(v);
  return all;
}

// Everything that moves random numbers and sums about, under each of them.
std::vector<Variant> strategies() {
  std::vector<Variant> all;
  for (const Strategy strategy :
       {Strategy::kFullShard, Strategy::kShardGradOp, Strategy::kShardOptimizer, Strategy::kNoShard,
        Strategy::kHybridShard, Strategy::kHybridShardZero2}) {
    all.push_back(variant(std::string(choice_name(strategy)), 4, [&](PlacedOptions& o) {
      dropout(o);
      dtype(o, DType::kBF16);
      o.fsdp.strategy = strategy;
      o.fsdp.shard_size = comm::is_hybrid(strategy) ? 2 : 0;
      o.fsdp.micro_steps = 2;
    }));
  }
  return all;
}

TEST_CASE("checkpoint: a run that goes on has the bits of one that never stopped") {
  std::vector<Variant> all = variants();
  for (const Variant& v : strategies()) all.push_back(v);
  for (const Variant& v : all) {
    CAPTURE(v.name);
    const test::TempFolder folder;
    const test::RunState expected = test::undisturbed(v.ranks, v.options, kSteps);
    test::write_after(v.ranks, v.options, kCut, folder / "step-3");
    const test::RunState got = test::go_on(v.ranks, v.options, folder / "step-3", kSteps);
    CHECK(got.hash == expected.hash);
    CHECK(got.losses == std::vector<double>(expected.losses.begin() + kCut, expected.losses.end()));
    CHECK(std::isfinite(got.losses.back()));
  }
}

// LoRA, frozen and tied parameters, every dtype and optimizer among them.
TEST_CASE("checkpoint: a run goes on under another offload, with the bits of one without any") {
  using enum comm::Offload;
  constexpr std::array kModes = {kNone, kOptimizer, kAll, kNvme};
  std::vector<Variant> all = variants();
  for (const Variant& v : strategies()) all.push_back(v);
  for (size_t i = 0; i < all.size(); ++i) {
    CAPTURE(all[i].name);
    const test::TempFolder folder;
    const auto with = [&](comm::Offload offload) {
      PlacedOptions options = all[i].options;
      options.fsdp.offload = offload;
      options.backend.offload_folder = folder.path().string();
      return options;
    };
    const test::RunState expected = test::undisturbed(all[i].ranks, all[i].options, kSteps);
    const comm::Offload before = kModes[i % 4], after = kModes[(i + 1) % 4];
    test::write_after(all[i].ranks, with(before), kCut, folder / "step-3");
    CHECK(test::go_on(all[i].ranks, with(after), folder / "step-3", kSteps).hash == expected.hash);
    const comm::Offload third = kModes[(i + 2) % 4];
    CHECK(test::undisturbed(all[i].ranks, with(third), kSteps) == expected);
    if (i % 4 == 0) CHECK(test::undisturbed(all[i].ranks, with(kNvme), kSteps) == expected);
  }
}

TEST_CASE("checkpoint: any number of ranks and strategy reads what any other wrote") {
  const std::vector<test::CheckpointLayout> writers = {
      {1, test::with_strategy(Strategy::kNoShard)},
      {2, test::with_strategy(Strategy::kFullShard)},
      {3, test::with_strategy(Strategy::kNoShard)},
      {4, test::with_strategy(Strategy::kHybridShard, 2)},
      {6, test::with_strategy(Strategy::kShardOptimizer)},
      {8, test::with_strategy(Strategy::kFullShard)}};
  for (const test::CheckpointLayout& writer : writers) {
    CAPTURE(writer.ranks);
    const test::TempFolder folder;
    const Manifest written = test::write_after(writer.ranks, writer.options, 2, folder / "step-2");
    CHECK(written.hash.weights != 0);
    CHECK(written.files.size() == static_cast<size_t>(writer.ranks));
    for (const test::CheckpointLayout& reader : test::layouts()) {
      CAPTURE(reader.ranks);
      CAPTURE(choice_name(reader.options.fsdp.strategy));
      const test::RunState read = test::go_on(reader.ranks, reader.options, folder / "step-2", 2);
      CHECK(read.hash == written.hash);
    }
  }
}

TEST_CASE("checkpoint: other units and another dtype read the same state") {
  const test::TempFolder folder;
  const PlacedOptions options = test::checkpoint_options();
  const Manifest written = test::write_after(3, options, 2, folder / "step-2");
  PlacedOptions whole = options;
  whole.wrap = comm::wrap_nothing();
  CHECK(test::go_on(2, whole, folder / "step-2", 2).hash == written.hash);
  PlacedOptions bf16 = options;
  bf16.fsdp.param_dtype = DType::kBF16;
  CHECK(test::go_on(2, bf16, folder / "step-2", 2).hash == written.hash);
  PlacedOptions f64 = options;  // whose masters are f64: other bits, the same values
  f64.fsdp.param_dtype = f64.fsdp.reduce_dtype = DType::kF64;
  const test::RunState wide = test::go_on(2, f64, folder / "step-2", 4);
  const test::RunState same = test::go_on(3, options, folder / "step-2", 4);
  CHECK(wide.losses[0] == doctest::Approx(same.losses[0]).epsilon(1e-5));
}

// Without clipping: the norm is added unit by unit.
TEST_CASE("checkpoint: a run goes on with the root in two, or in one, with the bits of one") {
  for (const bool split : {false, true}) {
    CAPTURE(split);
    const test::TempFolder folder;
    PlacedOptions options = test::checkpoint_options();
    options.model.tied_head = false;
    options.clip_norm = 0;
    const test::RunState expected = test::undisturbed(3, options, kSteps);
    options.split_root = split;
    test::write_after(3, options, kCut, folder / "step-3");
    options.split_root = !split;
    const test::RunState got = test::go_on(3, options, folder / "step-3", kSteps);
    CHECK(got.hash == expected.hash);
    CHECK(got.losses.back() == expected.losses.back());
  }
}

TEST_CASE("checkpoint: on other ranks a run goes on up to rounding") {
  for (const auto& [from, to] : {std::pair{4, 2}, {2, 3}, {1, 4}, {3, 1}}) {
    const test::TempFolder folder;
    const PlacedOptions options = test::checkpoint_options();
    const test::RunState expected = test::undisturbed(from, options, kSteps);
    test::write_after(from, options, kCut, folder / "step-3");
    const test::RunState got = test::go_on(to, options, folder / "step-3", kSteps);
    for (int64_t i = kCut; i < kSteps; ++i) {
      const double loss = expected.losses[static_cast<size_t>(i)];
      CHECK(std::abs(got.losses[static_cast<size_t>(i - kCut)] - loss) <= 1e-6 * loss);
    }
  }
}

// Blocks are much smaller than a rank's part here.
TEST_CASE("checkpoint: a rank reads what it needs and no block twice") {
  PlacedOptions options = test::checkpoint_options();
  options.model.vocabulary = 8000;
  options.model.hidden = 255;
  options.model.head_dim = 51;
  options.model.ffn = 700;
  const test::TempFolder folder;
  const Manifest written = test::write_after(3, options, 1, folder / "step-1");
  REQUIRE(written.state_bytes() > 500 * kBlockBytes);
  std::vector<uint64_t> read(4), held(4);
  comm::run_local_ranks(4, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    Checkpoint checkpoint(folder / "step-1");
    restore(session, checkpoint);
    const auto rank = static_cast<size_t>(world.rank());
    read[rank] = checkpoint.bytes_read();
    for (const StatePartOwned& part : held_state(session, true)) held[rank] += part.values.bytes();
  });
  for (size_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    CHECK(read[rank] >= held[rank]);
    // Blocks are cut where a range begins or ends.
    CHECK(read[rank] <= held[rank] + held[rank] / 5);
  }
}

TEST_CASE("checkpoint: a model with other tensors is refused with their names") {
  const test::TempFolder folder;
  PlacedOptions options = test::checkpoint_options();
  test::write_after(2, options, 1, folder / "step-1");
  options.model.ffn = 30;
  options.frozen = {"transformer.wpe.weight"};
  const std::string error = test::error_of([&] { test::go_on(2, options, folder / "step-1", 1); });
  CHECK(test::contains(error, "transformer.h.0.mlp.c_fc.weight: expected (15, 30), got (15, 31)"));
  CHECK(test::contains(error, "transformer.wpe.weight is not trained here"));
  PlacedOptions sgd = test::checkpoint_options();
  sgd.optimizer = {.kind = optim::OptimizerKind::kSgd, .momentum = 0.9};
  CHECK(test::contains(test::error_of([&] { test::go_on(1, sgd, folder / "step-1", 1); }),
                       "/momentum_buffer"));
}

// Flips a bit of one byte of a file.
void flip(const std::filesystem::path& file, uint64_t byte, int bit) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(byte));
  const int old = stream.get();
  stream.seekp(static_cast<std::streamoff>(byte));
  stream.put(static_cast<char>(old ^ (1 << bit)));
}

// The files that opening and verifying complains about; "" without any.
std::string damage_in(const std::filesystem::path& folder) {
  try {
    Checkpoint checkpoint(folder);
    std::string all;
    for (const std::string& problem : checkpoint.verify_all()) all += problem;
    return all;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST_CASE("checkpoint: every flipped byte and every cut is found, with the file's name") {
  const test::TempFolder folder;
  const std::filesystem::path step = folder / "step-1";
  test::write_after(2, test::checkpoint_options(), 1, step);
  REQUIRE(damage_in(step) == "");
  std::vector<std::filesystem::path> files;
  for (const auto& item : std::filesystem::directory_iterator(step)) files.push_back(item.path());
  std::sort(files.begin(), files.end());
  CHECK(files.size() == 3);
  std::mt19937_64 random(1);
  int found = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::filesystem::path& file = files[random() % files.size()];
    const uint64_t byte = random() % std::filesystem::file_size(file);
    const int bit = static_cast<int>(random() % 8);
    flip(file, byte, bit);
    const std::string damage = damage_in(step);
    found += test::contains(damage, file.string() + ": ");
    flip(file, byte, bit);
  }
  CHECK(found == 1000);
  for (const std::filesystem::path& file : files) {
    const std::string whole = read_file(file);
    for (int i = 0; i < 70; ++i) {
      const size_t size = i == 0 ? 0 : random() % whole.size();
      std::filesystem::resize_file(file, size);
      CHECK(test::contains(damage_in(step), file.string()));
      write_file_atomically(file, whole);
    }
    std::filesystem::remove(file);
    CHECK(test::contains(damage_in(step),
                         file.filename() == kManifestName ? step.string() : file.string()));
    write_file_atomically(file, whole);
  }
  CHECK(damage_in(step) == "");
}

TEST_CASE("checkpoint: a damaged block is an error of the load, unless it is not asked for") {
  const test::TempFolder folder;
  const std::filesystem::path step = folder / "step-1";
  const PlacedOptions options = test::checkpoint_options();
  const Manifest written = test::write_after(2, options, 1, step);
  const std::string file = written.files[1].name;
  flip(step / file, written.files[1].bytes - 1, 3);
  CHECK(test::contains(test::error_of([&] { test::go_on(3, options, step, 1); }),
                       file + ": damaged: bytes 0 to "));
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    Checkpoint unverified(step, false);
    restore(session, unverified);
    CHECK(hash_state(session) != written.hash);
  });
}

}  // namespace
}  // namespace fsdp::tools
