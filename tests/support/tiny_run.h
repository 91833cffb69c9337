// Whole runs of a model of one block on ranks as threads, in microseconds a step: their directory,
// and what they say. Not here: runs of the program (tests/e2e).
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tools/run/training_run.h"

namespace fsdp::test {

using Lines = std::vector<std::string>;

inline std::vector<config::Override> tiny_run(const TempFolder& folder,
                                              const std::filesystem::path& directory) {
  return {"model.model_type=llama",
          "model.hidden_size=16",
          "model.layers=1",
          "model.heads=2",
          "data.sequence_length=8",
          "train.batch=2",
          "data.train=" + folder.write("text.txt", std::string(99, 'a')).string(),
          "data.cache_dir=" + (folder / "tokens").string(),
          "runtime.run_dir=" + directory.string()};
}

// The lines that two ranks say. The backward of rank `late` takes 50 ms longer; -1: of none. The
// run dies when it says a line with `killed_at` in it; "": never.
inline Lines lines_of_run(const tools::ResumeRequest& request, int late = -1,
                          const std::string& killed_at = "") {
  const tools::ResumePlan plan = tools::plan_resume(request);
  Lines lines;
  std::mutex mutex;  // each rank says a line when it starts
  const tools::TrainingRunOptions options = {
      .local_ranks = 2,
      .resume = request.from,
      .resume_with_changes = request.with_changes,
      .say = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        lines.push_back(line);
        FSDP_CHECK(killed_at.empty() || !contains(line, killed_at), "killed");
      }};
  comm::run_local_ranks(2, [&](comm::Communicator& world) {
    tools::RankContext rank{.world = world, .local_ranks = 2};
    if (world.rank() == late) {
      rank.backend.cpu.delay = [](const std::string&, std::string_view task) {
        return task == "embedding_backward" ? 50'000 : 0;  // once a step
      };
    }
    FSDP_CHECK(tools::run_training(options, request, plan, rank) == 0, "the status is not 0");
  });
  return lines;
}

inline int count_lines(const Lines& lines, std::string_view part) {
  int count = 0;
  for (const std::string& line : lines) count += contains(line, part);
  return count;
}

}  // namespace fsdp::test
