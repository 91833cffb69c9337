// Contract: tools/runtime/conversion.h.
#include "tools/runtime/conversion.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "comm/fsdp/plan.h"
#include "core/flat_layout.h"
#include "core/io/json.h"
#include "core/io/shard_index.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/causal_lm.h"
#include "models/names.h"
#include "models/weights.h"
#include "tools/data/tokenizer.h"
#include "tools/runtime/launch.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// Elements [first, first + its numel) of a tensor of the source, as a tensor of a new file.
struct Part {
  SafetensorsSpec spec;
  std::string source;
  int64_t first = 0;
};
struct PartsFile {
  std::string name;
  std::vector<Part> parts;
};

struct Plan {
  std::vector<PartsFile> files;
  std::vector<WeightsFile> weights;  // of a Hugging Face folder
  ShardIndex index;                  // of a sharded checkpoint
};

// The model of the source folder: names, shapes and units, no values.
class Source {
 public:
  explicit Source(const ConversionOptions& options)
      : options_(options),
        config_(models::read_config((options.from / "config.json").string())),
        folder_(SafetensorsFolder::open(options.from)),
        model_(config_, backend_, DType::kF32, 1),
        names_(models::names_in_folder(folder_, config_, model_.parameters())) {}

  const models::ModelConfig& config() const { return config_; }
  const SafetensorsFolder& folder() const { return folder_; }

  Plan plan() { return options_.shards > 0 ? plan_shards() : plan_files(); }

  ConversionSummary summary(const Plan& plan) const {
    ConversionSummary out = {.family = config_.family,
                             .tensors = names_.size(),
                             .files = plan.files.size(),
                             .warnings = folder_.warnings()};
    for (const Parameter* p : model_.parameters()) {
      out.bytes += p->numel() * static_cast<int64_t>(size_of(dtype_of(*p)));
    }
    return out;
  }

 private:
  std::string name_of(const Parameter& p) const {
    return models::hugging_face_name(config_, p.name());
  }
  DType dtype_of(const Parameter& p) const {
    return options_.dtype.value_or(*folder_.tensor(names_.at(p.name())).dtype);
  }

  Plan plan_files() const {
    std::vector<SafetensorsSpec> tensors;
    std::map<std::string, std::string> source_of;
    for (const Parameter* p : model_.parameters()) {
      tensors.push_back({name_of(*p), dtype_of(*p), p->shape().extents()});
      source_of[name_of(*p)] = names_.at(p->name());
    }
    Plan plan;
    plan.weights = split_into_files(tensors, options_.max_file_bytes);
    for (const WeightsFile& file : plan.weights) {
      PartsFile out = {.name = file.name, .parts = {}};
      for (const SafetensorsSpec& t : file.tensors) out.parts.push_back({t, source_of[t.name], 0});
      plan.files.push_back(std::move(out));
    }
    return plan;
  }

  Plan plan_shards() {
    Plan plan;
    const auto shards = static_cast<size_t>(options_.shards);
    for (size_t i = 0; i < shards; ++i) {
      plan.files.push_back({.name = numbered_file("shard", i, shards), .parts = {}});
      plan.index.files.push_back(plan.files[i].name);
    }
    for (const comm::PlannedUnit& unit :
         comm::plan_units(model_, comm::wrap_classes({config_.block_class}))) {
      const FlatLayout layout(unit.parameters, options_.shards);
      for (size_t i = 0; i < shards; ++i) {
        for (const ShardPiece& piece : layout.pieces(static_cast<int>(i))) {
          const Parameter& p = *unit.parameters[static_cast<size_t>(piece.parameter)];
          add_piece(plan, i, p, piece);
        }
      }
    }
    return plan;
  }

  void add_piece(Plan& plan, size_t file, const Parameter& p, const ShardPiece& piece) const {
    const std::string name = name_of(p);
    plan.files[file].parts.push_back(
        {{name, dtype_of(p), {piece.count}}, names_.at(p.name()), piece.parameter_begin});
    ShardIndex::Entry& entry = plan.index.tensors[name];
    entry.dtype = safetensors_name(dtype_of(p));
    entry.shape = p.shape().extents();
    entry.pieces.push_back({file, piece.parameter_begin, piece.count});
  }

