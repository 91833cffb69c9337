// Contract: tools/jobs/batch_file.h. The names of options are those of man sbatch, man qsub of PBS
// Professional and OpenPBS, and man bsub of LSF.
#include "tools/jobs/batch_file.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <regex>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "core/io/file.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

// man sbatch
const std::map<char, std::string_view> kLongNames = {
    {'a', "--array"},        {'A', "--account"},    {'b', "--begin"},    {'c', "--cpus-per-task"},
    {'C', "--constraint"},   {'d', "--dependency"}, {'D', "--chdir"},    {'e', "--error"},
    {'G', "--gpus"},         {'i', "--input"},      {'J', "--job-name"}, {'L', "--licenses"},
    {'m', "--distribution"}, {'M', "--clusters"},   {'N', "--nodes"},    {'n', "--ntasks"},
    {'o', "--output"},       {'p', "--partition"},  {'q', "--qos"},      {'t', "--time"},
    {'w', "--nodelist"},     {'W', "--wait"},       {'x', "--exclude"}};

constexpr std::string_view kBlank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace

std::string SbatchOption::text() const {
  if (value.empty()) return name;
  const bool quotes = value.find(' ') != std::string::npos && value.find('"') == std::string::npos;
  return name + "=" + (quotes ? '"' + value + '"' : value);
}

SbatchOption parse_sbatch(const std::string& text, const std::string& place) {
  const std::string_view all = trimmed(text);
  FSDP_CHECK(all.size() > 1 && all.front() == '-',
             "{}: expected an option of sbatch, such as --partition=gpu, got \"{}\"", place, all);
  SbatchOption option = {.name = "", .value = "", .place = place};
  size_t end = 2;  // of the name
  if (all[1] == '-') {
    end = std::min(all.find_first_of("= \t"), all.size());
    option.name = all.substr(0, end);
  } else {
    const auto known = kLongNames.find(all[1]);
    FSDP_CHECK(known != kLongNames.end(), "{}: {}: give the option's long name", place,
               all.substr(0, 2));
    option.name = known->second;
  }
  std::string_view value = trimmed(all.substr(end));
  if (value.starts_with("=")) value.remove_prefix(1);
  option.value = trimmed(value);
  const bool two = value.starts_with("-") || value.find(" -") != std::string_view::npos;
  FSDP_CHECK(!two || value.starts_with("\""), "{}: expected one option in a line, got \"{}\"",
             place, all);
  return option;
}

// man sbatch, "--time".
std::optional<int64_t> slurm_seconds(const std::string& time, const std::string& place) {
  std::string word = time;
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::toupper(c); });
  if (word == "UNLIMITED" || word == "INFINITE" || word == "-1") return {};
  static const std::regex kForms(
      "(?:([0-9]{1,6})-([0-9]{1,6})(?::([0-9]{1,6}))?(?::([0-9]{1,6}))?)|"
      "(?:(?:([0-9]{1,6}):(?=[0-9]+:))?([0-9]{1,9})(?::([0-9]{1,6}))?)");
  std::smatch part;
  FSDP_CHECK(std::regex_match(time, part, kForms),
             "{}: --time: expected minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED, got "
             "\"{}\"",
             place, time);
  const auto number = [&](size_t i) { return part[i].matched ? std::stoll(part[i].str()) : 0; };
  const int64_t seconds =
      ((number(1) * 24 + number(2) + number(5)) * 60 + number(3) + number(6)) * 60 + number(4) +
      number(7);
  return seconds == 0 ? std::nullopt : std::optional(seconds);
}

SlurmSite read_site(const std::filesystem::path& file) {
  SlurmSite site;
  std::istringstream text(read_file(file));
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::string place = fmt::format("{}:{}", file.string(), number);
    constexpr std::string_view kMark = "#SBATCH";
    if (line.starts_with(kMark)) {
      // "--time=1:00:00 # a day": what is behind a blank and # is a comment, for sbatch too.
      const std::string given = line.substr(kMark.size());
      site.options.push_back(parse_sbatch(given.substr(0, given.find(" #")), place));
    } else if (!line.starts_with("#!") && !trimmed(line).empty()) {
      site.lines.push_back(line);
    }
  }
  return site;
}

namespace {

using Options = std::vector<SbatchOption>;

// What this file decides, and the option of `fsdp launch slurm` for it.
const std::map<std::string, std::string> kOwn = {{"--array", "--vary"},
                                                 {"--chdir", "start it in that folder"},
                                                 {"--ntasks", "-n"},
                                                 {"--ntasks-per-node", "-n and --nodes"},
                                                 {"--open-mode", "append"},
                                                 {"--parsable", "--submit"},
                                                 {"--requeue", "every job is"},
                                                 {"--no-requeue", "every job can be queued again"},
                                                 {"--signal", "--grace"},
                                                 {"--wait", "--wait"},
                                                 {"--wrap", "no command of its own"}};

// In the place of one of the same name, or behind all.
void put(Options& all, const SbatchOption& option) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const SbatchOption& each) { return each.name == option.name; });
  at == all.end() ? all.push_back(option) : void(*at = option);
}

