// The training loop on a model so small that steps take microseconds.
// Requirements: S1.5, S4.5.
#include "tools/train/trainer.h"

#include <chrono>
#include <cmath>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "core/io/file.h"
#include "core/io/json.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_training.h"
#include "tools/guides/log_lines.h"
#include "tools/launch/launch.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {
namespace {

using test::kLength;
using test::lines_of;
using test::rows_of;
using test::tiny_options;
using test::training;

// Its second batch has one row only.
BatchSource validation(const comm::Communicator& world) {
  return {.batches = 2, .get = [&world](int64_t i) {
            if (i == 1)
              return rows_of(world.rank() == 0 ? std::vector<int64_t>{7} : std::vector<int64_t>{},
                             1);
            return training(world).get(40);
          }};
}

struct Run {
  TrainTotals outcome;
  std::string error;
  std::string metrics;
  std::string printed;  // notes
};

struct Setup {
  PlacedOptions session = tiny_options();
  std::function<bool(int rank, int64_t step)> overflows = nullptr;  // gradients are then infinite
  bool validates = true;
  std::function<void(Session& session)> after = nullptr;
  std::filesystem::path* log_file = nullptr;  // gets the place of metrics.jsonl before a step
};

Run run(int ranks, const TrainerOptions& options, const Setup& setup = {}) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder / "run");
  const std::filesystem::path metrics = folder / "run/metrics.jsonl";
  if (setup.log_file) *setup.log_file = metrics;
  Run result;
  std::FILE* printed = std::fopen((folder / "out").c_str(), "w");
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    Session session = place_session(world, setup.session);
    session.initialise(models::from_scratch(3));
    RunOutput output(printed);
    Progress progress(world.rank() == 0 ? &output : nullptr, -1, 1'000'000);
    MetricsLog log = world.rank() == 0 ? MetricsLog(metrics) : MetricsLog();
    Trainer trainer(session, options, progress, log);
    BatchSource source = training(world);
    source.get = [&, all = source.get](int64_t step) {
      Batch batch = all(step);
      if (setup.overflows && setup.overflows(world.rank(), step)) batch.gradient_factor = INFINITY;
      return batch;
    };
    try {
      const TrainTotals outcome =
          trainer.run(source, setup.validates ? validation(world) : BatchSource());
      if (world.rank() == 0) result.outcome = outcome;
    } catch (const AgreedError& error) {
      if (world.rank() == 0) result.error = error.what();
    }
    if (setup.after) setup.after(session);
  });
  std::fclose(printed);
  result.printed = read_file(folder / "out");
  result.metrics = read_file(metrics);
  return result;
}

std::vector<std::string> printed_lines(const Run& run) {
  std::vector<std::string> out;
  std::istringstream text(run.printed);
  for (std::string line; std::getline(text, line);) out.push_back(line);
  return out;
}

PlacedOptions in_f16(const optim::LossScalerOptions& scale) {
  PlacedOptions options = tiny_options();
  options.fsdp.param_dtype = DType::kF16;
  options.loss_scale = scale;
  return options;
}

TEST_CASE("trainer: steps, logged lines, evaluations") {
  const Run one = run(
      1, {.steps = 30, .log_every = 4, .eval_every = 20, .schedule = {.peak = 0.03, .total = 30}});
  CHECK(one.outcome.steps == 30);
  CHECK(one.outcome.signal == 0);
  CHECK(one.outcome.true_tokens == 30 * 2 * (kLength - 1));
  REQUIRE(one.outcome.validation_loss.has_value());
  CHECK(*one.outcome.validation_loss < 1.5);  // of ln 11 = 2.4
  std::vector<int64_t> logged, evaluated;
  for (const Json& line : lines_of(one.metrics)) {
    (line.contains("loss") ? logged : evaluated).push_back(line.at("step"));
  }
  CHECK(logged == std::vector<int64_t>{1, 4, 8, 12, 16, 20, 24, 28, 30});
  CHECK(evaluated == std::vector<int64_t>{20, 30});
}

