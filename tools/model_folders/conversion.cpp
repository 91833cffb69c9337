// Contract: tools/model_folders/conversion.h.
#include "tools/model_folders/conversion.h"

#include <algorithm>

#include "comm/exchange.h"
#include "comm/fsdp/plan.h"
#include "core/flat_layout.h"
#include "core/io/file.h"
#include "core/io/shard_index.h"
#include "kernels/cpu/cpu_backend.h"
#include "models/adapter_folder.h"
#include "models/causal_lm.h"
#include "models/names.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/data/tokenizer/vocabulary_files.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/companion_files.h"
#include "tools/model_folders/load_model.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

// Elements [first, first + its numel) of a parameter, as a tensor of a new file.
struct Part {
  SafetensorsSpec spec;
  const Parameter* parameter;
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

const ConversionOptions& checked(const ConversionOptions& options) {
  FSDP_CHECK(!models::is_adapter_folder(options.from) || fs::exists(options.from / "config.json"),
             "{}: a LoRA adapter, no model: fsdp merge adds it to its model",
             options.from.string());
  return options;
}

// The model of the source: names, shapes and units, and values as they are asked for.
class Source {
 public:
  // `compared`: this rank's part of what the ranks check together.
  Source(const ConversionOptions& options, models::ComparedPart compared)
      : options_(checked(options)),
        source_{options.from, options.adapter},
        config_(source_.config()),
        folder_(SafetensorsFolder::open(options.from)),
        model_(config_, backend_, DType::kF32, 1),
        names_(models::names_in_folder(folder_, config_, model_.parameters(), compared,
                                       options.stripped)),
        fill_(source_.values(model_, models::from_folder(folder_, names_))) {}

  const models::ModelConfig& config() const { return config_; }

  Plan plan() { return options_.shards > 0 ? plan_shards() : plan_files(); }

  // Elements [first, first + count).
  Tensor values(const Parameter& p, int64_t first, int64_t count, DType dtype) {
    Tensor out = Tensor::empty(backend_, Shape{count}, dtype, MemoryCategory::kWorkspace);
    fill_(p, first, out);
    return out;
  }
  bool keeps_values(const Part& part) const {
    return source_.adapter.empty() &&
           part.spec.dtype == folder_.tensor(names_.at(part.parameter->name())).dtype;
  }

  ConversionSummary summary(const Plan& plan) const {
    ConversionSummary out = {.family = config_.family,
                             .tensors = names_.size(),
                             .files = plan.files.size(),
                             .warnings = warnings_about(options_.from)};
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
    std::map<std::string, const Parameter*> parameter_of;
    for (const Parameter* p : model_.parameters()) {
      tensors.push_back({name_of(*p), dtype_of(*p), p->shape().extents()});
      parameter_of[name_of(*p)] = p;
    }
    Plan plan;
    plan.weights = split_into_files(tensors, options_.max_file_bytes);
    for (const WeightsFile& file : plan.weights) {
      PartsFile out = {.name = file.name, .parts = {}};
      for (const SafetensorsSpec& t : file.tensors) out.parts.push_back({t, parameter_of[t.name]});
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
          const Parameter& p = *layout.parameters()[static_cast<size_t>(piece.parameter)].parameter;
          add_piece(plan, i, p, piece);
        }
      }
    }
    return plan;
  }

  void add_piece(Plan& plan, size_t file, const Parameter& p, const ShardPiece& piece) const {
    const std::string name = name_of(p);
    plan.files[file].parts.push_back(
        {{name, dtype_of(p), {piece.count}}, &p, piece.parameter_begin});
    ShardIndex::Entry& entry = plan.index.tensors[name];
    entry.dtype = safetensors_name(dtype_of(p));
    entry.shape = p.shape().extents();
    entry.pieces.push_back({file, piece.parameter_begin, piece.count});
  }

  const ConversionOptions& options_;
  ModelSource source_;
  models::ModelConfig config_;
  SafetensorsFolder folder_;
  cpu::CpuBackend backend_;
  models::CausalLM model_;                    // its parameters are shapes only
  std::map<std::string, std::string> names_;  // our name -> the folder's
  models::FillFunction fill_;
};

using Overflows = std::map<std::string, int64_t>;  // finite values that the dtype made infinite

void write_parts(Source& source, const fs::path& folder, const PartsFile& file,
                 Overflows& overflows) {
  constexpr int64_t kStretch = int64_t{1} << 21;  // elements
  std::vector<SafetensorsSpec> specs;
  for (const Part& part : file.parts) specs.push_back(part.spec);
  SafetensorsWriter writer(folder / file.name, specs);
  std::vector<std::byte> buffer;
  for (const Part& part : file.parts) {
    const int64_t numel = Shape(part.spec.shape).numel();
    for (int64_t done = 0; done < numel; done += kStretch) {
      stop_where_interrupted();
      const int64_t first = part.first + done, count = std::min(kStretch, numel - done);
      const Tensor values = source.values(*part.parameter, first, count, part.spec.dtype);
      buffer.resize(values.bytes());
      values.read(buffer.data());
      writer.write(part.spec.name, buffer.data(), buffer.size());
      if (source.keeps_values(part)) continue;
      const Tensor exact = source.values(*part.parameter, first, count, DType::kF64);
      const int64_t more = count_overflows(exact.to_doubles(), values.to_doubles());
      if (more > 0) overflows[part.spec.name] += more;
    }
  }
  writer.finish();
}

