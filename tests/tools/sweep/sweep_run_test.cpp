// What a sweep makes of the end of its runs, with shell scripts in place of the program. With real
// runs: tests/e2e/sweep.sh.
#include "tools/sweep/sweep_run.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "core/io/file.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

// Each run of a case does what the script of its name says: $dir is its run directory.
struct Sweep {
  test::TempFolder folder;
  Recipe recipe = {.file = "r.yaml", .question = "why?"};
  std::vector<SweepCase> cases;
  std::vector<std::string> said;

  Sweep() {
    folder.write("fsdp", R"SH(#!/bin/sh
here=$(dirname "$0")
echo "$@" >>"$here/calls"
case $1 in eval) [ -e "$here/no_eval" ] && exit 3; echo '{"f1": 40.0}'; exit 0;; esac
dir=$(echo "$5" | sed 's/runtime.run_dir="\(.*\)"/\1/')
case=$(basename "$(dirname "$dir")")
. "$here/$case.sh"
mkdir -p "$dir"; echo 'train: {lr: 1}' >"$dir/config.yaml"
echo "{\"ended\": {\"status\": 0}, \"steps\": 2, \"tokens_per_s\": 10, \"step_time_s\": 1, \"world_size\": $ranks,
 \"hosts\": [{\"host\": \"a\", \"ranks\": [$list]}], \"gpu\": null, \"restarts\": ${restarts:-0}}" >"$dir/metrics.json"
)SH");
    ::chmod((folder / "fsdp").c_str(), 0755);
  }
  void add(const std::string& name, const std::string& script) {
    folder.write(name + ".sh", "ranks=1 list=0\n" + script + "\n");
    cases.push_back({.name = name,
                     .ranks = 1,
                     .config = config::parse_config("data: {format: synthetic}\n", "a", {})});
  }
  int run() {
    const SweepOptions options = {.out = folder / "out",
                                  .program = (folder / "fsdp").string(),
                                  .command = "again",
                                  .say = [this](const std::string& line) { said.push_back(line); }};
    SweepFolder(options.out).settle(cases);
    return run_sweep(recipe, cases, options);
  }
  Json row(size_t i) const { return read_json_file(folder / "out/table.json").at(i); }
  int64_t calls() const {
    const std::string text = is_there(folder / "calls") ? read_file(folder / "calls") : "";
    return std::count(text.begin(), text.end(), '\n');
  }
};

TEST_CASE("sweep run: repeats are interleaved; what has failed or was refused is a row") {
  Sweep sweep;
  sweep.recipe.repeat = 2;
  sweep.recipe.columns = {"steps", "restarts"};
  sweep.add("good", "restarts=1");
  sweep.add("large", "echo 'fsdp: this run needs much\n  fits with less'; exit 12");
  sweep.add("bad", "echo 'fsdp: why' >&2; echo more; exit 3");
  CHECK(sweep.run() == 1);
  CHECK(sweep.calls() == 4);
  CHECK(sweep.row(0).at("status") == "ran");
  CHECK(sweep.row(0).at("values").at("steps") == Json(std::vector<int>{2, 2}));
  CHECK(sweep.row(1).at("status") == "refused");
  CHECK(sweep.row(1).at("reason") == "this run needs much\n  fits with less");
  CHECK(sweep.row(2).at("status") == "failed");
  CHECK(test::contains(sweep.row(2).at("reason").text(), "status 3: why ("));
  CHECK(test::contains(sweep.row(2).at("reason").text(), "bad/run1.log)"));
  CHECK(test::contains(read_file(sweep.folder / "out/table.md"), "good: run 1 was broken off"));
  CHECK(sweep.said.at(0) ==
        "1/6 good, run 1: running, its log is " + (sweep.folder / "out/good/run1.log").string());
  CHECK(sweep.said.at(1).starts_with("1/6 good, run 1: steps 2, restarts 1; about 0:0"));
  const std::string calls = read_file(sweep.folder / "calls");
  CHECK(std::find_if(sweep.said.begin(), sweep.said.end(), [](const std::string& line) {
          return line.starts_with("4/4 good, run 2: steps 2");
        }) != sweep.said.end());  // runs of cases that have failed are not counted
  CHECK(calls.find("bad/run1") < calls.find("good/run2"));
  CHECK(test::contains(calls, "train --config " + (sweep.folder / "out/good/case.yaml").string()));
  CHECK(test::contains(calls, "--resume auto\n"));
}

TEST_CASE("sweep run: goes on with what is not done; a refusal alone is no failure") {
  Sweep sweep;
  sweep.add("good", "");
  sweep.add("large", "exit 12");
  CHECK(sweep.run() == 0);
  CHECK(sweep.calls() == 2);
  CHECK(sweep.run() == 0);
  CHECK(sweep.calls() == 3);  // the refused one is asked again
  CHECK(sweep.row(0).at("status") == "ran");
}

