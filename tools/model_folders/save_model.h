// Writes a model to the folder that Hugging Face's transformers loads: weights in one file or,
// above a size, in several with an index; config.json, generation_config.json and the tokenizer's
// files. An adapter: to the folder that PEFT loads. It appears when it is complete. Reading one:
// models/weights.h. From one kind of folder to another: conversion.h.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "tools/engine/session.h"

namespace fsdp::tools {

constexpr int64_t kDefaultFileBytes = 5'000'000'000;  // "5GB", as transformers

struct FolderOptions {
  DType dtype = DType::kF32;
  int64_t max_file_bytes = kDefaultFileBytes;  // of the tensors in one file; a larger one is alone
  // The folder that the model came from, whose config.json and generation_config.json are kept;
  // empty: from scratch.
  std::filesystem::path source = {};
  bool replaces = false;  // a folder that is there, once the new one is complete; else: an error
  bool stops = false;     // when a signal comes; nothing is left of the folder then
  // Writes what else belongs into the folder, on rank 0, before it appears.
  std::function<void(const std::filesystem::path& folder)> add_files = {};
};

// The model, or with LoRA the adapter alone (adapter_config.json, adapter_model.safetensors).
// One unit at a time is gathered, and rank 0 writes it: no rank holds the model. AgreedError when
// that fails, and then nothing is left of the folder. Returns on rank 0 which tensors have values
// that the dtype cannot hold. Collective.
std::vector<std::string> save_model(Session& session, const std::filesystem::path& folder,
                                    const FolderOptions& options);

// What save_model asks of the backend, without the files: for predictions.
void walk_saved(Session& session, DType dtype);

// ---- parts ----

// A file and what it holds.
struct WeightsFile {
  std::string name;
  std::vector<SafetensorsSpec> tensors;
};
// Into files as transformers does: in order, a new file where the next tensor would exceed the
// size.
std::vector<WeightsFile> split_into_files(const std::vector<SafetensorsSpec>& tensors,
                                          int64_t max_file_bytes);
// model.safetensors.index.json, when there are several.
void write_weights_index(const std::filesystem::path& folder,
                         const std::vector<WeightsFile>& files);
// config.json and generation_config.json; `source` as in FolderOptions, `dtype` as in
// models::updated_config_json.
void write_config_files(const std::filesystem::path& folder, const models::ModelConfig& config,
                        const std::string& dtype, const std::filesystem::path& source);
// Finite values that are infinite in `converted`.
int64_t count_overflows(const std::vector<double>& exact, const std::vector<double>& converted);
std::string overflow_warning(const std::string& tensor, int64_t count);

}  // namespace fsdp::tools
