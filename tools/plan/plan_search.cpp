// Candidates in families that differ in their memory, each family in one thread.
#include "tools/plan/plan_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "tools/config/step_shape.h"

namespace fsdp::tools {
namespace {

constexpr const char* kRows = "more rows a pass than what needs too much";
constexpr const char* kMemory = "do not fit";
constexpr const char* kNoNeed = "recompute more than the job needs to fit";

// Keys that are changed together.
using Choice = std::vector<std::string>;
const std::vector<Choice> kPrefetch = {{"fsdp.prefetch_depth=1", "fsdp.units_in_flight=2"},
                                       {"fsdp.prefetch_depth=2", "fsdp.units_in_flight=3"}};

Choice together(const Choice& a, const Choice& b) {
  Choice out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

// Of a configuration that nobody wrote as a file: without the line in it.
std::string without_line(const std::string& message) {
  const size_t end = message.find(": ");
  return message.starts_with(':') && end != std::string::npos ? message.substr(end + 2) : message;
}

// Jobs that differ in what they recompute, and in the rows of a pass.
struct Family {
  int nodes = 1;
  Choice choice;
};

class Search {
 public:
  Search(const PlanQuestion& question, const SearchOptions& options,
         const std::function<void(int64_t, int64_t)>& progress)
      : question_(question), options_(options), progress_(progress) {
    for (const int nodes : options.nodes) {
      for (const Choice& strategy : strategies(nodes * question.rates.ranks_per_node)) {
        for (const Choice& offload : offloads()) {
          const Choice both = together(strategy, offload);
          if (!can_prefetch(strategy)) {
            families_.push_back({nodes, both});
            continue;
          }
          for (const Choice& ahead : kPrefetch) families_.push_back({nodes, together(both, ahead)});
        }
      }
    }
    savings_ = recomputes();
    for (const Family& family : families_) {
      all_ += static_cast<int64_t>(savings_.size() * micro_steps_of(family.nodes).size());
    }
    for (const int nodes : options.nodes) {
      if (micro_steps_of(nodes).empty()) {
        ++result_.left_out[fmt::format(
            "number of nodes with more GPUs than the batch has rows ({})", batch())];
      }
    }
  }

  SearchResult run() {
    result_.candidates = all_;
    for_each_index(
        families_.size(), [&](size_t i) { look_at(i); }, options_.threads);
    std::sort(found_.begin(), found_.end(),
              [](const Found& a, const Found& b) { return a.key < b.key; });
    std::set<int> seen;
    for (const Found& each : found_) {
      const bool first = seen.insert(each.job.settings.nodes).second;
      if (first && options_.nodes.size() > 1) result_.of_nodes.push_back(each.job);
    }
    for (size_t i = 0; i < std::min(options_.top, found_.size()); ++i) {
      result_.best.push_back(std::move(found_[i].job));
    }
    return std::move(result_);
  }

 private:
  // Of prices in the same bin of a thousandth, what saves and prefetches least comes first.
  using Key = std::tuple<int64_t, size_t, size_t, int64_t>;  // price, saving, family, micro-steps
  struct Found {
    Key key;
    PlannedJob job;
  };
  Key key_of(const PlannedJob& job, size_t saving, size_t family, int64_t micro_steps) const {
    const double steps = std::log(price_of(job, options_.best)) * 1000;
    return {static_cast<int64_t>(std::floor(steps)), saving, family, micro_steps};
  }

  bool is_fixed(const std::string& key) const { return options_.fixed.contains(key); }

  std::vector<Choice> strategies(int gpus) const {
    if (gpus == 1 && !is_fixed("fsdp.strategy")) return {{"fsdp.strategy=no_shard"}};
    std::vector<Choice> out;
    for (const comm::Strategy strategy : comm::kStrategies) {
      const bool own = strategy == question_.config.fsdp.options.strategy;
      if (is_fixed("fsdp.strategy") && !own) continue;
      const Choice choice = {fmt::format("fsdp.strategy={}", comm::choice_name(strategy))};
      if (!comm::is_hybrid(strategy)) {
        out.push_back(choice);
        continue;
      }
      for (const Choice& size : shard_sizes(gpus)) out.push_back(together(choice, size));
    }
    return out;
  }

  std::vector<Choice> shard_sizes(int gpus) const {
    if (is_fixed("fsdp.shard_size")) return {{}};
    std::vector<Choice> out;
    for (int size = question_.rates.ranks_per_node; size < gpus; size *= 2) {
      if (size > 1 && gpus % size == 0) out.push_back({fmt::format("fsdp.shard_size={}", size)});
    }
    return out;
  }

  // More than one unit ahead: where units are given back between their uses.
  bool can_prefetch(const Choice& strategy) const {
    if (is_fixed("fsdp.prefetch_depth") || is_fixed("fsdp.units_in_flight")) return false;
    return strategy.front() == "fsdp.strategy=full_shard" ||
           strategy.front() == "fsdp.strategy=hybrid_shard";
  }

  // What takes memory away and time in return, the least first.
  std::vector<Choice> recomputes() const {
    if (is_fixed("train.recompute.mode")) return {{}};
    return {{"train.recompute.mode=none"},
            {"train.recompute.mode=selective"},
            {"train.recompute.mode=full"}};
  }

  std::vector<Choice> offloads() const {
    if (is_fixed("fsdp.offload")) return {{}};
    return {{"fsdp.offload=none"}, {"fsdp.offload=optimizer"}, {"fsdp.offload=all"}};
  }

  int64_t batch() const { return config::step_shape(question_.config, 1).batch; }

  // Micro-steps of passes of 1, 2, 4, ... rows, and a single one, the most first; 0: as the
  // configuration says. None: there are fewer rows than GPUs.
  std::vector<int64_t> micro_steps_of(int nodes) const {
    if (is_fixed("train.rows_per_pass") || is_fixed("train.micro_steps")) return {0};
    const int64_t gpus = int64_t{nodes} * question_.rates.ranks_per_node;
    if (batch() < gpus) return {};
    const int64_t own = (batch() + gpus - 1) / gpus;  // rows of a GPU
    std::vector<int64_t> out;
    for (int64_t rows = 1; rows < 2 * own; rows *= 2) {
      const int64_t steps = (own + rows - 1) / rows;
      if (out.empty() || out.back() != steps) out.push_back(steps);
    }
    return out;
  }

  void look_at(size_t f) {
    const Family& family = families_[f];
    const int gpus = family.nodes * question_.rates.ranks_per_node;
    const auto rates = rates_of(question_);
    std::vector<bool> too_large(savings_.size(), false);
    for (const int64_t micro_steps : micro_steps_of(family.nodes)) {
      const bool one_pass = micro_steps == 1;
      bool fits = false;  // with less saving
      for (size_t s = 0; s < savings_.size(); ++s) {
        if (fits || (too_large[s] && !one_pass)) {
          leave_out(fits ? kNoNeed : kRows);
          continue;
        }
        JobSettings settings = {family.nodes, together(family.choice, savings_[s])};
        if (micro_steps > 0) {
          settings.overrides.push_back(fmt::format("train.micro_steps={}", micro_steps));
          settings.overrides.emplace_back("train.rows_per_pass=0");
        }
        try {
          PlannedJob job = plan_job(question_, settings, rates, memory_limit_of(question_, gpus));
          fits = true;
          keep({key_of(job, s, f, micro_steps), std::move(job)});
        } catch (const TooMuchMemory&) {
          too_large[s] = true;
          refuse(kMemory);
        } catch (const Error& error) {
          refuse("refused: " + without_line(error.what()));
        }
      }
    }
  }

  void refuse(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    ++result_.runs;
    ++result_.left_out[why];
    say();
  }

  void keep(Found found) {
    const std::scoped_lock lock(mutex_);
    ++result_.runs;
    found_.push_back(std::move(found));
    say();
  }

  void leave_out(const char* why) {
    const std::scoped_lock lock(mutex_);
    ++result_.left_out[why];
    say();
  }

  void say() {
    if (progress_) progress_(++done_, all_);
  }

  const PlanQuestion& question_;
  const SearchOptions& options_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::vector<Family> families_;
  std::vector<Choice> savings_;
  int64_t all_ = 0, done_ = 0;
  std::mutex mutex_;
  std::vector<Found> found_;
  SearchResult result_;
};

}  // namespace

double price_of(const PlannedJob& job, Best best) {
  const double per_token = job.step_s / job.tokens_per_step / job.useful_share;
  return best == Best::kFastest ? per_token : per_token * job.gpus;
}

SearchResult search_plans(const PlanQuestion& question, const SearchOptions& options,
                          const std::function<void(int64_t, int64_t)>& progress) {
  return Search(question, options, progress).run();
}

std::vector<PlannedJob> plan_each(const PlanQuestion& question, const std::vector<int>& nodes) {
  std::vector<PlannedJob> out(nodes.size());
  for_each_index(nodes.size(), [&](size_t i) {
    out[i] = plan_job(question, {.nodes = nodes[i]}, rates_of(question));
  });
  return out;
}

void look_at_latencies(const PlanQuestion& question, std::vector<PlannedJob>& jobs) {
  for_each_index(jobs.size(), [&](size_t i) { look_at_latency(question, jobs[i]); });
}

void for_each_index(size_t count, const std::function<void(size_t)>& work, size_t threads) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;
  const auto some = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::scoped_lock lock(mutex);
        if (!first) first = std::current_exception();
      }
    }
  };
  if (threads == 0) threads = std::thread::hardware_concurrency();
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(some);
    some();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace fsdp::tools
