// Contract: tools/model_folders/checkpoint_model.h.
#include "tools/model_folders/checkpoint_model.h"

#include <algorithm>

#include "core/io/hub_files.h"
#include "core/io/json.h"
#include "core/io/safetensors.h"
#include "core/io/shard_index.h"
#include "core/shape.h"
#include "core/text/byte_size.h"
#include "models/adapter_folder.h"
#include "models/weights.h"
#include "tools/checkpoint/owned_state.h"
#include "tools/checkpoint/read_checkpoint.h"
#include "tools/checkpoint/resume.h"
#include "tools/data/chat/chat_files.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/model_folders/companion_files.h"
#include "tools/model_folders/load_model.h"
#include "tools/train/config_to_session.h"
#include "tools/train/train_data.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

bool is_model(const fs::path& folder) {
  return is_there(folder / "config.json") || models::is_adapter_folder(folder);
}

// What is not trained comes from the run's model; the rest is read from the checkpoint later.
void initialise_frozen(Session& session, const config::TrainConfig& config,
                       const models::ModelConfig& model) {
  const models::FillFunction base =
      config.model.path.empty()
          ? models::from_scratch(static_cast<uint64_t>(config.train.seed), model.padding_row)
          : models::from_folder(config.model.path, model, session.parameters());
  session.initialise([&](const Parameter& parameter, int64_t first, Tensor& values) {
    if (!parameter.trainable()) base(parameter, first, values);
  });
}

bool all_trained(Session& session) {
  const std::vector<Parameter*> all = session.parameters();
  return std::all_of(all.begin(), all.end(), [](const Parameter* p) { return p->trainable(); });
}

}  // namespace

bool is_checkpoint(const fs::path& folder) { return is_there(folder / kManifestName); }

fs::path model_in(const fs::path& given) {
  const fs::path folder = snapshot_in(given);
  if (models::is_adapter_folder(folder) || !fs::is_directory(folder)) return folder;
  if (is_model(folder)) {
    if (!has_weights(folder)) refuse_foreign(folder);
    return folder;
  }
  for (const char* name : {"model", "adapter"}) {
    if (is_there(folder / "run_args.json") && is_model(folder / name)) return folder / name;
  }
  FSDP_CHECK(!is_checkpoint(folder),
             "{}: a checkpoint of a run, no model: fsdp convert {} FOLDER makes one of it",
             folder.string(), folder.string());
  FSDP_CHECK(!is_there(folder / "run_args.json"),
             "{}: a run directory without a model: fsdp convert makes one of its checkpoints",
             folder.string());
  refuse_foreign(folder);
  return folder;
}

DType saved_dtype(const config::TrainConfig& config) {
  const config::TrainSection& c = config.train;
  const DType master = accumulation_dtype(c.dtype);
  // An adapter's tensors are no part of the folder.
  const bool of_folder = !c.save_dtype && !config.model.path.empty() && !lora_config(config);
  return of_folder ? dtype_of_weights(config.model.path).value_or(master)
                   : c.save_dtype.value_or(master);
}

namespace {

// All but weights and configuration of a folder that a run writes.
struct OtherFiles {
  fs::path model;  // that the run began with; empty: from scratch
  std::string tokenizer_name;
  const data::Tokenizer& tokenizer;
  bool of_ids;  // the run has read ids, and nobody says which tokenizer made them
  bool is_adapter;
  std::string chat_template;  // that the run named; "": what the tokenizer has
  std::function<void(const std::string& text)> note;

