// The list of all guests, and the guests that are a few lines. Contract: tools/config/guests.h.
#include "tools/config/guests.h"

#include "tools/guides/fairseq_data.h"
#include "tools/guides/log_lines.h"
#include "tools/guides/result_files.h"

namespace fsdp::config {
namespace {

// A game: its moves, of the list Moves or of text.
constexpr data::NamedTemplate kChess = {"chess", "{if Moves}{Moves}{else}{text}{end}"};

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

bool is_of_deepspeed(const std::filesystem::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code unreadable;
  return name == "zero_to_fp32.py" || name.starts_with("zero_pp_rank_") ||
         name.starts_with("bf16_zero_pp_rank_") ||
         (name.starts_with("global_step") && entry.is_directory(unreadable));
}
constexpr ForeignCheckpoint kDeepSpeed = {.program = "DeepSpeed",
                                          .is_part = is_of_deepspeed,
                                          .way_out = "zero_to_fp32.py, with --safe_serialization"};

}  // namespace

const Guests& guests() {
  using namespace tools;
  static const Guests all = {
      {&data::kFairseqData}, {&kChess}, {&kFairseqLines, &kTrainerLines, &kChessLines},
      {&kTrainerFiles},      {&kKaust}, {&kFairseqScale},
      {&kDeepSpeed}};
  return all;
}

}  // namespace fsdp::config
