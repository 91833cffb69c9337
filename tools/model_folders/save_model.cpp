// Contract: tools/model_folders/save_model.h.
#include "tools/model_folders/save_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/io/json.h"
#include "core/io/shard_index.h"
#include "core/shard_args.h"
#include "models/adapter_folder.h"
#include "models/family.h"
#include "models/names.h"
#include "tools/engine/sharded_values.h"
#include "tools/launch/interrupt.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/load_model.h"

namespace fsdp::tools {
namespace {

namespace fs = std::filesystem;

int64_t bytes_of(const SafetensorsSpec& tensor) {
  return Shape(tensor.shape).numel() * static_cast<int64_t>(size_of(tensor.dtype));
}

// Rank 0's files, all open at once: tensors come in the order of units.
class FolderWriter {
 public:
  FolderWriter(const fs::path& folder, const std::vector<WeightsFile>& files, bool replaces)
      : folder_(folder,
                replaces ? AtomicFolder::Existing::kReplaced : AtomicFolder::Existing::kRefused) {
    for (const WeightsFile& file : files) {
      for (const SafetensorsSpec& tensor : file.tensors) file_of_[tensor.name] = writers_.size();
      writers_.push_back(
          std::make_unique<SafetensorsWriter>(folder_.temporary() / file.name, file.tensors));
    }
  }

  const fs::path& path() const { return folder_.temporary(); }  // until finish()
  void write(const std::string& name, const std::vector<std::byte>& bytes) {
    writers_[file_of_.at(name)]->write(name, bytes.data(), bytes.size());
  }
  void finish() {
    for (const auto& writer : writers_) writer->finish();
    folder_.commit();
  }