  void write(const fs::path& folder) const {
    if (!model.empty() && !is_adapter) copy_companion_files(model, folder);
    if (of_ids) {
      if (!model.empty()) data::copy_tokenizer_folder(model, folder);
      return;
    }
    data::copy_tokenizer_files(tokenizer_name, tokenizer, folder);
    if (tokenizer_name == "bytes" && !model.empty()) data::copy_chat_templates(model, folder);
    if (!chat_template.empty()) {  // which counts more than the tokenizer_config.json
      write_file_atomically(folder / "chat_template.jinja", chat_template);
    }
    if (is_adapter) {
      for (const std::string& line : token_differences(model, tokenizer.named())) {
        note(line + ": the tokenizer's; the adapter has no such files, fsdp merge writes them so");
      }
      return;
    }
    for (const std::string& line : align_tokens(folder, tokenizer.named())) {
      if (!model.empty()) note(line + ": the tokenizer's is written, as transformers does it");
    }
  }
};

// A template that is gone is no reason to keep the model back.
std::string chat_template_of(const config::TrainConfig& config,
                             const std::function<void(const std::string& text)>& note) {
  const std::string& given = config.data.chat.chat_template;
  if (given.empty() || !config.data.is_chat()) return "";
  if (data::is_own_chat_template(given) || is_named(given)) {
    return data::find_chat_template(given, "").source;
  }
  if (note) note(fmt::format("data.chat_template: {}: no such file: not written", given));
  return "";
}

}  // namespace

FolderOptions form_of_run(const config::TrainConfig& config, const std::string& tokenizer_name,
                          const data::Tokenizer& tokenizer,
                          std::function<void(const std::string& text)> note) {
  const config::TrainSection& c = config.train;
  const bool adapter = lora_config(config).has_value();
  FSDP_CHECK(!adapter || c.max_shard_size == config::TrainSection().max_shard_size,
             "train.max_shard_size: {}: an adapter is one file", c.max_shard_size);
  return {
      .dtype = saved_dtype(config),
      .max_file_bytes = parse_byte_size(c.max_shard_size, "train.max_shard_size"),
      .source = config.model.path,
      .add_files = [files = OtherFiles{
                        .model = config.model.path,
                        .tokenizer_name = tokenizer_name,
                        .tokenizer = tokenizer,
                        .of_ids = config.data.is_tokens() && config.data.tokenizer.empty(),
                        .is_adapter = adapter,
                        .chat_template = chat_template_of(config, note),
                        .note = std::move(note)}](const fs::path& folder) { files.write(folder); }};
}

namespace {

// What was written into `folder`.
void count_saved(Session& session, const fs::path& folder, DType dtype, ConversionSummary& out) {
  for (const Parameter* p : session.parameters()) {
    if (session.lora() && !models::is_lora(*p)) continue;
    ++out.tensors;
    out.bytes += p->numel() * static_cast<int64_t>(size_of(dtype));
  }
  for (const auto& item : fs::directory_iterator(folder)) {
    out.files += item.path().extension() == ".safetensors";
  }
}

}  // namespace

ConversionSummary convert_checkpoint(
    RankContext& rank, const ConversionOptions& options,
    const std::function<void(const PlacedOptions& session, DType saved)>& before_values) {
  std::optional<Checkpoint> checkpoint;
  config::TrainConfig config;
  models::ModelConfig model;
  PlacedOptions session_of;
  FolderOptions form;
  std::unique_ptr<data::Tokenizer> tokenizer;
  ConversionSummary out;
  agree(rank.world, [&] {
    FSDP_CHECK(options.shards == 0,
               "--shards: expected a model folder to divide, got a checkpoint");
    checkpoint.emplace(options.from);
    const std::string where = (options.from / kManifestName).string();
    config = config::parse_config(checkpoint->manifest().config, where, {});
    keep_paths(config, checkpoint->manifest().working_directory);
    model = models::parse_config(checkpoint->manifest().model, where);
    session_of = session_options(config, model, rank.world.size(), rank.backend);
    // How the run was sharded does not matter here.
    session_of.fsdp = {.param_dtype = session_of.fsdp.param_dtype,
                       .reduce_dtype = session_of.fsdp.reduce_dtype};
    session_of.training = false;
    const std::string name = tokenizer_name(config);
    tokenizer = data::make_tokenizer(name);
    form = form_of_run(config, name, *tokenizer,
                       [&out](const std::string& note) { out.warnings.push_back(note); });
    form.stops = true;
    if (options.dtype) form.dtype = *options.dtype;
    if (options.max_file_bytes != kDefaultFileBytes) form.max_file_bytes = options.max_file_bytes;
  });
  if (before_values) before_values(session_of, form.dtype);
  Session session = place_session(rank.world, session_of);
  with_session(rank, [&] {
    const Manifest& manifest = checkpoint->manifest();
    const bool needs_base = !session.lora() && !all_trained(session);
    if (needs_base) {
      agree(rank.world, [&] {
        if (!config.model.path.empty()) config.model.path = manifest.base_path;
        initialise_frozen(session, config, model);
      });
    }
    const uint64_t base = needs_base ? hash_frozen(session) : 0;
    agree(rank.world, [&] {
      FSDP_CHECK(
          !needs_base || base == manifest.base_hash,
          "{}: the parameters that were not trained ({}) have other values now than those that "
          "the checkpoint belongs to",
          options.from.string(), manifest.base_path);
      restore_weights(session, *checkpoint);
    });
    out.family = model.family;
    for (std::string& warning : save_model(session, options.to, form)) {
      out.warnings.push_back(std::move(warning));
    }
    count_saved(session, options.to, form.dtype, out);
  });
  return out;
}

