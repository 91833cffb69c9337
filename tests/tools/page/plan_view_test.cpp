// A plan on the page, and files that are none.
#include "tools/page/plan_view.h"

#include <doctest/doctest.h>

#include "tests/support/plan_questions.h"
#include "tests/support/temp_folder.h"
#include "tools/page/page.h"
#include "tools/plan/plan_report.h"

namespace fsdp::tools {
namespace {

using test::contains;

TEST_CASE("plan view: jobs, picture and configuration of a plan, as text that is escaped") {
  Plan plan = {.question = test::plan_question({}), .model = "a <model>"};
  plan.found.best = plan_each(plan.question, {1, 2});
  const test::TempFolder folder;
  const auto file = folder.write("plan.json", plan_json(plan).dump());
  const std::string html = plan_html(read_plan_view(file));
  CHECK(contains(html, "a &lt;model&gt;"));
  CHECK(contains(html, "<svg "));
  CHECK(contains(html, "full_shard"));
  CHECK(contains(html, "hidden_size: 64"));
  const std::string page = page_html(read_report({file}), 0);
  CHECK(contains(page, "<title>plan</title>"));
  CHECK(contains(page, "a &lt;model&gt;"));
  CHECK(!contains(page, "No run of the sweep"));
}

TEST_CASE("plan view: other files are refused by name") {
  const test::TempFolder folder;
  const auto error = [&](const char* text) {
    const auto file = folder.write("plan.json", text);
    return test::error_of([&] { read_plan_view(file); });
  };
  CHECK(
      contains(error("{}"), "plan.json: expected a folder of a run or a sweep, or what fsdp plan"));
  CHECK(contains(error("[1]"), "plan.json: expected a folder"));
  CHECK(contains(error(R"({"plan": 1})"), "plan.json: is no plan of this version: "));
  CHECK(contains(error("no JSON"), "plan.json"));
}

}  // namespace
}  // namespace fsdp::tools
