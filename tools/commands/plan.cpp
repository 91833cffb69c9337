// fsdp plan: step time, memory and cost of a job on machines that nobody has booked yet; and how
// far such times are from published ones. Read next: tools/plan/README.md.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>
#include <unistd.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/commands/commands.h"
#include "tools/commands/config_options.h"
#include "tools/launch/launch.h"
#include "tools/plan/plan_defaults.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/validation.h"
#include "tools/predict/machines.h"
#include "tools/predict/memory_view.h"
#include "tools/predict/rates_file.h"
#include "tools/train/config_to_session.h"
#include "tools/train/model_shape.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

struct PlanOptions {
  ConfigOptions config;
  std::string gpu, rates, best = "cheapest", svg, save;
  std::vector<int32_t> nodes = {1};
  int gpus_per_node = 0;  // 0: as the machine says
  bool search = false, json = false;
  int top = 10;
  PlanQuestion question;  // its numbers
  double safety_percent = 5, checkpoint_s = 0;
  std::string validate, fit = "none";
};

// One line that is written over, where somebody looks at it.
class ProgressLine {
 public:
  explicit ProgressLine(const char* what) : what_(what), seen_(isatty(STDERR_FILENO) != 0) {}
  ~ProgressLine() {
    if (seen_) fmt::print(stderr, "\r\033[K");
  }
  void operator()(int64_t done, int64_t all) const {
    if (seen_) fmt::print(stderr, "\r{} of {} {}", done, all, what_);
  }

 private:
  const char* what_;
  bool seen_;
};

void print(const PlanOptions& options, const Json& json, const std::string& text) {
  std::printf("%s%s", options.json ? json.dump().c_str() : text.c_str(), options.json ? "\n" : "");
}

int print_validation(const PlanOptions& options) {
  const std::map<std::string, Fit> fits = {{"none", Fit::kNone},
                                           {"leave-one-size", Fit::kLeaveOneSize},
                                           {"leave-one-set", Fit::kLeaveOneSet}};
  FSDP_CHECK(options.config.config.empty() && overrides_of(options.config).empty(),
             "--validate: the rows say what is predicted, so a configuration has no effect");
  const std::vector<PublishedRow> rows = read_published_rows(options.validate);
  const Validation validation = [&] {
    const ProgressLine line("predictions");
    return validate(rows, fits.at(options.fit), std::ref(line));
  }();
  print(options, validation_json(validation), format_validation(validation));
  return 0;
}

// Keys that the command line sets: a search leaves them alone.
std::set<std::string> typed_keys(const config::TrainConfig& config) {
  std::set<std::string> out;
  for (const auto& [key, place] : config.places) {
    if (place.starts_with("--")) out.insert(key);
  }
  return out;
}

bool has_percentiles(const Rates& rates) {
  for (const auto& [kind, rows] : rates.measured_bus) {
    for (const MeasuredBus& row : rows) {
      if (row.p5 > 0 || row.p95 > 0) return true;
    }
  }
  return false;
}

// Without defaults for a plan. `asked`: which model the configuration names, for a run of it.
PlanQuestion question_of(const PlanOptions& options, config::ModelSection& asked) {
  PlanQuestion question = options.question;
  question.config = read_for_prediction(options.config, &asked);
  question.gpu = machine_named(options.gpu);
  question.rates =
      call_rates({.rates = options.rates.empty() ? options.gpu : options.rates})->rates();
  check_has_times(question.rates);
  if (options.gpus_per_node > 0) question.rates.ranks_per_node = options.gpus_per_node;
  question.safety = options.safety_percent / 100;
  if (options.checkpoint_s > 0) question.checkpoint_s = options.checkpoint_s;
  return question;
}

