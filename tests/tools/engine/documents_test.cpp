// Documents that share a row, sharded: a step of packed rows has the loss and the norm of gradients
// of rows of their own, on one or two ranks, in micro-steps, with recompute and its inputs on the
// host, with passes in a fixed order. The model alone: tests/models/documents_test.cpp.
#include "tests/support/documents.h"

#include <cmath>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/places.h"
#include "tools/engine/session.h"

namespace fsdp {
namespace {

struct Arrangement {
  int ranks = 1;
  int micro_steps = 1;
  RecomputeMode recompute = RecomputeMode::kNone;
  bool fixed_order = false;
};

StepValues step_values(const models::ModelConfig& model, const LabelledRows& rows,
                       const Arrangement& how) {
  StepValues out;
  comm::run_local_ranks(how.ranks, [&](comm::Communicator& world) {
    SessionOptions options = {.model = model, .max_length = rows.length};
    options.fsdp.param_dtype = options.fsdp.reduce_dtype = DType::kF64;
    options.fsdp.micro_steps = how.micro_steps;
    options.fsdp.fixed_order = how.fixed_order;
    options.recompute = how.recompute;
    Places places = test::on_cpu();
    places.host = [](Backend&) { return std::make_unique<cpu::CpuBackend>(); };
    Session session(world, std::move(places), options);
    session.initialise(models::from_scratch(3));
    const Batch all = make_batch(rows, models::input_rules(model), 0);
    Batch batch = rows_of(all, deal_rows(all.rows, world.rank(), world.size()));
    batch.global_label_tokens = count_targets(all);
    if (how.fixed_order) {
      batch.rows_per_pass = 1;
      batch.passes = all.rows;
    }
    const StepValues values = session.train_step(batch, 0, 0).read();
    if (world.rank() == 0) out = values;
  });
  return out;
}

TEST_CASE("a step of documents that share rows equals a step of rows of their own") {
  for (const models::ModelConfig& model : test::document_models()) {
    CAPTURE(model.family);
    CAPTURE(model.window);
    const LabelledRows packed = test::packed_rows(model.vocabulary);
    LabelledRows alone = {.length = test::kDocumentLength};
    for (const test::Document& document : test::kDocuments) {
      if (document.padding) continue;
      const LabelledRows row = test::row_of(packed, document, alone.length);
      alone.tokens.insert(alone.tokens.end(), row.tokens.begin(), row.tokens.end());
      alone.labels.insert(alone.labels.end(), row.labels.begin(), row.labels.end());
    }
    const StepValues expected = step_values(model, alone, {});
    CHECK(expected.grad_norm > 0.01);
    for (const Arrangement& how :
         {Arrangement{}, Arrangement{.micro_steps = 2}, Arrangement{.ranks = 2},
          Arrangement{.ranks = 2, .recompute = RecomputeMode::kOffload},
          Arrangement{.micro_steps = 2, .recompute = RecomputeMode::kFull},
          Arrangement{.ranks = 2, .fixed_order = true}}) {
      const StepValues got = step_values(model, packed, how);
      CHECK(std::abs(got.loss / expected.loss - 1) < 1e-9);
      CHECK(std::abs(got.grad_norm / expected.grad_norm - 1) < 1e-9);
    }
  }
}

}  // namespace
}  // namespace fsdp
