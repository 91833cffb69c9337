// Contract: tools/checkpoint/settled_plan.h.
#include "tools/checkpoint/settled_plan.h"

#include "comm/exchange.h"
#include "core/io/json.h"
#include "tools/launch/backend_choice.h"

namespace fsdp::tools {

namespace fs = std::filesystem;

std::string plan_text(const ResumePlan& plan) {
  return Json{{"config", config::to_yaml(plan.config)},
              {"places", plan.config.places},
              {"run", plan.run},
              {"run_directory", plan.run_directory.string()},
              {"checkpoint", plan.checkpoint.string()},
              {"manifest", plan.manifest ? manifest_text(*plan.manifest) : ""},
              {"notes", plan.notes},
              {"warnings", plan.warnings},
              {"finished", plan.finished},
              {"gave_up", plan.gave_up},
              {"falls_back", plan.falls_back}}
      .dump();
}

ResumePlan plan_from_text(const std::string& text) {
  const Json json = parse_json(text, "plan");
  ResumePlan plan;
  plan.config = config::parse_config(json.at("config").get<std::string>(), "rank 0", {});
  plan.config.places = json.at("places").get<config::Places>();  // as rank 0 read them
  plan.run = json.at("run").get<std::string>();
  plan.run_directory = json.at("run_directory").get<std::string>();
  plan.checkpoint = json.at("checkpoint").get<std::string>();
  const std::string manifest = json.at("manifest");
  if (!manifest.empty()) plan.manifest = parse_manifest(manifest, "rank 0");
  plan.notes = json.at("notes").get<std::vector<std::string>>();
  plan.warnings = json.at("warnings").get<std::vector<std::string>>();
  plan.finished = json.at("finished");
  plan.gave_up = json.at("gave_up");
  plan.falls_back = json.at("falls_back");
  return plan;
}

void check_sees_checkpoint(comm::Communicator& world, const ResumePlan& plan,
                           std::chrono::milliseconds limit) {
  const auto look = [&] {
    return is_there(plan.checkpoint / kManifestName) &&
           manifest_text(read_manifest(plan.checkpoint)) == manifest_text(*plan.manifest);
  };
  agree(world, [&] {
    if (!plan.manifest || plan.finished) return;
    // The checkpoint may be younger than what this host knows of the folder.
    const bool seen = world.rings()->progress()->during([&] { return sees_within(limit, look); });
    if (seen) return;
    throw AgreedError(
        fmt::format("--resume: {} does not see the checkpoint {} that rank 0 goes on from: ranks "
                    "need a file system that all of them share",
                    host_name(), plan.checkpoint.string()),
        status::kFailed, Cause::kMachine);
  });
}

SettledPlan settle_plan(comm::Communicator& world, const ResumeRequest& request,
                        const ResumePlan& before,
                        const std::function<void(const std::string& line)>& say, RunLocks held) {
  SettledPlan settled = {.plan = before, .locks = std::move(held)};
  if (request.from.empty()) return settled;
  std::string told;
  agree(world, [&] {
    if (world.rank() != 0) return;
    if (!before.run_directory.empty() && !before.finished) {
      if (settled.locks.held.empty()) {
        settled.locks = patiently(before.config.runtime.patience(), [&] {
          return take_run_directory(before.run_directory,
                                    checkpoint_folder(before.config, before.run_directory),
                                    {std::chrono::seconds(before.config.runtime.lock_wait_s), say});
        });
      }
      settled.plan = plan_resume(request);
    }
    told = plan_text(settled.plan);
  });
  told = comm::from_first_rank(world, told);
  agree(world, [&] {
    if (world.rank() != 0) settled.plan = plan_from_text(told);
  });
  check_sees_checkpoint(world, settled.plan);
  return settled;
}

}  // namespace fsdp::tools
