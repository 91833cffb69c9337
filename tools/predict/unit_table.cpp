// The plan's numbers and the tables.
#include "tools/predict/unit_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace fsdp::tools {
namespace {

// Of the masters; a frozen parameter is its own.
int64_t shard_bytes(const UnitRow& unit) {
  const DType param_dtype = unit.policy.param_dtype;
  int64_t bytes = 0;
  for (const SegmentExtent& s : unit.segments) {
    bytes += bytes_of(s.shard_numel, s.trainable ? unit.policy.master_dtype : param_dtype);
  }
  return bytes;
}

struct AlikeUnits {
  std::string name;  // "blocks.0 .. blocks.3"
  const UnitRow* unit;
  size_t count;
};

bool alike(const UnitRow& a, const UnitRow& b) {
  return a.shapes == b.shapes && a.segments == b.segments && a.policy == b.policy;
}

// Neighbours that are alike, together.
std::vector<AlikeUnits> alike_units(const std::vector<UnitRow>& units) {
  std::vector<AlikeUnits> out;
  for (const UnitRow& unit : units) {
    if (!out.empty() && alike(*out.back().unit, unit)) {
      ++out.back().count;
      out.back().name = fmt::format("{} .. {}", out.back().unit->name, unit.name);
    } else {
      out.push_back({unit.name, &unit, 1});
    }
  }
  return out;
}

}  // namespace

int64_t bytes_of(int64_t numel, DType dtype) {
  return numel * static_cast<int64_t>(size_of(dtype));
}

int64_t UnitRow::shard_numel() const {
  int64_t sum = 0;
  for (const SegmentExtent& s : segments) sum += s.shard_numel;
  return sum;
}