// The tasks of a node; 0: Slurm may place them as it likes.
int ranks_of_node(const SlurmJob& job) {
  const int ranks = job.job.all_ranks();
  if (job.nodes > 0) {
    FSDP_CHECK(ranks % job.nodes == 0,
               "-n {}: no multiple of --nodes {}: the nodes would have different numbers of ranks",
               ranks, job.nodes);
    const int each = ranks / job.nodes;
    FSDP_CHECK(job.gpus_of_node == 0 || each <= job.gpus_of_node,
               "-n {}: {} ranks on each of {} nodes, but --gpus-per-node {}", ranks, each,
               job.nodes, job.gpus_of_node);
    return each;
  }
  if (job.gpus_of_node == 0) return 0;
  FSDP_CHECK(ranks <= job.gpus_of_node || ranks % job.gpus_of_node == 0,
             "-n {}: no multiple of --gpus-per-node {}: expected a rank for each GPU", ranks,
             job.gpus_of_node);
  return std::min(ranks, job.gpus_of_node);
}

// What the job is, without what a person or the site adds.
Options own_options(const SlurmJob& job) {
  const int ranks = job.job.all_ranks(), of_node = ranks_of_node(job);
  Options options;
  const auto add = [&](const std::string& name, const std::string& value) {
    options.push_back({name, value, ""});
  };
  add("--chdir", job.folder);
  if (!job.name.empty()) add("--job-name", job.name);
  if (of_node > 0) add("--nodes", std::to_string(ranks / of_node));
  add("--ntasks", std::to_string(ranks));
  if (of_node > 0) add("--ntasks-per-node", std::to_string(of_node));
  if (job.gpus_of_node > 0) add("--gpus-per-node", std::to_string(of_node));
  if (job.cores_of_rank > 0) add("--cpus-per-task", std::to_string(job.cores_of_rank));
  if (!job.time.empty()) add("--time", job.time);
  add("--signal", fmt::format("B:USR1@{}", job.grace));
  add("--requeue", "");
  add("--open-mode", "append");
  if (!job.variations.empty()) {
    const std::string limit = job.at_once > 0 ? fmt::format("%{}", job.at_once) : "";
    add("--array", fmt::format("0-{}{}", job.variations.size() - 1, limit));
  }
  return options;
}

// sbatch reads a line as a shell would.
void check_quotes(const SbatchOption& option) {
  const std::string& value = option.value;
  const bool closed = std::count(value.begin(), value.end(), '"') % 2 == 0;
  FSDP_CHECK(closed && value.find_first_of("'\\\n") == std::string::npos,
             "{}: expected a text without quotes that sbatch would read, got {}", option.name,
             value);
}

void put_given(Options& all, const Options& given) {
  for (const SbatchOption& option : given) {
    const auto own = kOwn.find(option.name);
    FSDP_CHECK(own == kOwn.end(), "{}: {}: fsdp launch slurm decides that: {}", option.place,
               option.name, own->second);
    put(all, option);
  }
}

// The later counts more: a name and a log that nobody gave, the site's file, what the job is, and
// what a person gave for sbatch.
std::string header(const SlurmJob& job) {
  Options all = {{"--job-name", job.usual_name, ""},
                 {"--output", job.variations.empty() ? "%x-%j.log" : "%x-%A_%a.log", ""}};
  put_given(all, job.site.options);
  for (const SbatchOption& option : own_options(job)) put(all, option);
  put_given(all, job.options);
  const auto time = std::find_if(all.begin(), all.end(),
                                 [](const SbatchOption& each) { return each.name == "--time"; });
  const auto seconds =
      time == all.end()
          ? std::nullopt
          : slurm_seconds(time->value, time->place.empty() ? "launch slurm" : time->place);
  FSDP_CHECK(!seconds || *seconds > job.grace,
             "--time {}: the run would be told to save at its start: --grace is {} s", time->value,
             job.grace);
  std::string text;
  for (const SbatchOption& option : all) check_quotes(option);
  for (const SbatchOption& option : all) text += "#SBATCH " + option.text() + "\n";
  return text;
}