// An adapter was trained with its tokenizer, so the model has its tokens; without one it may have
// been trained with another than its base's. Of a folder that is converted only the end counts, if
// a key says it: a model that ends a text there stays as it is.
std::vector<std::string> notes_on_tokens(const fs::path& folder, bool merged, bool trained) {
  if (data::tokenizer_file_in(folder).empty()) return {};
  data::NamedTokens tokens;
  std::vector<int64_t> ends;  // of the model
  try {
    tokens = data::make_tokenizer(folder.string())->named();
    if (!trained) ends = ModelSource{folder, {}}.end_tokens();
  } catch (const SystemError&) {
    throw;
  } catch (const Error&) {  // one that this program cannot read is copied all the same
    if (!trained) return {};
    return {"the adapter's tokenizer cannot be read: the token that ends a text is not written"};
  }
  const bool written = trained || (!merged && tokens.end_is_said);
  if (!trained) tokens = {.end = tokens.end};
  if (written && tokens.end && std::ranges::count(ends, *tokens.end) > 0) return {};
  std::vector<std::string> notes =
      written ? align_tokens(folder, tokens) : token_differences(folder, tokens);
  for (std::string& line : notes) {
    line += trained   ? ": the adapter's tokenizer's is written"
            : written ? ": the tokenizer's is written"
                      : ": the tokenizer's is another one than the model's; both stay";
  }
  return notes;
}

std::vector<std::string> write_what_belongs_to_weights(const fs::path& folder,
                                                       const ConversionOptions& options,
                                                       const models::ModelConfig& config,
                                                       const Plan& plan) {
  if (options.shards > 0) {
    write_shard_index(folder / kShardIndexName, plan.index);
  } else {
    write_weights_index(folder, plan.weights);
  }
  write_config_files(folder, config, options.dtype ? models::torch_name(*options.dtype) : "",
                     options.from);
  copy_companion_files(options.from, folder);
  const bool of_adapter =
      !options.adapter.empty() && !data::tokenizer_file_in(options.adapter).empty();
  data::copy_tokenizer_folder(of_adapter ? options.adapter : options.from, folder);
  return notes_on_tokens(folder, !options.adapter.empty(), of_adapter);
}

// Of all ranks' files, one line a tensor. Collective.
std::vector<std::string> describe(comm::Communicator& world, const Overflows& own) {
  std::vector<std::string> own_names;
  std::vector<int64_t> own_counts;
  for (const auto& [name, count] : own) {
    own_names.push_back(name);
    own_counts.push_back(count);
  }
  const auto names = comm::exchange_texts(world, own_names);
  const auto counts = comm::exchange_lists(world, own_counts);
  Overflows all;
  for (size_t rank = 0; rank < names.size(); ++rank) {
    for (size_t i = 0; i < names[rank].size(); ++i) all[names[rank][i]] += counts[rank][i];
  }
  std::vector<std::string> lines;
  for (const auto& [name, count] : all) lines.push_back(overflow_warning(name, count));
  return lines;
}

}  // namespace

ConversionSummary convert_folder(comm::Communicator& world, const ConversionOptions& options) {
  std::optional<Source> source;
  Plan plan;
  std::optional<AtomicFolder> folder;  // of rank 0
  agree(world, [&] {
    source.emplace(options, models::ComparedPart{world.rank(), world.size()});
    plan = source->plan();
    if (world.rank() == 0) folder.emplace(options.to);
  });
  const fs::path place = comm::from_first_rank(world, folder ? folder->temporary().string() : "");
  Overflows overflows;
  std::vector<std::string> notes;
  agree(world, [&] {
    const auto ranks = static_cast<size_t>(world.size());
    for (size_t i = static_cast<size_t>(world.rank()); i < plan.files.size(); i += ranks) {
      write_parts(*source, place, plan.files[i], overflows);
    }
    if (folder) notes = write_what_belongs_to_weights(place, options, source->config(), plan);
  });
  agree(world, [&] {
    if (folder) folder->commit();
  });
  ConversionSummary out = source->summary(plan);
  out.warnings.insert(out.warnings.end(), notes.begin(), notes.end());
  for (std::string& line : describe(world, overflows)) out.warnings.push_back(std::move(line));
  return out;
}

}  // namespace fsdp::tools