TEST_CASE("trainer: lines of other programs, where these would print one") {
  const auto printed = [&](const LogLines& lines) {
    return printed_lines(run(1, {.steps = 5,
                                 .log_every = 2,
                                 .log_lines = &lines,
                                 .eval_every = 4,
                                 .schedule = {.peak = 0.01, .total = 5},
                                 .steps_per_epoch = 2,
                                 .samples_after = [](int64_t steps) { return 2 * steps; }}));
  };
  const std::vector<std::string> hf = printed(kTrainerLines);
  REQUIRE(hf.size() == 5);  // steps 2 and 4, an evaluation, another, the end
  for (const size_t step : {0, 1}) CHECK(hf[step].starts_with("{'loss': "));
  CHECK(hf[0].ends_with("'epoch': 1.0}"));
  for (const size_t evaluation : {2, 3}) CHECK(hf[evaluation].starts_with("{'eval_loss': "));
  CHECK(hf[4].starts_with("{'train_runtime': "));

  const std::vector<std::string> fairseq = printed(kFairseqLines);
  REQUIRE(fairseq.size() == 5);
  const Json second = Json::parse(fairseq[1]);
  CHECK(second.at("num_updates").text() == "4");
  CHECK(second.at("epoch").get<int64_t>() == 2);
  CHECK(second.at("bsz").text() == "2");
  CHECK(second.at("wpb").text() == fmt::format("{}", 2 * (kLength - 1)));
  CHECK(Json::parse(fairseq[4]).at("train_num_updates").text() == "5");

  const std::vector<std::string> chess = printed(kChessLines);
  REQUIRE(chess.size() == 6);
  CHECK(chess[2].starts_with("(4/5) loss="));
  CHECK(chess[2].ends_with(" s/step)"));
}

// A synchronous backend computes each step's forward before the step before it is read.
TEST_CASE("trainer: the tokens per second of a line are those of its steps") {
  Setup slow = {.validates = false};
  slow.session.backend.cpu.synchronous = true;
  slow.session.backend.cpu.delay = [](const std::string&, std::string_view task) {
    return task == "embedding_forward" ? 20'000 : 0;
  };
  const std::vector<Json> lines = lines_of(
      run(1, {.steps = 4, .log_every = 1, .schedule = {.peak = 0.01, .total = 4}}, slow).metrics);
  REQUIRE(lines.size() == 4);
  for (const Json& line : lines) {
    CHECK(line.at("tokens_per_s").get<double>() < 2 * (kLength - 1) / 0.02);
  }
}

TEST_CASE("trainer: any number of ranks trains the same model") {
  const TrainerOptions options = {
      .steps = 12, .log_every = 1, .schedule = {.peak = 0.02, .total = 12}};
  const Run one = run(1, options);
  for (const int ranks : {2, 3}) {  // the third rank never gets a row
    CAPTURE(ranks);
    const Run several = run(ranks, options);
    CHECK(several.outcome.train_loss() == doctest::Approx(one.outcome.train_loss()).epsilon(1e-5));
    CHECK(several.outcome.validation_loss.value() ==
          doctest::Approx(one.outcome.validation_loss.value()).epsilon(1e-5));
  }
}

TEST_CASE("trainer: the train loss is the mean over the last logging interval") {
  const Run all = run(1, {.steps = 5, .log_every = 1, .schedule = {.peak = 0.01, .total = 5}});
  const Run last = run(1, {.steps = 5, .log_every = 3, .schedule = {.peak = 0.01, .total = 5}});
  const std::vector<Json> lines = lines_of(all.metrics);
  double sum = 0;
  for (const size_t i : {2, 3, 4}) sum += lines.at(i).at("loss").get<double>();
  CHECK(last.outcome.train_loss() == doctest::Approx(sum / 3));
  for (const size_t i : {0, 1}) sum += lines.at(i).at("loss").get<double>();
  CHECK(last.outcome.mean_loss() == doctest::Approx(sum / 5));
}

TEST_CASE("trainer: a loss that is not finite names step and unit, and is logged") {
  const Run run_away =
      run(2, {.steps = 50, .log_every = 10, .schedule = {.peak = 1e38, .total = 50}});
  CHECK(test::contains(run_away.error, "not finite"));
  CHECK(test::contains(run_away.error, "step "));
  CHECK(test::contains(run_away.error, " on rank "));
  const Json last = lines_of(run_away.metrics).back();
  CHECK((last.at("loss").is_null() || last.at("grad_norm").is_null()));
}

