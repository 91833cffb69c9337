// Lines of a log as other programs print them. Sources: fairseq 0.12 (logging/progress_bar.py,
// JsonProgressBar; logging/metrics.py), transformers 4.57 (Trainer.log, speed_metrics), the chess
// guide's training loop. transformers (without logging_first_step) and fairseq print every
// `log_every`-th step alone. Not here: what a line is made of (tools/report/log_lines.h).
#pragma once

#include "tools/report/log_lines.h"

namespace fsdp::tools {

extern const LogLines kFairseqLines, kTrainerLines, kChessLines;

}  // namespace fsdp::tools
