// Contract: tools/jobs/slurm_script.h. The names are those of man sbatch.
#include "tools/jobs/slurm_script.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/error.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
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

// The number of failures in a row stands in Slurm's Comment: any folder may be what fails. Of the
// lines of a failure, one of a rank that waited for all the others names nobody who failed, nor
// does one of srun about a status that the ranks have agreed on.
std::string queue_again(const SlurmJob& job) {
  return R"([ -z "$cancelled" ] || exit $status
set +eu  # of the site's lines
# Done, or what no start mends: a mistake on the command line, a lack of memory, a mistake.
case $status in 0 | 2 | 12 | 78) exit $status ;; esac
job=$SLURM_JOB_ID  # of an array the first one's is the whole array's
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
of_job() { scontrol show job "$job" | sed -nE "s/ *$//; s/^(.* )?$1=//p" | grep -vxF '(null)'; }

# Ranks whose fsdp launch was killed still save.
for ((i = 0; i < )" +
         std::to_string(job.grace) + R"(; ++i)); do
  left=$(grep -lzsx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/[0-9]*/environ | sed 's/environ$/comm/')
  [ -n "$left" ] && cat $left 2>/dev/null | grep -qE '^(srun|mpirun|orterun|prterun|fsdp)' || break
  sleep 1
done

# 75: the checkpoint is on the disk, and the run has more to do. All else is a failure.
most=)" + std::to_string(job.requeues) +
         R"( failures=0 before=$(of_job Comment) comment=$(of_job Comment)
[[ $comment =~ (.*)failed\ starts:\ ([0-9]+)$ ]] && comment=${BASH_REMATCH[1]% } failures=${BASH_REMATCH[2]}
failures=$((status == 75 ? 0 : failures + 1))
if [ $failures -gt $most ]; then
  echo "fsdp: launch: status $status: not queued again after $most failed starts in a row" >&2
  exit $status
fi
[ $failures = 0 ] || comment="${comment:+$comment }failed starts: $failures"
[ "$comment" = "$before" ] || scontrol update JobId="$job" Comment="$comment" || [ $status = 75 ] ||
  [ "${SLURM_RESTART_COUNT:-0}" -lt $most ] || exit $status

# The node that the failure names is left out, where Slurm has enough others for this job.
bad=
if [ $failures -gt 0 ] && [ -f "$log" ]; then
  said=$(tail -c +$((begun + 1)) $log)
  bad=$(grep -E '^fsdp: ranks? [0-9, ]+\(' <<<"$said" | grep -v 'have not found each other' |
    sed -n '$s/^[^(]*(\([^,)]*\).*/\1/p')
  [ -n "$bad" ] || bad=$(sed -nE -e '/exit code (1|12|74|75|78)$/d' -e 's/^srun: error: (Node failure on )?([^ :,]+)(: task.*)?$/\2/p' \
    -e 's/.* process rank .* on node ([^ ]+) exited .*/\1/p' <<<"$said" | head -n 1)
  bad=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -xF -e "${bad%%.*}" -e "$bad")
fi
if [ -n "$bad" ]; then
  out=$(of_job ExcNodeList)
  out=${out:+$out,}$bad
  sbatch --test-only --exclude="$out" "$0" >/dev/null 2>&1 || bad=
fi

for i in {1..6}; do scontrol requeue "$job" && break; sleep 10; done
# Slurm changes the nodes of a job that waits alone, and has begun to end this shell.
for i in {1..20}; do
  [ -n "$bad" ] || break
  scontrol update JobId="$job" ExcNodeList="$out" && break
  sleep 0.5
done
echo "fsdp: launch: status $status: queued again${bad:+ without $bad}, failed starts: $failures of $most" >&2
exit $status
)";
}

}  // namespace

std::string script_mark() { return "#!/bin/bash\n# A job of Slurm, written by fsdp launch slurm."; }

std::string slurm_script(const SlurmJob& job) {
  std::string site;
  for (const std::string& line : job.site.lines) site += line + "\n";
  return script_mark() + " Submit it: sbatch FILE\n" + header(job) +
         R"(
# The signal before the limit comes to this shell alone, and so may scancel's.
launched= signalled= cancelled=
pass_on() {
  signalled=$1
  [ -n "$launched" ] && kill "-$1" "$launched" 2>/dev/null
  # A process that has just begun does not listen yet; it takes USR1 any number of times.
  [ "$1" = USR1 ] && sleep 1 && kill -USR1 "$launched" 2>/dev/null
}
trap 'pass_on USR1' USR1
trap 'cancelled=yes; pass_on TERM' TERM
# What is appended to the log from here on is of this start.
log=/proc/$$/fd/2
begun=$(stat -Lc %s $log)

)" + site +
         (site.empty() ? "" : "\n") +
         R"([ -z "${SLURM_CPUS_PER_TASK:-}" ] || export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export NCCL_DEBUG=${NCCL_DEBUG:-WARN} UCX_LOG_LEVEL=${UCX_LOG_LEVEL:-warn}

)" + choice_of_variation(job) +
         launch_line(job) + R"( &
launched=$!
[ -z "$signalled" ] || { sleep 1; pass_on "$signalled"; }
# A signal ends a wait, and the process is waited for again.
while signalled=; wait $launched; status=$?; [ -n "$signalled" ]; do :; done
)" + queue_again(job);
}

}  // namespace fsdp::tools
