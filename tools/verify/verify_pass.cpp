// Verifies one pass: logits, loss, gradients, an adapter merged, texts continued.
#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

#include "tools/data/row_range.h"
#include "tools/generate/generation.h"
#include "tools/verify/reference_session.h"

namespace fsdp::tools {
namespace {

class PassVerification {
 public:
  explicit PassVerification(ReferenceSession& run) : run_(run) {}

  Report verify() {
    const Reference& reference = run_.reference();
    ReferenceTrajectory pass;
    pass.run = reference.run;
    run_.start(pass, reference.dtype);
    check_pass(*reference.pass);
    if (reference.lora) check_merged(pass);
    if (reference.generation) check_generation(*reference.generation);
    return std::move(report_);
  }

 private:
  void check_pass(const ReferencePass& pass);
  void check_logits(const ReferencePass& pass, const std::string& title);
  void check_merged(const ReferenceTrajectory& pass);
  void check_gradients(const ReferencePass& pass);
  void check_all_gradients(const ReferencePass& pass);
  void check_gradient_norms(const ReferencePass& pass);
  void check_generation(const ReferenceGeneration& generation);

  ReferenceSession& run_;
  Report report_;
};

void PassVerification::check_pass(const ReferencePass& pass) {
  const Batch mine = run_.begin_step(pass.batch, pass.events);
  if (pass.logits) check_logits(pass, "logits");
  if (pass.gradients) run_.check_tensors(*pass.gradients);
  const StepValues values = run_.session().forward_backward(mine, 0, false).read();
  const bool absolute = pass.loss_limit_is_absolute;
  report_.check("loss", pass.loss_limit)
      .add(absolute ? "absolute" : "relative",
           absolute ? std::abs(values.loss - pass.loss) : relative_error(values.loss, pass.loss));
  if (pass.gradients) check_gradients(pass);
  if (pass.all_gradients) check_all_gradients(pass);
  if (!pass.gradient_norms.empty()) check_gradient_norms(pass);
  run_.session().end_step();
}

void PassVerification::check_logits(const ReferencePass& pass, const std::string& title) {
  const GlobalBatch& batch = pass.batch;
  const int64_t V = run_.reference().config.vocabulary;
  std::vector<double> expected;
  agree(run_.world(), [&] {
    expected = pass.logits->read("logits", {batch.rows, batch.length, V});
  });
  const data::RowRange range =
      data::deal_rows(batch.rows, run_.world().rank(), run_.world().size());
  const std::vector<double> got = run_.session().logits(run_.my_part(batch));
  const int64_t begin = range.first * batch.length * V,
                end = begin + range.count * batch.length * V;
  // Relative to the largest of all rows: those of other ranks differ by nothing here.
  Difference difference;
  for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
    const double reference = expected[static_cast<size_t>(i)];
    const bool computed_here = i >= begin && i < end;
    difference.add(computed_here ? got[static_cast<size_t>(i - begin)] : reference, reference);
  }
  report_.check(title, pass.logits_limit).add("", difference.relative());
}

// The adapter added to the base: its weights, and the same logits without it.
void PassVerification::check_merged(const ReferenceTrajectory& pass) {
  const ReferencePass& reference = *run_.reference().pass;
  run_.start(pass, run_.reference().dtype, ReferenceSession::Adapter::kMerged);
  check_logits(reference, "logits when merged");
  const std::vector<std::string> names = reference.merged->names();
  const auto is_known = [&](const Parameter& parameter) {
    return std::find(names.begin(), names.end(), run_.file_name(parameter)) != names.end();
  };
  Check& check = report_.check("merged weights", reference.merged_limit);
  const auto compare = [&](const Parameter& parameter, const Tensor& values) {
    const std::string name = run_.file_name(parameter);
    Difference difference;
    difference.add(values.to_doubles(), reference.merged->read(name, parameter.shape().extents()));
    check.add(name, difference.relative());
  };
  run_.session().sharded().visit_parameters(compare, is_known);
  FSDP_CHECK(check.parts.size() == names.size(), "{}: expected weights of the model, got {}",
             reference.merged->path().string(), fmt::join(names, ", "));
}

void PassVerification::check_gradients(const ReferencePass& pass) {
  Check& check = report_.check("gradients", pass.gradients_limit);
  run_.session().sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::string name = run_.file_name(parameter);
    Difference difference;
    difference.add(values.to_doubles(), pass.gradients->read(name, parameter.shape().extents()));
    check.add(name, difference.relative());
  });
}