std::vector<UnitRow> unit_rows(const comm::FullySharded& sharded) {
  std::vector<UnitRow> rows;
  for (const auto& unit : sharded.units()) {
    UnitRow row = {.name = unit->name,
                   .depth = unit->depth,
                   .awaits_backward = unit->awaits_backward,
                   .policy = unit->policy};
    for (const comm::ParameterSegment& segment : unit->parameters.segments()) {
      const FlatLayout& layout = segment.layout;
      for (const FlatParameter& p : layout.parameters()) row.shapes.push_back(p.parameter->shape());
      row.parameters += layout.parameter_numel();
      row.segments.push_back({layout.shard_numel(),
                              static_cast<int64_t>(layout.parameters().size()), segment.trainable});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// ---------------------------------------------------------------------------- Tables

namespace {

// What a unit does otherwise than all: "parameters in f32, kept after forward".
std::string differences(const comm::UnitPolicy& unit, const comm::UnitPolicy& all) {
  std::vector<std::string> out;
  if (unit.param_dtype != all.param_dtype) {
    out.push_back(fmt::format("parameters in {}", name_of(unit.param_dtype)));
  }
  if (unit.reduce_dtype != all.reduce_dtype) {
    out.push_back(fmt::format("reduced in {}", name_of(unit.reduce_dtype)));
  }
  const bool kept = unit.keeps_parameters();
  if (kept != all.keeps_parameters()) {
    out.push_back(kept ? "kept after forward" : "given back after forward");
  }
  if (unit.inner_group != all.inner_group && !kept) {
    out.push_back(unit.inner_group > 0 ? fmt::format("kept by groups of {}", unit.inner_group)
                                       : "kept by no group");
  }
  if (unit.keeps_gradients() != all.keeps_gradients()) {
    out.push_back(unit.keeps_gradients() ? "gradients whole" : "gradients sharded");
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace

std::string format_units(const std::vector<UnitRow>& units, const comm::FsdpOptions& options,
                         comm::GroupSizes groups) {
  const int shards = groups.shards;
  std::string out =
      fmt::format("{:<26} {:>7} {:>13} {:>9} {:>15} {:>11} {:>13}\n", "units", "tensors",
                  "parameters", "padding", "per rank", "shard MiB", "gathered MiB");
  struct Sums {
    size_t tensors = 0;
    int64_t parameters = 0, shard = 0, shard_bytes = 0, gathered_bytes = 0;
  } all;
  const auto line = [&](const std::string& name, const Sums& s, const std::string& differs) {
    out += fmt::format("  {:<24} {:>7} {:>13} {:>9} {:>15} {:>11} {:>13}{}{}\n", name, s.tensors,
                       s.parameters, s.shard * shards - s.parameters, s.shard, mib(s.shard_bytes),
                       mib(s.gathered_bytes), differs.empty() ? "" : "  ", differs);
  };
  for (const auto& [name, unit, count] : alike_units(units)) {
    const int64_t shard = unit->shard_numel();
    const Sums one = {unit->shapes.size(), unit->parameters, shard, shard_bytes(*unit),
                      bytes_of(shard * shards, unit->policy.param_dtype)};
    line(name, one,
         differences(unit->policy, comm::unit_policy(options, groups, unit->awaits_backward)));
    const auto times = static_cast<int64_t>(count);
    all.tensors += count * one.tensors;
    all.parameters += times * one.parameters;
    all.shard += times * one.shard;
    all.shard_bytes += times * one.shard_bytes;
    all.gathered_bytes += times * one.gathered_bytes;
  }
  line("all", all, "");
  return out;
}

std::string format_layout(const std::vector<UnitRow>& units, PyTorchLayout layout, int shards,
                          DType dtype) {
  const bool first = layout == PyTorchLayout::kFsdp1;
  const auto row = [](const std::string& name, const auto& a, const auto& b, const auto& c) {
    return fmt::format("  {:<24} {:>15} {:>15} {:>17}\n", name, a, b, c);
  };
  std::string out = fmt::format("elements per rank in PyTorch FSDP{}\n", first ? 1 : 2);
  out += first ? row("", "here", "flat", "use_orig_params") : row("", "here", "padded", "held");
  const auto width = static_cast<int64_t>(size_of(dtype));
  for (const auto& [name, unit, count] : alike_units(units)) {
    if (first) {
      out += row(name, unit->shard_numel(), fsdp1_shard(unit->shapes, shards),
                 fsdp1_original_shard(unit->shapes, shards, width));
      continue;
    }
    const Fsdp2Shards theirs = fsdp2_shards(unit->shapes, shards);
    const auto [least, most] = std::minmax_element(theirs.held.begin(), theirs.held.end());
    out += row(name, unit->shard_numel(), theirs.padded, fmt::format("{} to {}", *least, *most));
  }
  return out;
}

// Rounded before the unit is chosen, so that 999.9 us are 1.00 ms.
std::string duration_text(double seconds) {
  if (!(seconds > 0)) return "0 s";
  const double digit = std::pow(10, std::floor(std::log10(seconds)) - 2);  // the last that is shown
  const double rounded = std::round(seconds / digit) * digit * (1 + 1e-12);
  const bool whole = rounded >= 1, thousandth = rounded >= 1e-3;
  const double number = rounded * (whole ? 1 : thousandth ? 1e3 : 1e6);
  const int decimals = number >= 100 ? 0 : number >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}", number, decimals, whole ? "s" : thousandth ? "ms" : "us");
}
namespace {

int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

int64_t fsdp1_shard(const std::vector<Shape>& parameters, int ranks) {
  int64_t total = 0;
  for (const Shape& shape : parameters) total += shape.numel();
  return divide_up(total, ranks);
}

int64_t fsdp1_original_shard(const std::vector<Shape>& parameters, int ranks,
                             int64_t element_bytes) {
  const int64_t alignment = 16 / element_bytes;
  int64_t end = 0;
  for (const Shape& shape : parameters) {
    end = divide_up(end, alignment) * alignment + shape.numel();
  }
  return divide_up(end, ranks);
}

Fsdp2Shards fsdp2_shards(const std::vector<Shape>& parameters, int ranks) {
  Fsdp2Shards shards;
  shards.held.assign(static_cast<size_t>(ranks), 0);
  for (const Shape& shape : parameters) {
    const int64_t rows = shape[0], row = shape.numel() / rows;
    const int64_t rows_per_rank = divide_up(rows, ranks);
    shards.padded += rows_per_rank * row;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t left = std::max<int64_t>(rows - rank * rows_per_rank, 0);
      shards.held[static_cast<size_t>(rank)] += std::min(left, rows_per_rank) * row;
    }
  }
  return shards;
}

}  // namespace fsdp::tools