TEST_CASE("sweep run: evaluates the model of a run, once, with files beside the recipe") {
  Sweep sweep;
  sweep.recipe.file = sweep.folder / "recipe.yaml";
  sweep.folder.write("dev.json", "{}");
  sweep.recipe.evaluate = {"--task", "squad", "--data", "dev.json"};
  sweep.recipe.columns = {"f1"};
  sweep.add("good", "");
  CHECK(sweep.run() == 0);
  CHECK(sweep.row(0).at("median").at("f1") == 40);
  CHECK(test::contains(
      read_file(sweep.folder / "calls"),
      "/good/run1 --task squad --data " + (sweep.folder / "dev.json").string() + " --json\n"));
  std::filesystem::remove(sweep.folder / "out/good/run1.eval.json");
  CHECK(sweep.run() == 0);
  CHECK(sweep.calls() == 3);  // the run itself is done
  CHECK(sweep.run() == 0);
  CHECK(sweep.calls() == 3);
  sweep.recipe.evaluate = {"--task", "squad"};
  CHECK(sweep.run() == 0);
  CHECK(sweep.calls() == 4);  // with other arguments
}

TEST_CASE("sweep run: where the evaluation alone fails, the figures of the training stay") {
  Sweep sweep;
  sweep.folder.write("no_eval", "");
  sweep.recipe.evaluate = {"--task", "squad"};
  sweep.recipe.columns = {"steps", "f1"};
  sweep.add("good", "");
  CHECK(sweep.run() == 1);
  CHECK(sweep.row(0).at("status") == "failed");
  CHECK(sweep.row(0).at("median").at("steps") == 2);
  CHECK(sweep.row(0).at("median").at("f1").is_null());
}

TEST_CASE("sweep run: the reason of a failure is of the last start") {
  Sweep sweep;
  sweep.add("bad",
            "[ -e \"$here/second\" ] && exit 3; touch \"$here/second\"\n"
            "echo 'fsdp: the first reason' >&2; exit 1");
  CHECK(sweep.run() == 1);
  CHECK(test::contains(sweep.row(0).at("reason").text(), "status 1: the first reason ("));
  CHECK(sweep.run() == 1);
  CHECK(sweep.row(0).at("reason").text().starts_with("status 3:  ("));
}

TEST_CASE("sweep run: what cannot be predicted or read of a case stops no other one") {
  Sweep sweep;
  sweep.add("odd", "");
  sweep.add("good", "");
  sweep.cases[0].full_size = FullSizeCase{.config = sweep.cases[0].config, .gpu = "none"};
  CHECK(sweep.run() == 0);
  CHECK(test::contains(read_file(sweep.folder / "out/table.md"), "- odd: at full size: "));
  sweep.folder.write("out/odd/run1/metrics.json", R"({"ended": {"status": 0}})");
  sweep.folder.write("out/good/run1/metrics.json", "{");
  CHECK(sweep.run() == 0);
  CHECK(sweep.calls() == 3);  // the run that cannot be read, again
  CHECK(sweep.row(1).at("status") == "ran");
}

TEST_CASE("sweep run: a signal that the run was given ends the sweep, which can go on") {
  Sweep sweep;
  sweep.add("good",
            "[ -e \"$here/second\" ] || { touch \"$here/second\"; kill -TERM $PPID; sleep 5; }");
  sweep.add("next", "");
  CHECK(sweep.run() == 143);
  CHECK(sweep.row(0).at("status") == "open");
  CHECK(sweep.run() == 0);
  CHECK(sweep.row(1).at("status") == "ran");
}

TEST_CASE("sweep run: a signal that reached the run alone leaves it open, and ends the sweep") {
  Sweep sweep;
  sweep.add("good", "[ -e \"$here/second\" ] || { touch \"$here/second\"; exit 75; }");
  sweep.add("next", "");
  CHECK(sweep.run() == 75);
  CHECK(sweep.row(0).at("status") == "open");
  CHECK(sweep.run() == 0);
  CHECK(sweep.row(1).at("status") == "ran");
}

TEST_CASE("sweep run: more ranks on a host than it has cores") {
  Sweep sweep;
  sweep.add("crowded", "list=$(seq -s, 0 2000)");
  CHECK(sweep.run() == 0);
  CHECK(sweep.row(0).at("oversubscribed") == true);
}

TEST_CASE("sweep run: the usual columns") {
  std::vector<SweepCase> cases = {{.name = "a", .ranks = 1}, {.name = "b", .ranks = 1}};
  CHECK(columns_of({}, cases).back().name == "train_loss");
  cases[1].ranks = 2;
  CHECK(columns_of({}, cases).back().name == "efficiency");
}

TEST_CASE("sweep run: the reason is the last error, or the last line") {
  CHECK(reason_in("a\nfsdp: note: x\nfsdp: this\n  that\nelse\n") == "this\n  that");
  CHECK(reason_in("fsdp: first\nfsdp: second\nfsdp: warning: x\n") == "second");
  CHECK(reason_in("a\nb\n\n") == "b");
  CHECK(reason_in("mpirun: why\n-----\n") == "mpirun: why");
  CHECK(reason_in("ssh: x\n----\nORTE has failed.\n\n* why\n  it may\n----\n") ==
        "ORTE has failed.");
  CHECK(reason_in("") == "");
}

}  // namespace
}  // namespace fsdp::tools
