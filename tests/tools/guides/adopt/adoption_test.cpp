// The file that is written: its form, keys that have no effect yet, contradictions, what is left.
#include "tools/guides/adopt/adoption.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/adopted.h"
#include "tests/support/refused.h"
#include "tools/config/key_values.h"

namespace fsdp::adopt {
namespace {

Given given(const std::string& key, const std::string& value, int line) {
  return {.key = key, .name = key, .values = {value}, .place = "f.yaml:" + std::to_string(line)};
}

TEST_CASE("adoption: the written file, whole") {
  Adoption a("test", "f.yaml", {});
  a.set("train.lr", "5e-5", given("rate", "5e-5", 3));
  a.set("train.optimizer.beta1", "0.8", given("b", "0.8", 4), "a remark");
  a.set_default("train.lr", "7", "not taken");
  a.set_default("model.preset", "gpt2-124m", "their default");
  a.set_list("data.train", {"a b.txt"}, given("files", "a b.txt", 1));
  a.set("train.eval_every", "epoch", given("eval", "epoch", 5));
  a.leave(given("bucket", "25", 6), "units do that");
  a.off(given("debug", "false", 7));
  a.set_ranks(4, given("n", "4", 8));
  a.unset("SIZE", "7");
  a.unset("NAME", "x");
  CHECK(
      a.yaml() ==
      "# fsdp adopt test f.yaml: from scratch, the weights are random\n"
      "# Notes:\n"
      "#   n: 4 (f.yaml:8): mpirun -n 4 --bind-to none fsdp train --config ...\n"
      "#   not said there, so the defaults of fsdp train count: train.batch, "
      "train.schedule.kind, train.steps, data.sequence_length; --set KEY=VALUE, or include a file "
      "that says them\n"
      "# Not set there; beside each name what the programs take then: SIZE 7, NAME x\n"
      "model:\n"
      "  preset: \"gpt2-124m\"               # their default\n"
      "\n"
      "data:\n"
      "  train: [\"a b.txt\"]                # files: a b.txt (f.yaml:1)\n"
      "\n"
      "train:\n"
      "  lr: 5e-05                         # rate: 5e-5 (f.yaml:3)\n"
      "  optimizer:\n"
      "    beta1: 0.8                      # b: 0.8 (f.yaml:4); a remark\n"
      "  # eval_every: epoch               # eval: epoch (f.yaml:5); no effect without "
      "data.validation\n"
      "\n"
      "# Not taken over, or done in another way:\n"
      "#   bucket: 25 (f.yaml:6): units do that\n"
      "# Off there, and here: debug\n");
  const config::TrainConfig config = config::parse_config(a.yaml(), "x", {});
  CHECK(config.train.lr == 5e-5);
  CHECK(config.train.optimizer.beta1 == 0.8);
  CHECK(config.data.train == std::vector<std::string>{"a b.txt"});
}

TEST_CASE("adoption: what is typed counts more, and says so") {
  Adoption a("test", "f.yaml", {},
             {.ranks = 3,
              .typed = {{"model.path", "here", "--model here"},
                        {"data.validation", "[\"v.txt\"]", "--validation v.txt"}}});
  a.set("model.preset", "gpt2-124m", given("arch", "gpt2", 1));
  a.set_default("model.path", "hub/name", "their default");
  a.set("train.eval_every", "epoch", given("eval", "epoch", 2));
  a.set_ranks(8, given("n", "8", 3));
  a.set_ranks(3, given("m", "3", 4));
  CHECK(a.ranks() == 3);
  const std::string yaml = a.yaml();
  const config::TrainConfig config = config::parse_config(yaml, "x", {});
  CHECK(config.model.path == "here");
  CHECK(config.model.preset.empty());
  CHECK(config.train.eval_every.epoch);  // it has an effect now
  for (const char* line : {"#   --ranks 3: mpirun -n 3 ", "# --model here\n",
                           "#   arch: gpt2 (f.yaml:1): --model here counts more\n",
                           "#   n: 8 (f.yaml:3): --ranks 3 counts more\n"}) {
    CHECK_MESSAGE(test::contains(yaml, line), line);
  }
}

TEST_CASE("adoption: warnings are notes that the command prints, too") {
  Adoption a("test", "f.yaml", {});
  CHECK(warnings_of(a.yaml()).empty());
  a.warn("half is lost");
  a.note("no warning: this");
  a.warn("it is off");
  CHECK(warnings_of(a.yaml()) == std::vector<std::string>{"half is lost", "it is off"});
}

TEST_CASE("adoption: a text of several lines stays in its comment") {
  Adoption a("test", "two\nlines", {});
  a.leave(given("x", "1\nmodel: {preset: a}", 1), "of no use");
  CHECK(config::to_yaml(config::parse_config(a.yaml(), "x", {})) ==
        config::to_yaml(config::TrainConfig()));
}

TEST_CASE("adoption: contradictions and values that we refuse name their place") {
  Adoption a("test", "f.yaml", {});
  a.set("train.lr", "1", given("lr", "1", 1));
  a.set("train.lr", "1", given("rate", "1", 2));
  CHECK(test::error_of([&] { a.set("train.lr", "2", given("speed", "2", 3)); }) ==
        "f.yaml:3: speed: 2 contradicts lr: 1 (f.yaml:1)");
  CHECK(test::error_of([&] { a.set_ranks(0, given("n", "0", 4)); }) ==
        "f.yaml:4: n: expected a number of ranks from 1, got \"0\"");
  a.set_ranks(2, given("n", "2", 5));
  CHECK(test::contains(test::error_of([&] { a.set_ranks(3, given("m", "3", 6)); }), "got 2 and 3"));
  // The same number in other words is none.
  a.set("train.lr", "1.0e0", given("pace", "1.0e0", 6));
  a.set("train.log_every", "0", given("log", "0", 7));
  CHECK(test::error_of([&] { a.yaml(); }) ==
        "f.yaml:7: log: train.log_every: expected at least 1, got 0");
}

TEST_CASE("adoption: values of the source by kind") {
  CHECK(given("a", "True", 1).truth());
  CHECK_FALSE(given("a", "no", 1).truth());
  CHECK(given("a", "1e8", 1).whole() == 100000000);
  CHECK(given("a", "3.0", 1).whole() == 3);
  CHECK(test::error_of([] { static_cast<void>(given("a", "x", 1).truth()); }) ==
        "f.yaml:1: a: expected true or false, got \"x\"");
  CHECK(test::error_of([] { static_cast<void>(given("a", "1.5", 1).whole()); }) ==
        "f.yaml:1: a: expected an integer, got \"1.5\"");
  CHECK(test::error_of([] { static_cast<void>(given("a", "1e400", 1).number()); }) ==
        "f.yaml:1: a: expected a number, got \"1e400\"");
  for (const char* yes : {"y", "T", "On", "YES", "1", "true"}) CHECK(given("a", yes, 1).truth());
  for (const char* no : {"n", "F", "off", "NO", "0", "False"}) {
    CHECK(given("a", no, 1).says_truth());
    CHECK_FALSE(given("a", no, 1).truth());
  }
  CHECK_FALSE(given("a", "2", 1).says_truth());
  CHECK(is_off(given("a", "None", 1)));
  CHECK(is_off({.key = "a", .is_list = true}));
  CHECK_FALSE(is_off(given("a", "cpu", 1)));
}

TEST_CASE("adoption: passwords, tokens and API keys are never printed") {
  for (const char* key : {"hub_token", "push_to_hub_token", "HF_TOKEN", "WANDB_API_KEY",
                          "--hub-token", "trainer.Password", "client_secret"}) {
    CAPTURE(key);
    const Given secret = given(key, "hf_SECRET123", 1);
    Adoption a("test", "f.yaml", {});
    a.leave(secret, "nothing is sent");
    CHECK_FALSE(test::contains(a.yaml(), "SECRET123"));
    CHECK(test::contains(a.yaml(), "(hidden)"));
    CHECK_FALSE(test::contains(test::error_of([&] { secret.fail("a name"); }), "SECRET123"));
    CHECK_FALSE(test::contains(test::error_of([&] { secret.refuse("no"); }), "SECRET123"));
  }
  CHECK(given("--max-tokens", "2048", 1).text() == "2048");
  CHECK(given("eos_token", "</s>", 1).text() == "</s>");
}

TEST_CASE("adoption: a value that nothing took is an error, not lost") {
  Adoption a("test", "f.yaml", {given("rate", "1", 3), given("pace", "2", 4)});
  a.set("train.lr", "1", a.given()[0]);
  CHECK(test::error_of([&] { a.yaml(); }) ==
        "f.yaml:4: pace: fsdp adopt test reads this key and does nothing with it: a mistake of "
        "fsdp");
  a.off(a.given()[1]);
  CHECK(test::contains(a.yaml(), "# Off there, and here: pace\n"));
}

TEST_CASE("adoption: a long list of what is off has lines of 100 characters") {
  Adoption a("test", "f.yaml", {});
  for (int i = 0; i < 20; ++i) a.off(given("a_rather_long_key_" + std::to_string(i), "false", i));
  const std::string text = a.yaml();
  CHECK(test::contains(text, "# Off there, and here: a_rather_long_key_0, a_rather"));
  CHECK(test::contains(text, "\n#   a_rather_long_key_"));
  for (size_t at = text.find("# Off"), end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    CHECK(end - at <= 100);
  }
}

TEST_CASE("adopt: what is refused of each program's file, or of its command") {
  using Adopt = std::string (*)(const std::filesystem::path&, const AdoptOptions&);
  const std::map<std::string, std::pair<Adopt, const char*>> programs = {
      {"accelerate", {adopt_accelerate, "a.yaml"}},
      {"axolotl", {adopt_axolotl, "a.yml"}},
      {"deepspeed", {adopt_deepspeed, "ds.json"}},
      {"hf", {adopt_hugging_face, "a.yaml"}},
      {"llamafactory", {adopt_llama_factory, "a.yaml"}}};
  const test::TempFolder folder;
  const std::string place = folder.path().string() + "/";
  test::check_refused("adopt/refused.json", [&](const Json& each) {
    if (const Json* words = each.find("words")) {
      const auto command = words->get<std::vector<std::string>>();
      const auto adopted = each["program"] == "chess" ? adopt_chess : adopt_fairseq;
      return test::error_of([&] { adopted(command, {}); });
    }
    const auto& [adopt, name] = programs.at(each["program"].text());
    const auto file = folder.write(name, each["file"].text());
    const std::string error = test::error_of([&, adopt = adopt] { adopt(file, {}); });
    return error.starts_with(place) ? error.substr(place.size()) : error;
  });
}

}  // namespace
}  // namespace fsdp::adopt
