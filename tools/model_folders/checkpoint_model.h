// A checkpoint of a run as a model: what is in it, and the folder that the run itself would have
// saved at that step. Next: save_model.h (the form of folders), tools/checkpoint/manifest.h. Not
// here: going on from one (tools/checkpoint/resume.h).
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/checkpoint/manifest.h"
#include "tools/config/config.h"
#include "tools/data/tokenizer/tokenizer.h"
#include "tools/launch/launch.h"
#include "tools/model_folders/conversion.h"
#include "tools/train/placed_session.h"

namespace fsdp::tools {

bool is_checkpoint(const std::filesystem::path& folder);

// The model of a run directory, "model" or "adapter" in it, and of a folder of the hub's cache its
// snapshot; any other folder is given back. Error
// for a run directory without one, and for checkpoints of this and other programs, which say how to
// make a model of them.
std::filesystem::path model_in(const std::filesystem::path& folder);

// How a run saves its model: its dtype as the configuration says, or as model.path has it; and the
// whole form.
DType saved_dtype(const config::TrainConfig& config);
// `tokenizer`: of this name; it must live as long as the result. `note` gets, on the rank that
// writes, what the folder says otherwise than the one that the model came from.
FolderOptions form_of_run(const config::TrainConfig& config, const std::string& tokenizer_name,
                          const data::Tokenizer& tokenizer,
                          std::function<void(const std::string& text)> note);

// Writes the model, or with LoRA the adapter, of a checkpoint, with the dtype and file size that
// the options give, else the run's. Unlike a folder's, the values of a checkpoint are all in the
// ranks' memory: `before_values` is called when it is known what they take, and may throw an
// AgreedError. Collective; throws AgreedError.
ConversionSummary convert_checkpoint(
    RankContext& rank, const ConversionOptions& options,
    const std::function<void(const PlacedOptions& session, DType saved)>& before_values = {});

struct CheckpointInspection {
  std::string folder;
  Manifest manifest;
  std::vector<std::string> problems;  // of files; empty: all have their sizes and checksums
};
CheckpointInspection inspect_checkpoint(const std::filesystem::path& folder);
std::string format_checkpoint(const CheckpointInspection& inspection);
std::string checkpoint_json(const CheckpointInspection& inspection);

}  // namespace fsdp::tools
