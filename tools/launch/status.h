// The statuses that a command ends with: one list, for the code and for whoever starts the command
// again (trouble.md, "Status of the process"). Those from 74 on are of sysexits.h.
// Not here: 128 + n after signal n (interrupt.h).
#pragma once

namespace fsdp::tools::status {

constexpr int kDone = 0;
constexpr int kFailed = 1;       // an error while running
constexpr int kCommandLine = 2;  // an option that is not known
constexpr int kDoesNotFit = 12;  // refused for its memory
constexpr int kNotDurable = 74;  // stopped by a signal, but its checkpoint is not on the disk
constexpr int kStartAgain = 75;  // stopped by a signal, with all that it did on the disk
constexpr int kGaveUp = 76;      // no way on: restarts brought no progress, or the model diverges
constexpr int kMistake = 78;     // in configuration or input, before the first step

}  // namespace fsdp::tools::status
