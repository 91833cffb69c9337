// Laying out. Contract: tools/predict/memory_view.h.
#include "tools/predict/memory_view.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/text/byte_size.h"
#include "kernels/meta/gpu_workspace.h"
#include "tools/predict/machines.h"
#include "tools/predict/memory_limit.h"
#include "tools/predict/memory_report.h"
#include "tools/predict/rates_file.h"
#include "tools/predict/unit_table.h"
#include "tools/train/model_shape.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kShownBlocks = 8;

size_t gaps_of(const MetaRun& run) {
  const MemoryUsage usage = run.usage();
  return rest_of(run.device_needed(), usage.total_peak + usage.scratch);
}

// On the host or in a file, where blocks stay as they are: all of it is there at any time.
std::string format_place(const char* place, const MemoryUsage& usage) {
  std::string out;
  const auto row = [&](std::string_view name, size_t bytes) {
    if (bytes == 0) return;
    out += fmt::format("  {:<24}{:>12}{:>15}\n", fmt::format("{}: {}", place, name), mib(bytes),
                       mib(bytes));
  };
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    row(name_of(static_cast<MemoryCategory>(i)), usage.peak[i]);
  }
  row("kernel scratch", usage.scratch);
  return out;
}

// Of the rank that takes most.
size_t on_device(const PlannedRun& planned) {
  return planned.bytes - (planned.run->needed() - planned.run->device_needed());
}

std::string format_categories(const MetaRun& run) {
  const MemoryUsage usage = run.usage();
  std::string out =
      fmt::format("{:<26}{:>12}{:>15}\n", "memory per rank (MiB)", "peak", "at the most");
  const auto row = [&](std::string_view name, size_t peak, size_t then) {
    if (peak > 0) {
      out += fmt::format("  {:<24}{:>12}{:>15}\n", name, mib(peak), mib(then));
    }
  };
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    row(name_of(static_cast<MemoryCategory>(i)), usage.peak[i], run.moment().memory[i]);
  }
  row("kernel scratch", usage.scratch, usage.scratch);
  row(rest_name(run.on_gpu()), gaps_of(run), gaps_of(run));
  out += format_place("host", run.host_usage()) + format_place("file", run.file_usage());
  const size_t device = run.device_needed(), host = run.host_needed();
  return out + fmt::format("  {:<24}{:>12}\n", "in all", mib(device + host)) +
         fmt::format("  where: device {}, host {}, file {}\n", mib(device), mib(host),
                     mib(run.file_needed())) +
         fmt::format("  the most: in {}{}\n", run.moment().phase,
                     run.moment().unit.empty() ? "" : " of " + run.moment().unit);
}

std::string format_blocks(const std::vector<meta::LoggedBlock>& blocks) {
  std::string out = "largest tensors then (MiB)\n";
  for (size_t i = 0; i < std::min(kShownBlocks, blocks.size()); ++i) {
    const meta::LoggedBlock& block = blocks[i];
    out += fmt::format(
        "  {:>12}  {:<20} {:<16} {}\n", mib(block.bytes), name_of(block.category),
        block.unit.empty() ? "-" : block.unit,
        block.kernel.empty() || block.kernel == "fill_zero" ? "" : "for " + block.kernel);
  }
  return out;
}

std::string format_padding(MetaRun& run) {
  int64_t parameters = 0, held = 0;
  const comm::FullySharded& sharded = run.session().sharded();
  const comm::GroupSizes groups = comm::group_sizes(sharded.options(), run.world().size());
  for (const UnitRow& unit : unit_rows(sharded)) {
    parameters += unit.parameters;
    held += unit.shard_numel() * groups.shards;
  }
  return fmt::format("padding: {} of the {} elements of all shards ({:.2f} %)\n", held - parameters,
                     held,
                     100.0 * static_cast<double>(held - parameters) /
                         static_cast<double>(std::max<int64_t>(held, 1)));
}

std::string step_text(const MemoryView& view, const Alternative& each) {
  return view.timed ? duration_text(1e-3 * each.ms) : "-";
}