// ---------------------------------------------------------------------------- Inspection

CheckpointInspection inspect_checkpoint(const fs::path& folder) {
  Checkpoint checkpoint(folder);
  return {folder.string(), checkpoint.manifest(), checkpoint.verify_all()};
}

std::string format_checkpoint(const CheckpointInspection& inspection) {
  const Manifest& m = inspection.manifest;
  std::string out = fmt::format(
      "{}: a checkpoint after step {} ({} samples), written by {} rank{} on {}, program {}\n",
      inspection.folder, m.step(), m.progress.samples, m.world_size, m.world_size == 1 ? "" : "s",
      m.device, m.program);
  out += fmt::format("run directory   {}\n", m.run_directory);
  if (!m.base_path.empty()) {
    out += fmt::format("not trained     {} (hash {})\n", m.base_path, hex(m.base_hash));
  }
  out += fmt::format("weights hash    {}\noptimizer hash  {}\n", hex(m.hash.weights),
                     hex(m.hash.optimizer));
  for (const auto& [name, value] : m.metrics) out += fmt::format("{:<16}{}\n", name, value);
  for (const auto& [name, hash] : m.data) out += fmt::format("{:<16}{}\n", name, hash);
  out += fmt::format("\n{:<60} {:<5} {:<16} {}\n", "tensor", "dtype", "shape", "pieces");
  for (const auto& [name, tensor] : m.tensors) {
    out += fmt::format("{:<60} {:<5} {:<16} {}\n", name, safetensors_name(tensor.dtype),
                       Shape(tensor.shape).str(), tensor.pieces.size());
  }
  out += fmt::format("\n{:<60} bytes\n", "file");
  for (const BlockChecksums& file : m.files)
    out += fmt::format("{:<60} {}\n", file.name, file.bytes);
  if (inspection.problems.empty()) {
    out += fmt::format("\nall {} files have their sizes and checksums\n", m.files.size());
  }
  for (const std::string& problem : inspection.problems) out += "problem: " + problem + "\n";
  return out;
}

std::string checkpoint_json(const CheckpointInspection& inspection) {
  const Manifest& m = inspection.manifest;
  Json tensors = Json::object(), files = Json::object(), metrics = Json::object();
  for (const auto& [name, tensor] : m.tensors) {
    tensors[name] = {{"dtype", safetensors_name(tensor.dtype)},
                     {"shape", tensor.shape},
                     {"pieces", tensor.pieces.size()}};
  }
  for (const BlockChecksums& file : m.files) files[file.name] = file.bytes;
  for (const auto& [name, value] : m.metrics) metrics[name] = value;
  return Json{{"checkpoint", inspection.folder},
              {"step", m.step()},
              {"samples", m.progress.samples},
              {"world_size", m.world_size},
              {"program", m.program},
              {"run_directory", m.run_directory},
              {"weights_hash", hex(m.hash.weights)},
              {"optimizer_hash", hex(m.hash.optimizer)},
              {"metrics", metrics},
              {"data", m.data},
              {"tensors", tensors},
              {"files", files},
              {"problems", inspection.problems}}
             .dump({.indent = 2}) +
         "\n";
}

}  // namespace fsdp::tools