  const ConversionOptions& options_;
  models::ModelConfig config_;
  SafetensorsFolder folder_;
  cpu::CpuBackend backend_;  // of the rotary tables, for one position
  models::CausalLM model_;
  std::map<std::string, std::string> names_;  // our name -> the source's
};

using Overflows = std::map<std::string, int64_t>;  // finite values that the dtype made infinite

int64_t count_overflows(const std::vector<double>& exact, DType dtype, const std::byte* converted) {
  int64_t out = 0;
  dispatch_floating(dtype, "count_overflows", [&]<typename T>(TypeTag<T>) {
    for (size_t i = 0; i < exact.size(); ++i) {
      T value;
      std::memcpy(&value, converted + i * sizeof(T), sizeof(T));
      out += std::isfinite(exact[i]) && !std::isfinite(static_cast<double>(value));
    }
  });
  return out;
}

void write_parts(const SafetensorsFolder& source, const fs::path& folder, const PartsFile& file,
                 Overflows& overflows) {
  constexpr int64_t kStretch = int64_t{1} << 21;  // elements
  std::vector<SafetensorsSpec> specs;
  for (const Part& part : file.parts) specs.push_back(part.spec);
  SafetensorsWriter writer(folder / file.name, specs);
  std::vector<std::byte> buffer;
  std::vector<double> exact;
  for (const Part& part : file.parts) {
    const int64_t numel = Shape(part.spec.shape).numel();
    const bool converts = source.tensor(part.source).dtype != part.spec.dtype;
    for (int64_t done = 0; done < numel; done += kStretch) {
      const int64_t count = std::min(kStretch, numel - done);
      buffer.resize(static_cast<size_t>(count) * size_of(part.spec.dtype));
      source.read_elements(part.source, part.first + done, count, part.spec.dtype, buffer.data());
      writer.write(part.spec.name, buffer.data(), buffer.size());
      if (!converts) continue;
      exact.resize(static_cast<size_t>(count));
      source.read_elements(part.source, part.first + done, count, DType::kF64, exact.data());
      const int64_t more = count_overflows(exact, part.spec.dtype, buffer.data());
      if (more > 0) overflows[part.spec.name] += more;
    }
  }
  writer.finish();
}

void write_what_belongs_to_weights(const fs::path& folder, const ConversionOptions& options,
                                   const models::ModelConfig& config, const Plan& plan) {
  if (options.shards > 0) {
    write_shard_index(folder / kShardIndexName, plan.index);
  } else {
    write_weights_index(folder, plan.weights);
  }
  write_config_files(folder, config, options.dtype ? models::torch_name(*options.dtype) : "",
                     options.from);
  data::copy_tokenizer_folder(options.from, folder);
}

// Of all ranks' files, one line a tensor. Collective.
std::vector<std::string> describe(comm::Communicator& world, const Overflows& own) {
  Overflows all;
  for (const std::string& text : world.exchange(Json(own).dump())) {
    for (const auto& [name, count] : parse_json(text, "overflows").get<Overflows>()) {
      all[name] += count;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [name, count] : all) {
    lines.push_back(fmt::format("{}: {} value{} beyond the new dtype became infinite", name, count,
                                count == 1 ? "" : "s"));
  }
  return lines;
}

}  // namespace

ConversionSummary convert_folder(comm::Communicator& world, const ConversionOptions& options) {
  std::optional<Source> source;
  Plan plan;
  std::optional<AtomicFolder> folder;  // of rank 0
  agree(world, [&] {
    source.emplace(options);
    plan = source->plan();
    if (world.rank() == 0) folder.emplace(options.to);
  });
  const fs::path place = world.exchange(folder ? folder->temporary().string() : "")[0];
  Overflows overflows;
  agree(world, [&] {
    const auto ranks = static_cast<size_t>(world.size());
    for (size_t i = static_cast<size_t>(world.rank()); i < plan.files.size(); i += ranks) {
      write_parts(source->folder(), place, plan.files[i], overflows);
    }
    if (folder) write_what_belongs_to_weights(place, options, source->config(), plan);
  });
  agree(world, [&] {
    if (folder) folder->commit();
  });
  ConversionSummary out = source->summary(plan);
  for (std::string& line : describe(world, overflows)) out.warnings.push_back(std::move(line));
  return out;
}

}  // namespace fsdp::tools
