// What a run says about itself: prediction, summary, memory, sample, trace.
#include <algorithm>

#include <fmt/ranges.h>

#include "comm/exchange.h"
#include "models/input_rules.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/data/text_stream.h"
#include "tools/generate/generation.h"
#include "tools/report/communication_overlap.h"
#include "tools/run/run_texts.h"
#include "tools/run/training_run.h"
#include "tools/train/config_to_session.h"

namespace fsdp::tools {
// 0: the formula says nothing of a part of the model that is frozen, and of narrower values.
size_t TrainingRun::formula_states() const {
  if (optim::state_names(session_options_.optimizer).size() != 2 || session_->lora() ||
      !config_.train.freeze.empty() || config_.train.master_dtype ||
      config_.train.optimizer.state_dtype)
    return 0;
  const comm::GroupSizes groups = comm::group_sizes(session_options_.fsdp, rank_.world.size());
  return states_by_formula(config_.fsdp.options.strategy, groups.shards, model_.parameter_count());
}

// Collective.
MemoryReport TrainingRun::memory_report() {
  MemoryReport memory = {.ledger = session_->backend().ledger().usage(),
                         .host = {},
                         .process_ranks = rank_.local_ranks,
                         .resident_growth = process_memory().peak_resident - resident_before_};
  struct OfRank {
    size_t peak, trace;
  };
  if (session_->host()) memory.host = session_->host()->ledger().usage();
  if (session_->file()) memory.file = session_->file()->ledger().usage();
  const OfRank mine = {memory.ledger.total_peak + memory.host.total_peak, bytes_of(trace_)};
  const std::vector<OfRank> of_process =
      rank_.local_ranks > 1 ? comm::exchange_values(rank_.world, mine) : std::vector<OfRank>{mine};
  for (const OfRank& rank : of_process) {
    memory.process_ledger += rank.peak;
    memory.trace += rank.trace;
  }
  if (!speaks()) return memory;
  memory.predicted = predicted_;
  memory.predicted_host = predicted_host_;
  memory.predicted_file = predicted_file_;
  memory.formula_states = formula_states();
  memory.on_gpu = rank_.backend.cuda.has_value();
  memory.at_most = models::input_rules(model_).knows_padding();
  return memory;
}

// Of the last steps. Collective.
void TrainingRun::find_stragglers(RunSummary& summary) {
  comm::RankRings mine = {
      .rank = rank_.world.rank(), .place = {}, .rings = rank_.world.rings()->snapshot()};
  for (comm::RingSnapshot& ring : mine.rings) ring.records.clear();
  std::vector<comm::RankRings> all;
  for (const std::string& text : rank_.world.exchange(to_json(mine))) {
    if (speaks()) all.push_back(rings_from_json(text, "rings"));
  }
  if (!speaks()) return;
  std::vector<int> host_of;
  for (const std::string& host : hosts_) {
    const auto first = std::find(hosts_.begin(), hosts_.end(), host);
    host_of.push_back(static_cast<int>(first - hosts_.begin()));
  }
  summary.stragglers = comm::find_stragglers(all);
  const bool one_host = std::count(host_of.begin(), host_of.end(), 0) == rank_.world.size();
  const auto host = [&](const comm::Straggler& s) { return hosts_[static_cast<size_t>(s.rank)]; };
  for (const comm::Straggler& late : summary.stragglers) {
    say(fmt::format("note: {}{}", comm::describe(late),
                    one_host ? "" : "; it is on " + host(late)));
  }
  if (one_host) return;
  summary.late_hosts = comm::find_stragglers(all, host_of);
  for (const comm::Straggler& late : summary.late_hosts) {
    say("note: " + comm::describe(late, "host " + host(late)));
  }
}

// What training and validation came to; without the memory, which saving and the sample take too.
RunSummary TrainingRun::summarise(const TrainTotals& totals) {
  const StateHash hash = hash_state(*session_);
  const SampleSums load = sums_of_ranks(rank_.world, load_);
  if (const auto problem = comm::first_to_say(rank_.world, monitor_problem_)) {
    say(fmt::format("note: rank {}: {}", problem->rank, problem->text));
  }
  RunSummary late;
  find_stragglers(late);
  if (!speaks()) return {};
  std::optional<CommunicationOverlap> overlap;
  if (config_.runtime.trace) overlap = measure_overlap(trace_.events());
  // It is of next tokens.
  const std::optional<double> bigram =
      model_.shifted_labels ? data_.bigram_entropy() : std::nullopt;
  return {
      .facts = facts(),
      .model = describe(model_),
      .strategy = std::string(choice_name(config_.fsdp.options.strategy)),
      .dtype = std::string(fsdp::name_of(config_.train.dtype)),
      .world_size = rank_.world.size(),
      .hosts = hosts_,
      .threads_per_rank = rank_.threads,
      .parameters = model_.parameter_count(),
      .totals = totals,
      .costs = progress_file_.costs(),
      .epochs = static_cast<double>(totals.steps) / static_cast<double>(data_.steps_per_epoch()),
      .batch_making_s = batch_times_.made_s,
      .batch_waiting_s = batch_times_.waited_s,
      .resumed_from = plan_.manifest ? plan_.manifest->step() : 0,
      .weights_hash = hex(hash.weights),
      .optimizer_hash = hex(hash.optimizer),
      .best_step = checkpoints_ && checkpoints_->best() ? std::optional(checkpoints_->best()->step)
                                                        : std::nullopt,
      .bigram_entropy = bigram,
      .samples_of_load = load,
      .collectives = rank_.world.rings()->totals(),
      .stragglers = late.stragglers,
      .late_hosts = late.late_hosts,
      .overlap = overlap};
}

// Collective.
void TrainingRun::report(RunSummary& summary) {
  const MemoryReport memory = memory_report();
  const std::vector<size_t> peaks = comm::exchange_values(rank_.world, memory.ledger.total_peak);
  if (!speaks()) return;
  summary.peak_bytes = *std::max_element(peaks.begin(), peaks.end());
  summary.predicted_memory = memory.predicted;
  summary.memory = memory.ledger;
  summary.predicted_host = memory.predicted_host;
  summary.host = memory.host;
  summary.predicted_file = memory.predicted_file;
  summary.file = memory.file;
  summary.resident_growth_bytes = memory.resident_growth;
  if (summary.totals.signal != 0) return;
  say_beside(fmt::format("\n{}", format_losses(summary.totals, config_.train.log_every.steps,
                                               summary.bigram_entropy)));
  std::string table = format_memory_table(memory);
  table.pop_back();  // the end of its last line
  say_beside(table);
  const std::string batches =
      format_batch_times(batch_times_, summary.totals.steps - summary.resumed_from);
  if (!batches.empty()) say_beside(batches);
  if (summary.overlap) say_beside(format_overlap(*summary.overlap));
}

RunIntervals TrainingRun::intervals() const {
  const config::StepShape shape = config::step_shape(config_, rank_.world.size());
  const int64_t passes = rank_.world.size() * shape.micro_steps;
  return {.steps = config_.train.steps,
          .epochs = plan_.config.train.epochs,
          .log_every = config_.train.log_every.steps,
          .eval_every = config_.train.eval_every.steps,
          .save_every = config_.checkpoint.interval().steps,
          .rows_per_rank = (shape.batch + passes - 1) / passes,
          .best_checkpoint = checkpoints_ && checkpoints_->best()
                                 ? checkpoints_->folder_of(checkpoints_->best()->step).string()
                                 : ""};
}

// As CUDA numbers it; none: the CPU computes, though it may be for f64 alone.
std::optional<int> TrainingRun::gpu() const {
  if (session_->backend().name() != "cuda") return std::nullopt;
  return rank_.backend.cuda->device;
}

std::string TrainingRun::device() const { return gpu() ? gpu_name(*gpu()) : cpu_name(); }

RunFacts TrainingRun::facts() const {
  const config::DataSection& data = config_.data;
  return {.model = config_.model.path.empty() ? describe(model_) : config_.model.path,
          .dataset = data.synthetic() ? "synthetic"
                                      : fmt::format("{}", fmt::join(data.training_files(), ", ")),
          .run_name = config_.runtime.name,
          .sharding_strategy = std::string(choice_name(config_.fsdp.options.strategy)),
          .max_steps = config_.train.steps,
          .seq_len = data.sequence_length,
          .bsz = intervals().rows_per_rank,
          .grad_accum = config::step_shape(config_, rank_.world.size()).micro_steps,
          .lr = config_.train.lr,
          .seed = config_.train.seed,
          .subset_size = data.subset.n,
          .fsdp = config_.fsdp.options.strategy != comm::Strategy::kNoShard,
          .bf16 = config_.train.dtype == DType::kBF16,
          .use_lora = session_->lora().has_value(),
          .gradient_checkpointing = config_.train.recompute.mode != RecomputeMode::kNone,
          .cpu = cpu_name(),
          .gpu = gpu() ? gpu_name(*gpu()) : ""};
}

MonitorOptions TrainingRun::monitoring() const {
  const bool samples_host = first_rank_of_host(rank_.world);
  const std::string host_file = fmt::format("monitor.host.{}.csv", host_name());
  return {.file = directory_ / fmt::format("monitor.rank{}.csv", rank_.world.rank()),
          .host_file = samples_host ? directory_ / host_file : "",
          .interval = std::chrono::duration<double>(config_.runtime.monitor_s),
          .later = std::chrono::duration<double>(config_.runtime.monitor_later_s),
          .gpu = gpu(),
          .ledger = &session_->backend().ledger(),
          .disk = disk_of(directory_)};
}

std::string TrainingRun::sample() {
  const config::SampleSection& c = config_.sample;
  if (c.tokens == 0) return "";
  const PhaseScope phase(session_->phases(), "sample");
  const data::Tokenizer& tokenizer = data_.tokenizer();
  const std::vector<int32_t> prompt = sample_prompt(c.prompt, tokenizer);
  if (prompt.empty()) return "sample: none: no token of sample.prompt, and no end-of-text to begin";
  const int32_t largest = *std::max_element(prompt.begin(), prompt.end());
  if (largest >= model_.vocabulary) {
    return fmt::format(
        "sample: none: token {} of its prompt is beyond the model's vocabulary of {}", largest,
        model_.vocabulary);
  }
  const std::vector<int32_t> tokens =
      generate_tokens(*session_,
                      {.tokens = c.tokens,
                       .sampling = {.temperature = c.temperature,
                                    .top_k = c.top_k,
                                    .seed = static_cast<uint64_t>(config_.train.seed)},
                       .stop = {tokenizer.end_of_text()},
                       .vocabulary = tokenizer.vocab_size()},
                      {prompt})
          .front()
          .ids;
  return fmt::format("sample: {}|{}", c.prompt, data::text_after(tokenizer, prompt, tokens));
}

void TrainingRun::write_trace() {
  if (!config_.runtime.trace) return;
  session_->set_trace(nullptr);
  phases_->record();
  agree(rank_.world, config_.runtime.patience(), [&] {
    const int rank = rank_.world.rank();
    write_file_atomically(directory_ / fmt::format("trace.rank{}.json", rank),
                          trace_.to_json(rank));
  });
}

}  // namespace fsdp::tools