 private:
  AtomicFolder folder_;
  std::map<std::string, size_t> file_of_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // removed before the folder
};

Tensor converted(Backend& backend, const Tensor& values, DType dtype) {
  if (values.dtype() == dtype) return values;
  Tensor out = Tensor::empty(backend, values.shape(), dtype, MemoryCategory::kWorkspace);
  backend.run(backend.compute_stream(), CastArgs{values, out});
  return out;
}

// In stretches: beside the gathered unit there is no copy of a tensor, whatever its size.
void convert_in_stretches(
    Backend& backend, const Tensor& full, DType dtype,
    const std::function<void(const Tensor& exact, const Tensor& values)>& use) {
  constexpr int64_t kStretch = int64_t{1} << 20;  // elements
  for (int64_t first = 0; first < full.numel(); first += kStretch) {
    const Tensor exact = full.slice(first, Shape{std::min(kStretch, full.numel() - first)});
    use(exact, converted(backend, exact, dtype));
  }
}

// Returns how many values the dtype cannot hold.
int64_t write_as(FolderWriter& writer, const std::string& name, Session& session,
                 const Tensor& full, DType dtype) {
  Backend& backend = session.backend();
  comm::WorkProgress& progress = *session.world().rings()->progress();
  std::vector<std::byte> host;
  int64_t infinite = 0;
  convert_in_stretches(backend, full, dtype, [&](const Tensor& exact, const Tensor& values) {
    host.resize(values.bytes());
    values.read(host.data());
    progress.during([&] { writer.write(name, host); });
    if (size_of(dtype) >= size_of(full.dtype())) return;
    infinite += count_overflows(exact.to_doubles(), values.to_doubles());
  });
  return infinite;
}

bool is_saved(const Session& session, const Parameter& parameter) {
  return !session.lora() || models::is_lora(parameter);
}

std::string saved_name(Session& session, const Parameter& parameter) {
  const models::ModelConfig& config = session.model().config();
  return session.lora() ? models::adapter_name(config, parameter)
                        : models::hugging_face_name(config, parameter.name());
}

// On rank 0: all but the weights is written.
std::unique_ptr<FolderWriter> start_folder(Session& session, const fs::path& folder,
                                           const FolderOptions& options) {
  std::vector<SafetensorsSpec> tensors;
  for (const Parameter* p : session.parameters()) {
    if (!is_saved(session, *p)) continue;
    tensors.push_back({saved_name(session, *p), options.dtype, p->shape().extents()});
  }
  const models::ModelConfig& config = session.model().config();
  const std::vector<WeightsFile> files =
      session.lora() ? std::vector<WeightsFile>{{models::kAdapterWeightsFile, tensors}}
                     : split_into_files(tensors, options.max_file_bytes);
  auto writer = std::make_unique<FolderWriter>(folder, files, options.replaces);
  if (session.lora()) {
    write_file_atomically(writer->path() / models::kAdapterConfigFile,
                          models::adapter_config_json(config, *session.lora()));
  } else {
    write_weights_index(writer->path(), files);
    write_config_files(writer->path(), config, models::torch_name(options.dtype), options.source);
  }
  if (options.add_files) options.add_files(writer->path());
  return writer;
}

}  // namespace

std::vector<std::string> save_model(Session& session, const fs::path& folder,
                                    const FolderOptions& options) {
  std::unique_ptr<FolderWriter> writer;
  const auto first_rank_only = [&](const auto& work) {
    agree(session.world(), [&] {
      if (session.world().rank() == 0) work();
    });
  };
  first_rank_only([&] { writer = start_folder(session, folder, options); });
  // What goes wrong on rank 0 in between must not leave the others waiting in a gather.
  std::exception_ptr problem;
  std::vector<std::string> warnings;
  const auto write = [&](const Parameter& parameter, const Tensor& full) {
    if (!writer || problem) return;
    try {
      if (options.stops) stop_where_interrupted();
      const std::string name = saved_name(session, parameter);
      const int64_t infinite = write_as(*writer, name, session, full, options.dtype);
      if (infinite > 0) warnings.push_back(overflow_warning(name, infinite));
    } catch (const Error&) {
      problem = std::current_exception();
    }
  };
  visit_parameters(session.sharded(), write,
                   [&](const Parameter& p) { return is_saved(session, p); });
  first_rank_only([&] {
    if (problem) std::rethrow_exception(problem);
    session.world().rings()->progress()->during([&] { writer->finish(); });
  });
  return warnings;
}

void walk_saved(Session& session, DType dtype) {
  const auto convert = [&](const Parameter&, const Tensor& full) {
    if (session.world().rank() != 0) return;
    convert_in_stretches(session.backend(), full, dtype, [](const Tensor&, const Tensor&) {});
  };
  visit_parameters(session.sharded(), convert,
                   [&](const Parameter& p) { return is_saved(session, p); });
}

std::vector<WeightsFile> split_into_files(const std::vector<SafetensorsSpec>& tensors,
                                          int64_t max_file_bytes) {
  std::vector<WeightsFile> files;
  std::vector<SafetensorsSpec> current;
  int64_t bytes = 0;
  const auto close = [&] {
    if (!current.empty()) files.push_back({"", std::exchange(current, {})});
    bytes = 0;
  };
  for (const SafetensorsSpec& tensor : tensors) {
    const int64_t size = bytes_of(tensor);
    if (size > max_file_bytes) {
      files.push_back(
          {"", {tensor}});  // before the file that is being filled, as transformers has it
      continue;
    }
    if (bytes + size > max_file_bytes) close();
    current.push_back(tensor);
    bytes += size;
  }
  close();
  for (size_t i = 0; i < files.size(); ++i) {
    files[i].name =
        files.size() == 1 ? "model.safetensors" : numbered_file("model", i, files.size());
  }
  return files;
}

void write_weights_index(const fs::path& folder, const std::vector<WeightsFile>& files) {
  if (files.size() < 2) return;
  std::map<std::string, std::string> map;
  int64_t bytes = 0, parameters = 0;
  for (const WeightsFile& file : files) {
    for (const SafetensorsSpec& tensor : file.tensors) {
      map[tensor.name] = file.name;
      bytes += bytes_of(tensor);
      parameters += Shape(tensor.shape).numel();
    }
  }
  write_json_file(folder / "model.safetensors.index.json",
                  {{"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
                   {"weight_map", map}});
}

void write_config_files(const fs::path& folder, const models::ModelConfig& config,
                        const std::string& dtype, const fs::path& source) {
  const fs::path generation = "generation_config.json";
  const std::string text = source.empty()
                               ? models::config_json(config, dtype)
                               : models::updated_config_json(config, dtype, source / "config.json");
  write_file_atomically(folder / "config.json", text);
  if (!source.empty() && read_generation_config(source).is_there()) {
    write_file_atomically(folder / generation, read_file(source / generation));
    return;
  }
  const Json keys = parse_json(text, "config.json");
  Json json = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (keys.contains(key) && !keys[key].is_null()) json[key] = keys[key];
  }
  write_json_file(folder / generation, json);
}

int64_t count_overflows(const std::vector<double>& exact, const std::vector<double>& converted) {
  int64_t out = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    out += std::isfinite(exact[i]) && !std::isfinite(converted[i]);
  }
  return out;
}

std::string overflow_warning(const std::string& tensor, int64_t count) {
  return fmt::format("{}: {} value{} beyond the new dtype became infinite", tensor, count,
                     count == 1 ? "" : "s");
}

}  // namespace fsdp::tools
