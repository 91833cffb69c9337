// Contract: tools/launch/end_note.h.
#include "tools/launch/end_note.h"

#include <chrono>
#include <regex>

#include "core/io/file.h"
#include "core/io/json.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {

EndNote note_of_line(const std::string& line, int status) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  EndNote note = {.time = std::chrono::duration<double>(now).count(),
                  .status = status,
                  .cause = line.substr(0, 2000),
                  .host = host_name()};
  static const std::regex kBegin(R"(^ranks? (\d{1,6})(?:, \d+)*(?: \(([^,)]+)|:))");
  std::smatch found;
  if (!std::regex_search(line, found, kBegin)) return note;
  note.rank = std::stoi(found[1]);
  if (found[2].matched) note.host = found[2];
  return note;
}

void leave_end_note(const std::filesystem::path& run_directory, const EndNote& note) {
  try {
    if (!is_there(run_directory / "config.yaml") || is_there(run_directory / kEndNote)) return;
    write_json_file(run_directory / kEndNote, {{"time", note.time},
                                               {"status", note.status},
                                               {"cause", note.cause},
                                               {"host", note.host},
                                               {"rank", note.rank}});
  } catch (const std::exception&) {  // the job has to end
  }
}

std::optional<EndNote> read_end_note(const std::filesystem::path& run_directory) {
  const std::filesystem::path file = run_directory / kEndNote;
  if (!is_there(file)) return {};
  try {
    const Json json = read_json_file(file);
    return EndNote{.time = json.value("time", 0.0),
                   .status = json.value("status", -1),
                   .cause = json.value("cause", ""),
                   .host = json.value("host", ""),
                   .rank = json.value("rank", -1)};
  } catch (const SystemError&) {
    throw;
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace fsdp::tools