// There is then no step after it, which would have to be dropped first.
TEST_CASE("trainer: a loss that is not finite in the last step, or before an evaluation") {
  // Step 1 moves the parameters out of range, step 2 finds it.
  const optim::Schedule schedule = {.peak = 1e38, .total = 50};
  for (const TrainerOptions& options :
       {TrainerOptions{.steps = 2, .log_every = 1, .schedule = schedule},
        TrainerOptions{.steps = 50, .log_every = 1, .eval_every = 2, .schedule = schedule}}) {
    const std::string error = run(2, options).error;
    CHECK(test::contains(error, "step 2: loss "));
    CHECK(test::contains(error, "first in the output of unit "));
  }
}

// The schedule ends in the one update that throws the model out of range: no step sees it.
TEST_CASE("trainer: a validation loss that is not finite is told at once, and is never the best") {
  const Run diverged = run(
      2, {.steps = 1, .log_every = 1, .eval_every = 1, .schedule = {.peak = 1e39, .total = 50}});
  CHECK(diverged.error == "");
  CHECK(test::contains(diverged.printed, "warning: step 1: the validation loss is nan\n"));
  REQUIRE(diverged.outcome.validation_loss);
  CHECK(!std::isfinite(*diverged.outcome.validation_loss));
  CHECK(!diverged.outcome.best_validation_loss);
  CHECK(lines_of(diverged.metrics).back().at("best_validation_loss").is_null());
  CHECK(nonfinite_validation(diverged.outcome) == "step 1: the validation loss is nan");
  CHECK(nonfinite_validation({}) == "");
  CHECK(nonfinite_validation({.validation_loss = 1}) == "");
}

TEST_CASE("trainer: a log that somebody removes is told of once, and that it is there again") {
  std::filesystem::path log;
  const auto remove = [&](const TrainTotals& totals) {
    if (totals.steps >= 3 && totals.steps < 8) std::filesystem::remove_all(log.parent_path());
    if (totals.steps >= 8) std::filesystem::create_directories(log.parent_path());
  };
  const Run run_of = run(1,
                         {.steps = 16,
                          .log_every = 1,
                          .schedule = {.peak = 0.01, .total = 16},
                          .save_every = 2,
                          .save = [](const TrainTotals&, bool) {},
                          .between_steps = remove},
                         {.log_file = &log});
  const std::string warning = "warning: " + log.string() + ": ";
  const size_t told = run_of.printed.find(warning);
  REQUIRE(told != std::string::npos);
  CHECK(run_of.printed.find(warning, told + 1) == std::string::npos);
  CHECK(test::contains(run_of.printed, "note: metrics.jsonl is written again\n"));
  CHECK(lines_of(run_of.metrics).back().at("step") == 16);
}

TEST_CASE("trainer: a rank remembers as many waits of many steps as of few") {
  const auto remembered = [](int64_t steps) {
    size_t waits = 0;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      Session session = place_session(world, tiny_options());
      session.initialise(models::from_scratch(3));
      const auto listen = [&world](const std::vector<std::string>& open) {
        world.rings()->set_phase(comm::HostPhase::of(open));
      };
      TracePhases phases(nullptr, listen);
      session.set_phases(&phases);
      Progress progress(nullptr, -1, 1);
      MetricsLog log;
      Trainer(session, {.steps = steps, .schedule = {.peak = 0.01, .total = steps}}, progress, log)
          .run(training(world), {});
      if (world.rank() > 0) return;
      for (const comm::RingSnapshot& ring : world.rings()->snapshot()) waits += ring.waits.size();
    });
    return waits;
  };
  const size_t few = remembered(40);
  CHECK(few > 0);
  CHECK(remembered(400) == few);
}

// Requirement: of 625 steps ten are skipped, so that step 500 has the rate of update 490.
TEST_CASE("trainer: skipped steps move neither the optimizer nor the schedule") {
  const Run skipping =
      run(2,
          {.steps = 501,
           .log_every = 1,
           .schedule = {.kind = optim::ScheduleKind::kLinear, .peak = 5e-5, .total = 625}},
          {.session = in_f16(optim::LossScalerOptions::torch()),
           .overflows = [](int rank,
                           int64_t step) { return rank == 1 && step % 40 == 7 && step < 400; },
           .validates = false,
           .after =
               [](Session& session) {
                 session.optimizer().visit_state([](const optim::StatePart& part) {
                   if (part.name == "step") CHECK(part.values.item() == 491);
                 });
               }});
  CHECK(skipping.outcome.skipped == 10);
  const std::vector<Json> lines = lines_of(skipping.metrics);
  const Json& step_500 = lines.at(500);  // counted from 0
  CHECK(step_500.at("learning_rate").get<double>() == doctest::Approx(1.08e-5).epsilon(1e-12));
  CHECK(step_500.at("skipped_steps") == 10);
  CHECK(step_500.at("loss_scale").get<double>() == 64);  // 65536 / 2^10
  CHECK(lines.at(7).at("grad_norm").is_null());
}