std::string launch_line(const SlurmJob& job) {
  std::vector<std::string> words = {job.job.program,
                                    "launch",
                                    job.job.launcher == Launcher::kSrun ? "srun" : "mpirun",
                                    "-n",
                                    std::to_string(job.job.all_ranks()),
                                    "--restart",
                                    std::to_string(job.restarts),
                                    "--"};
  words.insert(words.end(), job.job.arguments.begin(), job.job.arguments.end());
  return shell_text(words) + (job.variations.empty() ? "" : " --set \"${varied[@]}\"");
}

std::string choice_of_variation(const SlurmJob& job) {
  if (job.variations.empty()) return "";
  std::string text = "case $SLURM_ARRAY_TASK_ID in\n";
  for (size_t i = 0; i < job.variations.size(); ++i) {
    text += fmt::format("{}) varied=({}) ;;\n", i, shell_text(job.variations[i]));
  }
  return text + "esac\n\n";
}

}  // namespace

std::string script_mark() { return "#!/bin/bash\n# A job of Slurm, written by fsdp launch slurm."; }

std::string slurm_script(const SlurmJob& job) {
  std::string site;
  for (const std::string& line : job.site.lines) site += line + "\n";
  std::string text(slurm_job_text());
  // The last place first: what is put in cannot be taken for a place that comes later.
  for (const auto& [place, value] : std::initializer_list<std::pair<std::string, std::string>>{
           {"@REQUEUES@", std::to_string(job.requeues)},
           {"@GRACE@", std::to_string(job.grace)},
           {"@LAUNCH@", launch_line(job)},
           {"@VARIATION@", choice_of_variation(job)},
           {"@SITE@", site + (site.empty() ? "" : "\n")},
           {"@HEADER@", script_mark() + " Submit it: sbatch FILE\n" + header(job)}}) {
    text.replace(text.find(place), place.size(), value);
  }
  return text;
}

namespace {

struct Form {
  const char* name;
  const char* submit;
  const char* hosts;  // a file with a line for each rank
};
Form form_of(BatchSystem system) {
  if (system == BatchSystem::kPbs) return {"pbs", "qsub", "$PBS_NODEFILE"};
  return {"lsf", "bsub <", "$LSB_DJOB_HOSTFILE"};
}

std::string header(const BatchFile& job, int64_t seconds) {
  const int of_node = job.ranks / job.nodes;
  if (job.system == BatchSystem::kPbs) {
    const std::string limit = fmt::format("#PBS -l walltime={}:{:02}:{:02}\n", seconds / 3600,
                                          seconds / 60 % 60, seconds % 60);
    return fmt::format("#PBS -l select={}:ncpus={}:mpiprocs={}\n{}#PBS -j oe\n", job.nodes, of_node,
                       of_node, seconds > 0 ? limit : "");
  }
  const int64_t minutes = (seconds + 59) / 60;
  // LSF itself queues a job again that ends with this status.
  return fmt::format(
      "#BSUB -n {}\n#BSUB -R \"span[ptile={}]\"\n{}#BSUB -Q \"75\"\n", job.ranks, of_node,
      seconds > 0 ? fmt::format("#BSUB -W {}:{:02}\n", minutes / 60, minutes % 60) : "");
}

}  // namespace

std::string batch_file_mark(BatchSystem system) {
  const Form form = form_of(system);
  return fmt::format("#!/bin/bash\n# A job file, written by fsdp launch {}.", form.name);
}

std::string batch_file(const BatchFile& job) {
  const Form form = form_of(job.system);
  FSDP_CHECK(job.nodes > 0 && job.ranks % job.nodes == 0,
             "-n {}: no multiple of --nodes {}: the nodes would have different numbers of ranks",
             job.ranks, job.nodes);
  const std::string place = fmt::format("launch {}", form.name);
  const int64_t seconds = job.time.empty() ? 0 : slurm_seconds(job.time, place).value_or(0);
  std::string end;
  if (seconds > 0) end = fmt::format(" --set runtime.end_time=$((begun + {}))", seconds);
  std::string text = fmt::format(
      "{} Submit it: {} {}\n"
      "# Add what the cluster wants: a queue, an account, GPUs, module load ...\n{}\n"
      "begun=$(date +%s)\ncd {} || exit 1\n"
      "{} launch mpirun --hosts \"@{}\" -n {} --restart 3 -- {}{}\nstatus=$?\n",
      batch_file_mark(job.system), form.submit, shell_text({job.file}), header(job, seconds),
      shell_text({job.folder}), shell_text({job.program}), form.hosts, job.ranks,
      shell_text(job.arguments), end);
  if (job.system == BatchSystem::kPbs) {
    text +=
        "# 75: the checkpoint is on the disk, and the run has more to do.\n[ $status != 75 ] || "
        "qsub " +
        shell_text({job.file}) + "\n";
  }
  return text + "exit $status\n";
}

}  // namespace fsdp::tools
