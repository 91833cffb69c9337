// What a cluster wants of every job.
#include "tools/jobs/slurm_site.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

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

TEST_CASE("site: two options in a line are refused") {
  for (const char* two : {"-p gpu -A proj", "--exclusive --mem=0"}) {
    CHECK(test::contains(test::error_of([&] { parse_sbatch(two, "site.sh:2"); }),
                         "site.sh:2: expected one option in a line"));
  }
}

TEST_CASE("site: limits as sbatch takes them") {
  const auto seconds = [](const char* time) { return slurm_seconds(time, "site.sh:3"); };
  CHECK(seconds("30") == 1800);
  CHECK(seconds("1:30") == 90);
  CHECK(seconds("1:00:05") == 3605);
  CHECK(seconds("100:00:00") == 360000);
  CHECK(seconds("2-12") == 216000);
  CHECK(seconds("1-0:30") == 88200);
  CHECK(seconds("1-0:0:1") == 86401);
  for (const char* none : {"UNLIMITED", "unlimited", "infinite", "0", "-1", "0:0:0"}) {
    CAPTURE(none);
    CHECK(seconds(none) == std::nullopt);
  }
  for (const char* other : {"", "1:2:3:4", "-5", "a-1", "4h", "2-", "1:", ":30", "1-1:2:3:4", "12 ",
                            "1.5", "1d", "00:30:00s"}) {
    CAPTURE(other);
    CHECK(test::error_of([&] { seconds(other); }) ==
          fmt::format("site.sh:3: --time: expected minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or "
                      "UNLIMITED, got \"{}\"",
                      other));
  }
}

}  // namespace
}  // namespace fsdp::tools