TEST_CASE("trainer: rank 0's clock asks for a checkpoint between steps") {
  std::mutex mutex;
  std::set<std::pair<int64_t, bool>> saved;  // step, whether it was the last; of both ranks
  const auto run_of = [&](const config::Interval& every, bool at_end) {
    saved.clear();
    TrainerOptions options = {.steps = 12, .schedule = {.peak = 0.01, .total = 12}};
    options.save_every = every;
    options.saves_at_end = at_end;
    options.save = [&](const TrainTotals& totals, bool last) {
      const std::lock_guard lock(mutex);
      saved.emplace(totals.steps, last);
    };
    options.between_steps = [](const TrainTotals&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(220));
    };
    run(2, options);
  };
  run_of({.seconds = 1}, false);
  REQUIRE(saved.size() >= 2);  // a second after the one before; a slow machine has more of them
  CHECK(saved.begin()->first >= 4);
  CHECK(*saved.rbegin() == std::pair(int64_t{12}, true));
  run_of({.seconds = 3600}, false);
  CHECK(saved.empty());  // a short run leaves none that nobody has asked for
  run_of({.seconds = 3600}, true);
  CHECK(saved.size() == 1);
}

TEST_CASE("trainer: a run in which every step was skipped is an error") {
  const auto error_after = [](int64_t steps, int64_t overflowing) {
    return run(1, {.steps = steps, .schedule = {.peak = 1e-3, .total = steps}},
               {.session = in_f16({.initial = 8, .rule = {}}),
                .overflows = [=](int, int64_t step) { return step < overflowing; },
                .validates = false})
        .error;
  };
  CHECK(
      error_after(3, 3) ==
      "no step updated the model: gradients overflowed in all 3, the last time at a loss scale of "
      "2; lower train.loss_scale.initial or raise train.steps");
  CHECK(error_after(3, 2).empty());
}

// The guide's run starts at a scale of 4; requirement S4.5: 4, 2, 1 after two overflows. fairseq
// says each before the line of its step (trainer.py, "except OverflowError"), also in the last
// step.
TEST_CASE(
    "trainer: fairseq's note of an overflow comes with its step, and every line has the scale") {
  const Run scaled = run(1,
                         {.steps = 4,
                          .log_every = 1,
                          .log_lines = &kFairseqLines,
                          .schedule = {.peak = 1e-3, .total = 4}},
                         {.session = in_f16({.initial = 4, .rule = {}}),
                          .overflows = [](int, int64_t step) { return step == 1 || step == 3; },
                          .validates = false});
  std::vector<std::string> said;
  for (const std::string& line : printed_lines(scaled)) {
    if (!line.starts_with("{")) {
      said.push_back(line);
    } else if (const Json json = Json::parse(line); json.contains("num_updates")) {
      said.push_back("a step, scale " + json.at("loss_scale").text());
    }
  }
  const std::string note =
      "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: ";
  CHECK(said == std::vector<std::string>{"a step, scale 4", note + "2", "a step, scale 4",
                                         "a step, scale 2", note + "1", "a step, scale 2"});
}

TEST_CASE("trainer: a loss scale that cannot fall further ends the run with a reason") {
  const std::string error = run(2, {.steps = 50, .schedule = {.peak = 1e-3, .total = 50}},
                                {.session = in_f16({.initial = 8, .rule = {.minimum = 1}}),
                                 .overflows = [](int, int64_t) { return true; },
                                 .validates = false})
                                .error;
  CHECK(test::contains(error,
                       "step 3: gradients overflow at a loss scale of 2, after 3 skipped steps, "
                       "and the next one would not be above train.loss_scale.minimum 1: "));
}

