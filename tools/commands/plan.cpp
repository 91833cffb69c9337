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
#include "tools/train/data_paths.h"
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
             "--validate: the rows say what is predicted; a configuration means nothing beside it");
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
  const std::string& file = options.config.config;
  question.config = config::read_config(file, overrides_of(options.config));
  resolve_paths(question.config, file);
  for (const std::string& note : question.config.notes) print_note(note);
  asked = question.config.model;
  for (const std::string& note : take_published_sizes(question.config)) print_note(note);
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

// Those that mean nothing beside --validate.
std::vector<Option> add_question(const Command& command, PlanOptions& options) {
  return {
      command
          .add_option("--gpu", options.gpu,
                      "the machine: its memory, and its times (48GiB: the memory, beside --rates)")
          .check(wrong_machine),
      command.add_option("--nodes", options.nodes, "numbers of nodes: 1,2,4 [1]")
          .delimiter(',')
          .check(wrong_nodes),
      command.add_option("--gpus-per-node", options.gpus_per_node, "[as the machine: 8]")
          .from_to(1, 1024),
      command
          .add_option("--rates", options.rates,
                      "machine or file of rates, for the times [the machine of --gpu]")
          .path()
          .check(not_empty),
      command
          .add_option("--percentile", options.question.percentile,
                      "of the collectives' times, where a machine has measured ones: 95 is seldom "
                      "too fast [50]")
          .from_to(5.0, 95.0),
      command
          .add_option("--safety", options.safety_percent,
                      "percent that must stay free of the memory that CUDA and NCCL leave [5]")
          .from_to(0.0, 90.0),
      command.add_option("--svg", options.svg, "write a picture of how the job scales there")
          .path()
          .check(not_empty),
      command.add_option("--save", options.save, "write the configuration of the first job there")
          .path()
          .check(not_empty)};
}

std::vector<Option> add_costs(const Command& command, PlanOptions& options) {
  PlanQuestion& question = options.question;
  const Option tokens =
      command.add_option("--tokens", question.tokens, "to train on, 15e12: days and GPU hours")
          .from_to(1.0, 1e18);
  command.add_option("--price-per-gpu-hour", question.price_per_gpu_hour, "in your money: the cost")
      .from_to(0.0001, 1e6)
      .needs(tokens);
  const Option failures =
      command
          .add_option("--failures-per-gpu-day", question.failures_per_gpu_day,
                      "0.0001: one failure a day of 10,000 GPUs; the time that is lost, and how "
                      "often to save [0]")
          .from_to(0.0, 1000.0);
  command
      .add_option("--checkpoint-s", options.checkpoint_s,
                  "seconds of a checkpoint [as the nodes' disks write it]")
      .from_to(0.001, 1e6)
      .needs(failures);
  command
      .add_option("--restart-s", question.restart_s,
                  "seconds until a job works again after a failure [300]")
      .from_to(0.0, 1e6)
      .needs(failures);
  return {tokens, failures};
}

}  // namespace

void add_plan_command(const Command& app, ChosenCommand& chosen) {
  const auto options = std::make_shared<PlanOptions>();
  const Command command = app.add_command(
      "plan", "step time, memory and cost of a job on machines that are not there yet");
  add_config_options(command, {FlagOf::kConfigured}, options->config);
  std::vector<Option> of_plans = add_question(command, *options);
  for (const Option& each : add_costs(command, *options)) of_plans.push_back(each);
  const Option search = command.add_flag(
      "--search", options->search,
      "try strategies, shard sizes, rows a pass, recompute, offload and prefetch on all --nodes; "
      "what --set says stays");
  command.add_option("--top", options->top, "jobs of a search to print [10]")
      .from_to(1, 1000)
      .needs(search);
  command
      .add_option("--best", options->best,
                  "cheapest (by GPU hours), or fastest: what a search looks for [cheapest]")
      .one_of({"cheapest", "fastest"})
      .needs(search);
  const Option validate =
      command
          .add_option("--validate", options->validate,
                      "instead: published steps, a CSV file or a folder of some, beside what is "
                      "predicted for them (tools/plan/README.md)")
          .path()
          .check(not_empty)
          .excludes(search);
  for (const Option& each : of_plans) validate.excludes(each);
  command
      .add_option(
          "--fit", options->fit,
          "constants of --validate: none (the machines' files), or fitted on the set's other "
          "model sizes, or on other sets [none]")
      .one_of({"none", "leave-one-size", "leave-one-set"})
      .needs(validate);
  command.add_flag("--json", options->json, "print JSON");
  command.when_chosen([&chosen, options] {
    chosen = [options] {
      return options->validate.empty() ? print_plan(*options) : print_validation(*options);
    };
  });
}

}  // namespace fsdp::tools
