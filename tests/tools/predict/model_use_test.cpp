// What a rank needs to use a model, beside what it has held when it did; and that too much is said
// before a session is there.
#include "tools/predict/model_use.h"

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/text/byte_size.h"
#include "models/weights.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_models.h"

namespace fsdp::tools {
namespace {

using Texts = std::vector<std::vector<int32_t>>;

models::ModelConfig model() {
  models::ModelConfig out = test::tiny_llama();
  out.max_positions = 48;
  return out;
}

PlacedOptions options_of(int64_t max_length, int ranks, DType dtype) {
  PlacedOptions out = {{.model = model(), .max_length = max_length}};
  out.fsdp.param_dtype = dtype;
  out.fsdp.reduce_dtype = accumulation_dtype(dtype);
  out.fsdp.strategy = ranks == 1 ? comm::Strategy::kNoShard : comm::Strategy::kFullShard;
  out.training = false;
  return out;
}

// Most that rank 0 held at once.
size_t held(const PlacedOptions& options, int ranks, const std::function<void(Session&)>& work) {
  size_t out = 0;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, options);
    session.initialise(models::from_scratch(5));
    work(session);
    if (world.rank() == 0) out = session.backend().ledger().usage().held_peak;
  });
  return out;
}

void check_alike(size_t predicted, size_t measured) {
  CAPTURE(predicted);
  CAPTURE(measured);
  // Prompts of other lengths than the longest find other gaps between the CPU's blocks.
  constexpr size_t kGaps = 4096;
  CHECK(measured <= predicted + kGaps);
  CHECK(static_cast<double>(predicted) <= 1.06 * static_cast<double>(measured));
}

TEST_CASE("model use: an evaluation holds what was predicted, on one rank and on several") {
  for (const int ranks : {1, 3}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const PlacedOptions options = options_of(40, ranks, dtype);
      const ModelUse use = use_of_batches({{.rows = 6, .length = 40}, {.rows = 6, .length = 16}});
      const size_t measured = held(options, ranks, [&](Session& session) {
        for (const int64_t length : {40, 16, 40, 40}) {
          session.evaluate(synthetic_batch(model(), 6, length, session.world().rank(), ranks));
        }
      });
      check_alike(bytes_of_use(options, ranks, use), measured);
    }
  }
}

TEST_CASE("model use: a generation, with the cache and without, and beyond the model's positions") {
  const Texts prompts = {{3, 1, 4}, {15}, {9, 2, 6, 5, 3, 5, 8, 9}, {5, 8}, {2, 7}};
  for (const int ranks : {1, 2}) {
    for (const bool cache : {true, false}) {
      for (const int64_t tokens : {int64_t{6}, int64_t{60}}) {
        const GenerationOptions how = {.tokens = tokens, .cache = cache};
        const PlacedOptions options =
            options_of(std::min<int64_t>(8 + tokens, 48), ranks, DType::kF32);
        ModelUse use = use_of_generation(how, prompts, 4, model().vocabulary);
        CHECK(use.rows == 4);
        CHECK(use.row_bytes == static_cast<size_t>(model().vocabulary) * 8);
        use.row_bytes = 0;  // not the device's
        const size_t measured = held(options, ranks, [&](Session& session) {
          generate_in_batches(session, how, prompts, 4);
        });
        check_alike(bytes_of_use(options, ranks, use), measured);
      }
    }
  }
}

TEST_CASE("model use: what does not fit is refused with what is needed, the limit and a way out") {
  PlacedOptions large = options_of(1024, 2, DType::kF32);
  large.model.hidden = 65536;
  large.model.ffn = 262144;
  large.model.heads = large.model.kv_heads = 512;
  large.model.head_dim = 128;
  large.model.layers = 60;
  large.model.max_positions = 1024;
  const ModelUse use = use_of_batches({{.rows = 64, .length = 1024}});
  std::string refused;
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    RankContext rank = {.world = world, .backend = {}, .backend_note = "", .local_ranks = 2};
    check_fits(rank, options_of(40, 2, DType::kF32), use_of_batches({{.rows = 2, .length = 40}}));
    try {
      check_fits(rank, large, use);
    } catch (const AgreedError& error) {
      CHECK(error.status() == status::kDoesNotFit);
      if (world.rank() == 0) refused = error.what();
    }
  });
  CHECK(refused.starts_with("this command needs "));
  CHECK(test::contains(refused, " per rank, the limit is "));
  CHECK(test::contains(refused, "\n  the peak is in "));
  CHECK(test::contains(refused, "\n  on more hosts or GPUs a rank takes less"));
}

}  // namespace
}  // namespace fsdp::tools