TEST_CASE("trainer: micro-steps, and the mean over ranks where rows are equally long") {
  const auto loss_of = [&](int micro_steps, LossMean mean) {
    Setup setup = {.validates = false};
    setup.session.fsdp.micro_steps = micro_steps;
    setup.session.loss_mean = mean;
    return run(1, {.steps = 9, .schedule = {.peak = 0.02, .total = 9}}, setup).outcome.train_loss();
  };
  const double once = loss_of(1, LossMean::kTokens);
  CHECK(loss_of(2, LossMean::kTokens) == doctest::Approx(once).epsilon(1e-6));
  CHECK(loss_of(2, LossMean::kRanks) == doctest::Approx(once).epsilon(1e-6));
}

TEST_CASE("trainer: between two steps the totals are those of the last one that is finished") {
  std::vector<int64_t> finished;
  run(1, {.steps = 10,
          .eval_every = 4,
          .schedule = {.peak = 0.03, .total = 10},
          .save_every = 8,
          .save = [](const TrainTotals&, bool) {},
          .between_steps = [&](const TrainTotals& totals) { finished.push_back(totals.steps); }});
  // One step behind the one that is issued, but where an evaluation or save has waited for it.
  CHECK(finished == std::vector<int64_t>{0, 1, 2, 4, 4, 5, 6, 8, 8, 9});
}

// What is kept besides the session is all that the loop needs: the state of the session stands for
// itself here, it goes on in the same process.
TEST_CASE("trainer: progress is kept at its steps, and a loop that goes on from it logs the rest") {
  std::vector<TrainTotals> kept;
  const TrainerOptions options = {.steps = 20,
                                  .log_every = 3,
                                  .eval_every = 4,
                                  .schedule = {.peak = 0.03, .total = 20},
                                  .save_every = 8,
                                  .save = [&](const TrainTotals& p, bool last) {
                                    kept.push_back(p);
                                    CHECK(last == (p.steps == 20));
                                  }};
  const Run whole = run(1, options);
  REQUIRE(kept.size() == 3);  // the last step too
  CHECK(kept[0].steps == 8);
  CHECK(kept[1].steps == 16);
  CHECK(kept[2].steps == 20);
  CHECK(kept[1].recent_losses.size() == 3);
  CHECK(kept[1].true_tokens == 16 * 2 * (kLength - 1));
  CHECK(kept[1].validated_at == 16);  // evaluated before it was kept
  CHECK(kept[2].validation_loss == whole.outcome.validation_loss);
  TrainerOptions rest = options;
  rest.resume = kept[1];
  rest.resume.wall_time_s = 1000;
  const Run after = run(1, rest);
  std::vector<int64_t> logged, evaluated;
  for (const Json& line : lines_of(after.metrics)) {
    (line.contains("loss") ? logged : evaluated).push_back(line.at("step"));
  }
  CHECK(logged == std::vector<int64_t>{18, 20});
  CHECK(evaluated == std::vector<int64_t>{20});  // that of 16 is done
  CHECK(after.outcome.true_tokens == whole.outcome.true_tokens);
  CHECK(whole.outcome.mean_loss() == kept[2].loss_sum / 20);
  CHECK(after.outcome.mean_loss() == kept.back().loss_sum / 20);
  CHECK(kept.back().loss_sum > kept[1].loss_sum);  // of all steps, those before it went on, too
  CHECK(after.outcome.wall_time_s > 1000);
  CHECK(kept.size() == 4);
  // A signal came before the evaluation of step 16.
  rest.resume.validated_at = 12;
  evaluated.clear();
  for (const Json& line : lines_of(run(1, rest).metrics)) {
    if (line.contains("validation_loss")) evaluated.push_back(line.at("step"));
  }
  CHECK(evaluated == std::vector<int64_t>{16, 20});
  REQUIRE(kept.size() == 6);  // so that the checkpoint of step 16 is judged
  CHECK(kept[4].steps == 16);
  CHECK(kept[4].validated_at == 16);
  // A signal came in the evaluation after the last step: that checkpoint is judged too.
  rest.resume = kept.back();
  rest.resume.validated_at = 16;
  kept.clear();
  run(1, rest);
  REQUIRE(kept.size() == 1);
  CHECK(kept[0].steps == 20);
  CHECK(kept[0].validated_at == 20);
  // At its end there is nothing to do, nor to keep.
  rest.resume = kept.back();
  kept.clear();
  CHECK(run(1, rest).metrics.empty());
  CHECK(kept.empty());
}

}  // namespace
}  // namespace fsdp::tools
