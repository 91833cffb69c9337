// What a cluster wants of every job.
#include "tools/jobs/slurm_site.h"

#include <doctest/doctest.h>

#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("site: options of sbatch, and commands of the shell") {
  const test::TempFolder folder;
  const auto file = folder.write("site.sh",
                                 "#!/bin/bash\n# of this cluster\n#SBATCH --account=abc  # mine\r\n"
                                 "#SBATCH -p gpu\n#SBATCH --exclusive\n\nmodule load openmpi\n");
  const SlurmSite site = read_site(file);
  REQUIRE(site.options.size() == 3);
  CHECK(site.options[0].text() == "--account=abc");
  CHECK(site.options[0].place == file.string() + ":3");
  CHECK(site.options[1].text() == "--partition=gpu");
  CHECK(site.options[2].text() == "--exclusive");
  CHECK(site.lines == std::vector<std::string>{"# of this cluster", "module load openmpi"});
}

TEST_CASE("site: what is no option is refused with its place") {
  const test::TempFolder folder;
  const auto file = folder.write("site.sh", "#SBATCH account=abc\n");
  CHECK(test::error_of([&] { read_site(file); }) ==
        file.string() +
            ":1: expected an option of sbatch, such as --partition=gpu, got \"account=abc\"");
  CHECK(test::error_of([] { parse_sbatch("-Z 3", "--sbatch"); }) ==
        "--sbatch: -Z: give the option's long name");
  CHECK(parse_sbatch("--gres gpu:4", "").text() == "--gres=gpu:4");
  CHECK(parse_sbatch("--comment=\"a b\"", "").text() == "--comment=\"a b\"");
  CHECK(SbatchOption{"--job-name", "a b", ""}.text() == "--job-name=\"a b\"");
  CHECK(test::contains(test::error_of([&] { read_site(folder / "absent.sh"); }), "absent.sh"));
}

}  // namespace
}  // namespace fsdp::tools