void PassVerification::check_all_gradients(const ReferencePass& pass) {
  run_.check_tensors(*pass.all_gradients, !pass.events.left_out.empty());
  const std::vector<std::string> known = pass.all_gradients->names();
  double squares = 0, expected_squares = 0;
  run_.session().sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::vector<double> got = values.to_doubles();
    const std::string name = run_.file_name(parameter);
    std::vector<double> expected(got.size());  // an absent gradient: nothing
    if (std::find(known.begin(), known.end(), name) != known.end())
      expected = pass.all_gradients->read(name, parameter.shape().extents());
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = got[i] / pass.gradient_divisor - expected[i];
      squares += difference * difference;
      expected_squares += expected[i] * expected[i];
    }
  });
  report_.check("all gradients", pass.all_gradients_limit)
      .add("", std::sqrt(squares / expected_squares));
}

// | ||a|| - ||b|| | <= ||a - b||: where only norms are known, they are held to the limit of the
// difference, relative to the norm of the whole gradient.
void PassVerification::check_gradient_norms(const ReferencePass& pass) {
  double squares = 0;
  for (const auto& [name, norm] : pass.gradient_norms) squares += norm * norm;
  Check& check = report_.check("gradient norms", pass.gradients_limit);
  run_.session().sharded().visit_gradients([&](const Parameter& parameter, const Tensor& values) {
    const std::string name = run_.file_name(parameter);
    const auto expected = pass.gradient_norms.find(name);
    const bool absent = expected == pass.gradient_norms.end();
    FSDP_CHECK(!absent || !pass.events.left_out.empty(), "{}: step0_norms.per_parameter_l2: no {}",
               (run_.reference().folder / "reference.json").string(), name);
    double sum = 0;
    for (const double value : values.to_doubles()) sum += value * value;
    const double norm = std::sqrt(sum) / pass.gradient_divisor;
    check.add(name, std::abs(norm - (absent ? 0 : expected->second)) / std::sqrt(squares));
  });
}

void PassVerification::check_generation(const ReferenceGeneration& generation) {
  for (const bool cache : {true, false}) {
    const GenerationOptions options = {
        .tokens = static_cast<int64_t>(generation.batched.front().size()), .cache = cache};
    const auto compare = [&](const std::string& how, const Generated& got, size_t prompt,
                             const std::vector<int32_t>& expected) {
      int64_t others = 0;
      for (size_t i = 0; i < expected.size(); ++i) others += got.ids[i] != expected[i];
      report_
          .check(fmt::format("generation {}, {} cache", how, cache ? "with" : "without"),
                 generation.limit)
          .add(fmt::format("prompt {}", prompt + 1), static_cast<double>(others));
    };
    const std::vector<Generated> batched =
        generate_tokens(run_.session(), options, generation.prompts);
    for (size_t i = 0; i < batched.size(); ++i) {
      compare("batched", batched[i], i, generation.batched[i]);
    }
    for (size_t i = 0; i < batched.size(); ++i) {
      const auto alone = generate_tokens(run_.session(), options, {generation.prompts[i]});
      compare("alone", alone.front(), i, generation.alone[i]);
    }
  }
}

}  // namespace

Report verify_pass(ReferenceSession& run) { return PassVerification(run).verify(); }

}  // namespace fsdp::tools
