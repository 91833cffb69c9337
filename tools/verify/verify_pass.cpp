// Verifies one pass: logits, loss, gradients, an adapter merged, texts continued.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/ranges.h>

#include "tools/engine/batch.h"
#include "tools/engine/sharded_values.h"
#include "tools/generate/generation.h"
#include "tools/verify/described_session.h"

namespace fsdp::tools {
namespace {

// A gradient of zero is computed as so many last bits of the largest gradient.
constexpr double kRoundingsOfZero = 16;

double last_bit(DType dtype) {
  return accumulation_dtype(dtype) == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                                  : std::numeric_limits<float>::epsilon();
}

class PassVerification {
 public:
  explicit PassVerification(DescribedSession& run) : run_(run) {}

  Report verify() {
    const ExpectedResults& expected = run_.expected();
    ExpectedTraining pass;
    pass.run = expected.run;
    run_.start(pass, expected.dtype);
    check_pass(*expected.pass);
    if (expected.lora) check_merged(pass);
    if (expected.generation) check_generation(*expected.generation);
    return std::move(report_);
  }

 private:
  void check_pass(const ExpectedPass& pass);
  void check_logits(const ExpectedPass& pass, const std::string& title);
  void check_merged(const ExpectedTraining& pass);
  void check_gradients(const ExpectedPass& pass);
  void check_all_gradients(const ExpectedPass& pass);
  void check_gradient_norms(const ExpectedPass& pass);
  void check_generation(const ExpectedGeneration& generation);

  DescribedSession& run_;
  Report report_;
};

void PassVerification::check_pass(const ExpectedPass& pass) {
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
  run_.session().restart_step();
}

void PassVerification::check_logits(const ExpectedPass& pass, const std::string& title) {
  const Batch& batch = pass.batch;
  const int64_t V = run_.expected().config.vocabulary;
  std::vector<double> expected;
  agree(run_.world(), [&] {
    expected = pass.logits->read("logits", {batch.rows, batch.length, V});
  });
  const RowRange range = deal_rows(batch.rows, run_.world().rank(), run_.world().size());
  const std::vector<double> got = run_.session().logits(run_.my_part(batch));
  const int64_t begin = range.first * batch.length * V,
                end = begin + range.count * batch.length * V;
  // Relative to the largest of all rows: rows of other ranks differ by nothing here.
  Difference difference;
  for (int64_t i = 0; i < static_cast<int64_t>(expected.size()); ++i) {
    const double value = expected[static_cast<size_t>(i)];
    const bool computed_here = i >= begin && i < end;
    difference.add(computed_here ? got[static_cast<size_t>(i - begin)] : value, value);
  }
  report_.check(title, pass.logits_limit).add("", difference.relative());
}

// The adapter added to the base: its weights, and the same logits without it.
void PassVerification::check_merged(const ExpectedTraining& pass) {
  const ExpectedPass& expected = *run_.expected().pass;
  run_.start(pass, run_.expected().dtype, DescribedSession::Adapter::kMerged);
  check_logits(expected, "logits when merged");
  const std::vector<std::string> names = expected.merged->names();
  const auto is_known = [&](const Parameter& parameter) {
    return std::find(names.begin(), names.end(), run_.file_name(parameter)) != names.end();
  };
  Check& check = report_.check("merged weights", expected.merged_limit);
  const auto compare = [&](const Parameter& parameter, const Tensor& values) {
    const std::string name = run_.file_name(parameter);
    Difference difference;
    difference.add(values.to_doubles(), expected.merged->read(name, parameter.shape().extents()));
    check.add(name, difference.relative());
  };
  visit_parameters(run_.session().sharded(), compare, is_known);
  FSDP_CHECK(check.parts.size() == names.size(), "{}: expected weights of the model, got {}",
             expected.merged->path().string(), fmt::join(names, ", "));
}

void PassVerification::check_gradients(const ExpectedPass& pass) {
  Check& check = report_.check("gradients", pass.gradients_limit);
  const double largest = pass.gradients->largest();
  const double rounding = kRoundingsOfZero * largest * last_bit(run_.expected().dtype);
  visit_gradients(run_.session().sharded(), [&](const Parameter& parameter, const Tensor& values) {
    const std::string name = run_.file_name(parameter);
    Difference difference;
    difference.add(values.to_doubles(), pass.gradients->read(name, parameter.shape().extents()));
    check.add(name, difference.relative(largest, rounding));
  });
}

void PassVerification::check_all_gradients(const ExpectedPass& pass) {
  run_.check_tensors(*pass.all_gradients, !pass.events.left_out.empty());
  const std::vector<std::string> known = pass.all_gradients->names();
  double squares = 0, expected_squares = 0;
  visit_gradients(run_.session().sharded(), [&](const Parameter& parameter, const Tensor& values) {
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
      .add("", std::sqrt(squares / (expected_squares > 0 ? expected_squares : 1)));
}

// | ||a|| - ||b|| | <= ||a - b||: where only norms are known, they are held to the limit of the
// difference, relative to the norm of the whole gradient.
void PassVerification::check_gradient_norms(const ExpectedPass& pass) {
  double squares = 0;
  for (const auto& [name, norm] : pass.gradient_norms) squares += norm * norm;
  Check& check = report_.check("gradient norms", pass.gradients_limit);
  visit_gradients(run_.session().sharded(), [&](const Parameter& parameter, const Tensor& values) {
    const std::string name = run_.file_name(parameter);
    const auto expected = pass.gradient_norms.find(name);
    const bool absent = expected == pass.gradient_norms.end();
    FSDP_CHECK(!absent || !pass.events.left_out.empty(), "{}: step0_norms.per_parameter_l2: no {}",
               (run_.expected().folder / "reference.json").string(), name);
    double sum = 0;
    for (const double value : values.to_doubles()) sum += value * value;
    const double norm = std::sqrt(sum) / pass.gradient_divisor;
    check.add(name, std::abs(norm - (absent ? 0 : expected->second)) / std::sqrt(squares));
  });
}

void PassVerification::check_generation(const ExpectedGeneration& generation) {
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

Report verify_pass(DescribedSession& run) { return PassVerification(run).verify(); }

}  // namespace fsdp::tools