std::string format_alternatives(const MemoryView& view) {
  const MetaRun& run = *view.planned.run;
  const Alternative now = {.bytes = view.planned.bytes,
                           .ms = run.step_ms(),
                           .host = run.host_needed(),
                           .file = run.file_needed()};
  const auto offloads = [](const Alternative& each) { return each.host + each.file > 0; };
  const bool elsewhere =
      offloads(now) || std::any_of(view.alternatives.begin(), view.alternatives.end(), offloads);
  std::string out;
  const auto row = [&](const std::string& what, const std::string& device, const std::string& host,
                       const std::string& file, const std::string& step, std::string_view keeps) {
    out += fmt::format("{:<50}{:>12}", what, device);
    if (elsewhere) out += fmt::format("{:>12}{:>12}", host, file);
    out += fmt::format("{:>12}{}{}\n", step, keeps.empty() ? "" : "  ", keeps);
  };
  const auto add = [&](const std::string& what, const Alternative& each, std::string_view keeps) {
    row("  " + what, mib(each.bytes), each.host > 0 ? mib(each.host) : "-",
        each.file > 0 ? mib(each.file) : "-", step_text(view, each), keeps);
  };
  row("if one thing were changed", "MiB", "of the host", "in a file", "a step",
      "what stays of the results");
  bool said = false;
  const auto as_it_is = [&] {
    add("as it is", now, "");
    said = true;
  };
  for (const Alternative& each : view.alternatives) {
    if (!said && each.bytes >= view.planned.bytes) as_it_is();
    add(each.change.text(), each, describe(each.change.keeps));
  }
  if (!said) as_it_is();
  out += view.timed ? "time: predicted, on " + view.machine + "; to compare with each other\n"
                    : "time: of " + view.machine +
                          " the memory alone is known; --rates NAME takes the times of a machine\n";
  return view.machine_note.empty() ? out : out + "note: " + view.machine_note + "\n";
}

// Where cuDNN takes all that it may.
bool fits_barely(const DeviceMemory& device, size_t needed) {
  return needed <= device.left() && needed + device.cudnn > device.left();
}

std::string format_verdict(const DeviceMemory& device, size_t needed) {
  std::string of = fmt::format("{} of {}", byte_size_text(device.bytes), device.name);
  if (device.context > 0) {
    of += fmt::format(", less {} for CUDA's context", byte_size_text(device.context));
  }
  if (device.nccl > 0) of += fmt::format(" and {} for NCCL", byte_size_text(device.nccl));
  if (!device.gpu.empty()) of += " (assumed)";
  const size_t left = device.left();
  if (left < needed) {
    return fmt::format("does not fit: {}; {} are missing\n", of, byte_size_text(needed - left));
  }
  const std::string cudnn = device.cudnn == 0
                                ? ""
                                : fmt::format(", of which cuDNN's attention may take {} (assumed)",
                                              byte_size_text(device.cudnn));
  return fmt::format("{}: {}; {} stay free{}\n",
                     fits_barely(device, needed) ? "fits barely" : "fits", of,
                     byte_size_text(left - needed), cudnn);
}

// What is offloaded, of all ranks that share a host.
std::string format_node(const MemoryView& view) {
  const auto ranks = static_cast<size_t>(view.ranks_of_node);
  const size_t host = ranks * view.planned.run->host_needed();
  const size_t file = ranks * view.planned.run->file_needed();
  if (host + file == 0) return "";
  return fmt::format("a node of {} rank{} must have {} of memory for what is offloaded{}\n", ranks,
                     ranks == 1 ? "" : "s", byte_size_text(host),
                     file == 0 ? "" : fmt::format(", and {} of its disk", byte_size_text(file)));
}

std::string format_fitting(const MemoryView& view) {
  const FittingChanges& found = *view.fitting;
  std::string out;
  for (const Alternative& each : found.fitting) {
    out +=
        fmt::format("fits with {}: {}, {} a step ({})\n", each.change.flags(),
                    byte_size_text(each.bytes), step_text(view, each), describe(each.change.keeps));
  }
  if (!out.empty()) return out;
  const MemoryChange& least = found.least.change;
  return fmt::format("no setting was found that fits; the one that needs least: {}{}\n",
                     byte_size_text(found.least.bytes),
                     least.overrides.empty() ? " as it is" : " with " + least.flags());
}

}  // namespace

DeviceMemory gpu_memory(const std::string& name, int ranks) {
  const std::string wrong = wrong_machine(name);
  FSDP_CHECK(wrong.empty(), "gpu: {}", wrong);
  const Rates rates = machine_rates(name);
  FSDP_CHECK(rates.device_gib > 0, "gpu: {}: expected a GPU", name);
  const size_t bytes = static_cast<size_t>(rates.device_gib * 1024) * kMiB;
  return {.name = rates.memory_only ? "a GPU" : machine_named(name),
          .bytes = bytes,
          .gpu = machine_named(name),
          .context = static_cast<size_t>(rates.context_mib) * kMiB,
          .nccl = ranks > 1 ? kNcclBytes : 0,
          .cudnn = meta::attention_limit(bytes)};
}

DeviceMemory gpu_of_size(size_t bytes, int ranks) {
  DeviceMemory out = gpu_memory(kUsualMachine, ranks);
  out.name = "a GPU";
  out.bytes = bytes;
  out.cudnn = meta::attention_limit(bytes);
  return out;
}

