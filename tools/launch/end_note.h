// What a run that ends in an error leaves of its end, end.json in its directory: whoever looks at
// the directory later, or starts the run again, has no other word of it. A run that comes to its
// end says it in metrics.json. Not here: who reads both (tools/report/run_reader.h).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fsdp::tools {

inline constexpr const char* kEndNote = "end.json";

struct EndNote {
  double time = 0;         // Unix time; 0: not known
  int status = -1;         // tools/launch/status.h; -1: not known
  std::string cause = {};  // a line
  std::string host = {};   // where it began; "": not known
  int rank = -1;           // likewise; -1: all, or not known
};

// The lines of job_end.h begin with their rank and its host: "rank 1 (node2, process 4712) is
// gone".
EndNote note_of_line(const std::string& line, int status);

// The first note of a start counts: the later ones are of ranks that the first has ended. Nothing
// is written where there is no run, or no room.
void leave_end_note(const std::filesystem::path& run_directory, const EndNote& note);
// None: there is no such file, or nothing that can be read in it.
std::optional<EndNote> read_end_note(const std::filesystem::path& run_directory);

}  // namespace fsdp::tools
