// Job files for PBS and LSF, and what their shell starts.
#include "tools/jobs/batch_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/shell.h"

namespace fsdp::tools {
namespace {

BatchFile job_of(BatchSystem system) {
  return {.system = system,
          .file = "/my/job",
          .folder = "/my folder",
          .program = "/bin/fsdp",
          .ranks = 16,
          .nodes = 2,
          .time = "1-12:00",
          .arguments = {"train", "--config", "my config.yaml"}};
}

TEST_CASE("batch file: PBS") {
  CHECK(batch_file(job_of(BatchSystem::kPbs)) == R"(#!/bin/bash
# A job file, written by fsdp launch pbs. Submit it: qsub /my/job
# Add what the cluster wants: a queue, an account, GPUs, module load ...
#PBS -l select=2:ncpus=8:mpiprocs=8
#PBS -l walltime=36:00:00
#PBS -j oe

begun=$(date +%s)
cd '/my folder' || exit 1
/bin/fsdp launch mpirun --hosts "@$PBS_NODEFILE" -n 16 --restart 3 -- train --config 'my config.yaml' --set runtime.end_time=$((begun + 129600))
status=$?
# 75: the checkpoint is on the disk, and the run has more to do.
[ $status != 75 ] || qsub /my/job
exit $status
)");
}

TEST_CASE("batch file: LSF") {
  BatchFile job = job_of(BatchSystem::kLsf);
  CHECK(test::contains(batch_file(job), R"(
#BSUB -n 16
#BSUB -R "span[ptile=8]"
#BSUB -W 36:00
#BSUB -Q "75"
)"));
  CHECK(test::contains(batch_file(job), "--hosts \"@$LSB_DJOB_HOSTFILE\" -n 16"));
  job.time.clear();
  CHECK(!test::contains(batch_file(job), "#BSUB -W"));
  CHECK(!test::contains(batch_file(job), "end_time"));
  job.nodes = 3;
  CHECK(
      test::contains(test::error_of([&] { batch_file(job); }), "-n 16: no multiple of --nodes 3"));
  job.nodes = 2;
  job.time = "4h";
  CHECK(test::contains(test::error_of([&] { batch_file(job); }), "launch lsf: --time: expected"));
}

TEST_CASE("batch file: the shell passes the status on, and submits the file again after 75") {
  const test::TempFolder folder;
  for (const int status : {0, 75, 1}) {
    BatchFile job = job_of(BatchSystem::kPbs);
    job.folder = folder.path().string();
    job.program = (folder / "fsdp").string();
    folder.write("job", batch_file(job));
    folder.write("fsdp", fmt::format("#!/bin/sh\necho \"$@\" >said\nexit {}\n", status));
    folder.write("qsub", "#!/bin/sh\necho $1 >submitted\n");
    const std::string text = fmt::format(
        "cd {}; chmod +x fsdp qsub; rm -f submitted; PATH=$PWD:$PATH PBS_NODEFILE=/tmp/n bash job",
        folder.path().string());
    CHECK(output_of({"bash", "-c", text}).status == status);
    CHECK(is_there(folder / "submitted") == (status == 75));
    CHECK(read_file(folder / "said").starts_with("launch mpirun --hosts @/tmp/n -n 16 "));
  }
}

}  // namespace
}  // namespace fsdp::tools
