// The curves of a run as an event file of TensorBoard: records of a length, its checksum, a message
// and its checksum (TFRecord), whose messages are Event of tensorflow/core/util/event.proto,
// encoded here by hand. Not here: the points (run_log.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tools/page/run_log.h"

namespace fsdp::tools {

// Writes `folder`/events.out.tfevents.<started>.fsdp, atomically, with every point of the log as a
// scalar: train/loss, train/learning_rate, validation/loss, ... `started`: Unix time of the run's
// begin. Returns the path.
std::filesystem::path write_event_file(const std::filesystem::path& folder, const RunLog& log,
                                       double started);

// ---- for tests ----
uint32_t crc32c(std::string_view bytes);
std::string event_record(std::string_view message);
std::string scalar_event(double wall_time, int64_t step, const std::string& tag, float value);

}  // namespace fsdp::tools