Plan make_plan(const PlanOptions& options, config::ModelSection& asked) {
  Plan plan = {.question = question_of(options, asked), .searched = options.search};
  PlanQuestion& question = plan.question;
  const std::set<std::string> typed = typed_keys(question.config);
  std::vector<int> gpus;
  for (const int nodes : options.nodes) gpus.push_back(nodes * question.rates.ranks_per_node);
  plan.notes = take_plan_defaults(question.config, question.rates, gpus, options.search);
  if (options.question.percentile != 50 && !has_percentiles(question.rates)) {
    plan.notes.push_back(fmt::format("--percentile has no effect: {} has no measured percentiles",
                                     question.rates.machine));
  }
  if (options.best == "fastest") plan.best = Best::kFastest;
  plan.model = describe(model_config(question.config, vocabulary_of(question.config)));
  if (options.search) {
    const ProgressLine line("candidates");
    plan.found = search_plans(question,
                              {.nodes = options.nodes,
                               .fixed = typed,
                               .best = plan.best,
                               .top = static_cast<size_t>(options.top)},
                              std::ref(line));
  } else {
    plan.found.best = plan_each(question, options.nodes);
  }
  look_at_latencies(question, plan.found.best);
  return plan;
}

void write_plot(const std::string& file, const Plan& plan) {
  std::vector<PlanPoint> points;
  for (const PlannedJob& job : scaling_jobs(plan)) {
    const double tokens_per_s = job.tokens_per_s_gpu() * job.gpus;
    points.push_back(
        {job.gpus, tokens_per_s, fmt::format("{} GPUs: {:.0f} tokens/s", job.gpus, tokens_per_s)});
  }
  const std::string svg = scaling_plot(std::move(points));
  FSDP_CHECK(!svg.empty(), "--svg: jobs fit on one number of nodes alone, which is no picture");
  write_file_atomically(file, svg);
}

int print_plan(const PlanOptions& options) {
  check_one_process("plan");
  FSDP_CHECK(!options.gpu.empty(), "plan: expected --gpu, or --validate; got neither");
  FSDP_CHECK(
      options.svg.empty() || std::set<int>(options.nodes.begin(), options.nodes.end()).size() > 1,
      "--svg: a picture of how the job scales needs two numbers of --nodes");
  config::ModelSection asked;
  const Plan plan = make_plan(options, asked);
  print(options, plan_json(plan), format_plan(plan));
  if (plan.found.best.empty()) return 1;
  if (!options.svg.empty()) write_plot(options.svg, plan);
  if (!options.save.empty()) {
    config::TrainConfig config = plan.found.best.front().config;
    config.model = asked;  // not the sizes alone: a run of them would begin with random weights
    write_file_atomically(options.save, short_yaml(config));
  }
  return 0;
}

std::string wrong_nodes(const std::string& text) {
  const bool number = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isdigit(c) != 0;
  });
  return number && text.size() < 6 && std::stoi(text) > 0
             ? ""
             : "expected numbers of nodes from 1 to 99999, got " + text;
}

}  // namespace

void add_plan_command(const Command& app) {
  const auto options = std::make_shared<PlanOptions>();
  PlanQuestion& question = options->question;
  const Command command = app.add_command("plan");
  add_config_options(command, {FlagOf::kConfigured}, options->config);
  command.add({{"--gpu", &options->gpu, wrong_machine},
               {"--nodes", &options->nodes, wrong_nodes},
               {"--gpus-per-node", &options->gpus_per_node},
               {"--rates", &options->rates},
               {"--percentile", &question.percentile},
               {"--safety", &options->safety_percent},
               {"--svg", &options->svg},
               {"--save", &options->save},
               {"--tokens", &question.tokens},
               {"--price-per-gpu-hour", &question.price_per_gpu_hour},
               {"--failures-per-gpu-day", &question.failures_per_gpu_day},
               {"--checkpoint-s", &options->checkpoint_s},
               {"--restart-s", &question.restart_s},
               {"--search", &options->search},
               {"--top", &options->top},
               {"--best", &options->best},
               {"--validate", &options->validate},
               {"--fit", &options->fit},
               {"--json", &options->json}});
  command.when_chosen([options] {
    return options->validate.empty() ? print_plan(*options) : print_validation(*options);
  });
}

}  // namespace fsdp::tools
