// The list of all guests, and the guests that are a few lines. Contract: tools/config/guests.h.
#include "tools/config/guests.h"

#include <fmt/format.h>

#include "core/text/shell_word.h"
#include "tools/guides/adopt/whose_file.h"
#include "tools/guides/fairseq_data.h"
#include "tools/guides/log_lines.h"
#include "tools/guides/result_files.h"

namespace fsdp::config {
namespace {

// A game: its moves, of the list Moves or of text.
constexpr data::NamedTemplate kChess = {"chess", "{if Moves}{Moves}{else}{text}{end}"};

// Its alpaca: Stanford's two prompts, but the answer begins on a line of its own.
constexpr data::NamedTemplate kAxolotlAlpaca = {
    "axolotl_alpaca",
    "Below is an instruction that describes a task{if input}, paired with an input that provides "
    "further context{end}. Write a response that appropriately completes the request.\n\n### "
    "Instruction:\n{instruction}{if input}\n\n### Input:\n{input}{end}\n\n### "
    "Response:\n{>answer}{output}"};

constexpr GuestLabels kKaust = {
    .name = "kaust_compat",
    .note =
        "a label is learnt from a position of the prompt that has nothing to do with it, and the "
        "model never reads an answer, as in the workshop's script; sft trains the answer behind "
        "its prompt"};

constexpr GuestLossScale kFairseqScale = {.name = "fairseq",
                                          .initial = "128",
                                          .interval = "2^14 / ranks / micro_steps",
                                          .options = optim::LossScalerOptions::fairseq};

using Entry = std::filesystem::directory_entry;

// A folder with the ranks' parts of all parameters. accelerate puts it into a folder of its own.
std::string way_out_of_dcp(const Entry& entry) {
  const std::string name = entry.path().filename().string();
  const bool parts = name == ".metadata" || name.ends_with(".distcp");
  if (!parts && !name.starts_with("pytorch_model_fsdp_")) return "";
  const std::filesystem::path folder = parts ? entry.path().parent_path() : entry.path();
  return fmt::format("accelerate merge-weights {} NEW writes NEW/model.safetensors",
                     shell_word(folder.string()));
}
constexpr ForeignCheckpoint kDcp = {.program = "PyTorch's DCP", .way_out = way_out_of_dcp};

// zero_to_fp32.py lies beside the folder global_stepN, whose files are the ranks'.
std::string way_out_of_deepspeed(const Entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code unreadable;
  const bool part = name.starts_with("zero_pp_rank_") || name.starts_with("bf16_zero_pp_rank_");
  const bool beside = name == "zero_to_fp32.py" ||
                      (name.starts_with("global_step") && entry.is_directory(unreadable));
  if (!part && !beside) return "";
  std::filesystem::path folder = entry.path().parent_path();
  if (part && folder.filename().string().starts_with("global_step")) folder = folder.parent_path();
  if (folder.empty()) folder = ".";  // of a relative name
  return fmt::format("python {} {} NEW --safe_serialization writes NEW/model.safetensors",
                     shell_word((folder / "zero_to_fp32.py").string()),
                     shell_word(folder.string()));
}
constexpr ForeignCheckpoint kDeepSpeed = {.program = "DeepSpeed", .way_out = way_out_of_deepspeed};

std::string way_out_of_meta(const Entry& entry) {
  const std::string name = entry.path().filename().string();
  if (!name.starts_with("consolidated.") || !name.ends_with(".pth")) return "";
  return fmt::format(
      "python convert_llama_weights_to_hf.py --input_dir {} --output_dir NEW --llama_version V "
      "--num_shards N, where V is 1, 2, 3 or 3.1, and N how many consolidated.*.pth there are; the "
      "script is in src/transformers/models/llama of transformers' repository, not in its package",
      shell_word(entry.path().parent_path().string()));
}
constexpr ForeignCheckpoint kMeta = {.program = "Meta's release of Llama",
                                     .way_out = way_out_of_meta};

constexpr ForeignConfiguration kAdopted = {.way_over = adopt::way_over};

}  // namespace

const Guests& guests() {
  using namespace tools;
  static const Guests all = {{&data::kFairseqData},
                             {&kChess, &kAxolotlAlpaca},
                             {&kFairseqLines, &kTrainerLines, &kChessLines},
                             {&kTrainerFiles},
                             {&kKaust},
                             {&kFairseqScale},
                             {&kDcp, &kDeepSpeed, &kMeta},
                             {&kAdopted}};
  return all;
}

}  // namespace fsdp::config