MemoryView view_memory(const config::TrainConfig& config, const MemoryQuestion& question) {
  BackendOptions backend = {.cpu = {.threads = question.threads},
                            .meta = meta::MetaOptions{.keeps_blocks = true}};
  std::optional<DeviceMemory> device = question.device;
  if (device && !device->gpu.empty()) {
    backend.cuda.emplace();
    if (!config.train.attention_deterministic) {  // then what cuDNN takes is counted
      backend.cuda->attention_workspace = std::exchange(device->cudnn, 0);
    }
  }
  const bool of_device = question.rates.empty() && backend.cuda;
  const auto rates = call_rates({.rates = of_device ? question.device->gpu : question.rates});
  const int ranks = question.ranks;
  const RunPlan plan(config, vocabulary_of(config), data_of(config, ranks), ranks, backend, rates);
  MemoryView view = {.planned = plan.run()};
  view.machine = rates->rates().machine;
  view.timed = !rates->rates().memory_only;
  view.machine_note = rates->rates().note;
  view.ranks_of_node = std::min(ranks, rates->rates().ranks_per_node);
  view.model = describe_run(view.planned.run->session().model().config(),
                            config.fsdp.options.strategy, ranks) +
               (backend.cuda ? ", a GPU each"
                             : fmt::format(", {} thread{} of the CPU each", question.threads,
                                           question.threads == 1 ? "" : "s"));
  view.alternatives = plan.alternatives();
  view.device = device;
  if (view.device && view.planned.bytes > view.device->left()) {
    view.fitting = plan.changes_that_fit(view.device->left(), 1, Cheapest::kFastest);
  }
  return view;
}

std::string format_memory_view(const MemoryView& view) {
  std::string out =
      fmt::format("{}\n{}{}\n{}\n{}", view.model, format_categories(*view.planned.run),
                  format_padding(*view.planned.run), format_blocks(view.planned.run->blocks_then()),
                  format_alternatives(view));
  if (view.device) out += "\n" + format_verdict(*view.device, view.planned.bytes);
  if (view.device) out += format_node(view);
  if (view.fitting) out += format_fitting(view);
  return out;
}

Json memory_json(const MemoryView& view) {
  const MetaRun& run = *view.planned.run;
  const MemoryUsage usage = run.usage();
  Json by_category, alternatives = Json(Json::Array{});
  for (size_t i = 0; i < kMemoryCategories; ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    if (category == MemoryCategory::kTransportStaging) continue;
    by_category[std::string(name_of(category))] = usage.peak[i];
  }
  by_category["kernel scratch"] = usage.scratch;
  by_category[rest_name(run.on_gpu())] = gaps_of(run);
  for (const auto& [place, there] :
       {std::pair{"host", run.host_usage()}, std::pair{"file", run.file_usage()}}) {
    for (size_t i = 0; i < kMemoryCategories; ++i) {
      if (there.peak[i] == 0) continue;
      const auto category = static_cast<MemoryCategory>(i);
      by_category[fmt::format("{}: {}", place, name_of(category))] = there.peak[i];
    }
  }
  for (const Alternative& each : view.alternatives) {
    alternatives.push_back({{"change", each.change.text()},
                            {"bytes", each.bytes},
                            {"host", each.host},
                            {"file", each.file},
                            {"ms", view.timed ? Json(each.ms) : Json()},
                            {"keeps", describe(each.change.keeps)}});
  }
  Json out = {{"peak",
               {{"total", on_device(view.planned) + run.host_needed()},
                {"by_category", by_category},
                {"by_place",
                 {{"device", on_device(view.planned)},
                  {"host", run.host_needed()},
                  {"file", run.file_needed()}}}}},
              {"moment", {{"phase", run.moment().phase}, {"unit", run.moment().unit}}},
              {"machine", view.machine},
              {"alternatives", alternatives}};
  if (view.device) {
    const DeviceMemory& device = *view.device;
    out["verdict"] = {{"device", device.name},
                      {"bytes", device.bytes},
                      {"context", device.context},
                      {"nccl", device.nccl},
                      {"cudnn", device.cudnn},
                      {"ranks_of_node", view.ranks_of_node},
                      {"barely", fits_barely(device, view.planned.bytes)},
                      {"fits", view.planned.bytes <= device.left()}};
  }
  if (!view.fitting) return out;
  Json fits(Json::Array{});
  for (const Alternative& each : view.fitting->fitting) {
    fits.push_back({{"change", each.change.text()},
                    {"bytes", each.bytes},
                    {"ms", view.timed ? Json(each.ms) : Json()}});
  }
  out["fits_with"] = fits;
  return out;
}

}  // namespace fsdp::tools
