// Which files a configuration means: beside it or here, folders, patterns, several sources.
#include "tools/train/data_paths.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"

namespace fsdp::tools {
namespace {

TEST_CASE("data paths: they are looked for here, then beside the configuration") {
  const test::TempFolder folder;
  folder.write("beside.txt", "x");
  const std::filesystem::path config_file = folder / "config.yaml";
  CHECK(resolve_path("beside.txt", config_file) == (folder / "beside.txt").string());
  CHECK(resolve_path("nowhere.txt", config_file) == "nowhere.txt");
  CHECK(resolve_path("/absolute.txt", config_file) == "/absolute.txt");
  CHECK(resolve_path("", config_file) == "");
}

TEST_CASE("data paths: a recipe's files are those beside it, and one of two is named") {
  const test::TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(folder / "recipe");
  folder.write("train.txt", "here");
  folder.write("recipe/train.txt", "beside");
  folder.write("only_here.txt", "here");
  std::filesystem::current_path(folder.path());
  const std::filesystem::path file = "recipe/base.yaml";
  const auto find = [&](LookFirst first, const std::string& place) {
    config::TrainConfig config;
    config.data.train = {"train.txt", "*.txt"};
    config.places["data.train"] = place;
    std::vector<std::string> out = find_texts(config, file, first);
    out.insert(out.begin(), config.data.train.begin(), config.data.train.end());
    return out;
  };
  CHECK(resolve_path("train.txt", file, LookFirst::kBeside) == "recipe/train.txt");
  CHECK(resolve_path("train.txt", file) == "train.txt");
  CHECK(resolve_path("only_here.txt", file, LookFirst::kBeside) == "only_here.txt");
  using Strings = std::vector<std::string>;
  CHECK(find(LookFirst::kBeside, "recipe/base.yaml:1") ==
        Strings{"recipe/train.txt", "recipe/train.txt",
                "data.train: train.txt: the one next to recipe/base.yaml is read, not the one in "
                "the current folder"});
  const Strings here = {"train.txt", "only_here.txt", "train.txt",
                        "data.train: train.txt: the one in the current folder is read, not the "
                        "one next to recipe/base.yaml"};
  CHECK(find(LookFirst::kHere, "recipe/base.yaml:1") == here);
  CHECK(find(LookFirst::kBeside, "--set data.train=...") == here);
  std::filesystem::current_path(before);
}

struct Paths {
  test::TempFolder folder;
  config::TrainConfig config;

  Paths() { std::filesystem::create_directory(folder / "texts"); }
  std::string name(const char* file) { return (folder / file).string(); }
  std::vector<std::string> find() { return find_texts(config, folder / "config.yaml"); }
};

TEST_CASE_FIXTURE(Paths, "data paths: folders and patterns become files, here or beside the file") {
  folder.write("texts/b.jsonl", "{\"text\": \"bb\"}\n");
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("texts/c.txt", "cc");
  config.data.train = {"texts/*.jsonl", name("texts/c.txt"), "nowhere.txt"};
  config.data.validation = {"texts"};
  find();
  CHECK(config.data.train == std::vector<std::string>{name("texts/a.jsonl"), name("texts/b.jsonl"),
                                                      name("texts/c.txt"), "nowhere.txt"});
  CHECK(config.data.validation == std::vector<std::string>{name("texts/a.jsonl"),
                                                           name("texts/b.jsonl"),
                                                           name("texts/c.txt")});
  const auto before = config.data.train;
  find();
  CHECK(config.data.train == before);
}

TEST_CASE_FIXTURE(Paths, "data paths: files of a folder that are left out are noted") {
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("texts/b.jsonl.gz", "\x1f\x8b\x08");
  folder.write("texts/README.md", "aa");
  config.data.train = {"texts"};
  config.data.validation = {"texts/a.jsonl"};
  const auto note = [&](const char* what) {
    return fmt::format("data.train: {}: {} {}: expected a text of UTF-8, got a file compressed by ",
                       name("texts"), what, name("texts/b.jsonl.gz"));
  };
  std::vector<std::string> notes = find();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with(note("1 file of another kind is left out, that is")));
  CHECK(find().empty());  // files, now
  folder.write("texts/c.parquet", "PAR1 PAR1");
  config.data.train = {"texts"};
  notes = find();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with(note("2 files of other kinds are left out, the first is")));
}

TEST_CASE_FIXTURE(Paths, "data paths: an included file's names are looked for beside that file") {
  folder.write("texts/a.txt", "aa");
  config.data.train = {"a.txt"};
  config.places["data.train"] = name("texts/base.yaml") + ":1";
  find();
  CHECK(config.data.train == std::vector<std::string>{name("texts/a.txt")});
  config.data.train = {"a.txt"};
  config.places["data.train"] = "--set data.train=a.txt";
  find();
  CHECK(config.data.train == std::vector<std::string>{"a.txt"});
}

TEST_CASE_FIXTURE(Paths, "data paths: a cache with two snapshots is told by its key and place") {
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directories(folder / "models--org--name/snapshots" / name);
  }
  config.model.path = name("models--org--name");
  config.places["model.path"] = "config.yaml:3";
  const std::string said = test::error_of([&] { resolve_paths(config, folder / "config.yaml"); });
  CAPTURE(said);
  CHECK(test::contains(said, "model.path: " + config.model.path + ": a folder of the hub's cache"));
  CHECK(test::contains(said, "config.yaml:3"));
}

TEST_CASE_FIXTURE(Paths, "data paths: each source has its own files") {
  folder.write("texts/b.jsonl", "{\"text\": \"bb\"}\n");
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("c.txt", "cc");
  config.data.sources = {{.path = {"texts/*.jsonl", "nowhere.txt"}, .weight = 2},
                         {.path = {"c.txt"}}};
  find();
  CHECK(config.data.sources[0].path ==
        std::vector<std::string>{name("texts/a.jsonl"), name("texts/b.jsonl"), "nowhere.txt"});
  CHECK(config.data.sources[0].weight == 2);
  CHECK(config.data.sources[1].path == std::vector<std::string>{name("c.txt")});
  config.data.sources = {{.path = {"c.txt"}}};
  config.places["data.sources"] = "--set data.sources=[{path: c.txt}]";
  find();
  CHECK(config.data.sources[0].path == std::vector<std::string>{name("c.txt")});
  config.data.sources = {{.path = {"**/c.txt"}}};
  config.places["data.sources"] = name("config.yaml") + ":7";
  CHECK(test::error_of([&] {
          find();
        }).starts_with(name("config.yaml") + ":7: data.sources: **/c.txt: expected a pattern"));
}

// A folder with a file of conversations, t.jsonl.
struct ChatPaths : Paths {
  std::vector<std::string> resolve() { return resolve_paths(config, folder / "config.yaml"); }

  ChatPaths() {
    write_rows("t.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})");
    config.data.train = {name("t.jsonl")};
    config.data.tokenizer = "bytes";
  }
  void write_rows(const char* file, const std::string& first) const {
    folder.write(file, first + "\n{\"text\": \"a\"}\n");
  }
};

TEST_CASE_FIXTURE(ChatPaths, "data paths: the first row tells whether rows are conversations") {
  using data::TextFormat;
  CHECK(resolve().empty());
  CHECK(config.data.format == TextFormat::kMessages);
  const auto format_after = [&](const std::string& first) {
    write_rows("t.jsonl", first);
    config.data.format = TextFormat::kAuto;
    resolve();
    return config.data.format.own;
  };
  CHECK(format_after("{\"text\": \"a\"}") == TextFormat::kAuto);
  CHECK(format_after("{\"prompt\": \"a\", \"completion\": \"b\"}") == TextFormat::kMessages);
  const std::string talk = "{\"talk\": []}";
  CHECK(format_after(talk) == TextFormat::kAuto);
  config.data.chat.messages_field = "talk";
  CHECK(format_after(talk) == TextFormat::kMessages);
  config.data.chat.messages_field.clear();
  // A template of the user's own makes a text of a row, whatever the row is.
  config.data.row_template = folder.write("t.txt", "{messages}").string();
  CHECK(format_after("{\"messages\": []}") == TextFormat::kAuto);
  config.data.row_template.clear();
  // Then they are padded, on the tokenizer's side.
  folder.write("tokenizer.json", "{}");
  folder.write("tokenizer_config.json", "{\"padding_side\": \"left\"}");
  config.data.tokenizer = folder.path().string();
  CHECK(format_after("{\"text\": \"a\"}") == TextFormat::kAuto);
  CHECK_FALSE(config.data.pad);
  CHECK(format_after("{\"messages\": []}") == TextFormat::kMessages);
  CHECK((config.data.pad == data::PadSide::kLeft));
  // Where the format is said, nobody asks.
  write_rows("t.jsonl", "{\"messages\": []}");
  config.data.format = TextFormat::kJsonl;
  resolve();
  CHECK(config.data.format == TextFormat::kJsonl);
}

TEST_CASE_FIXTURE(ChatPaths,
                  "data paths: the first row of the first file, of a source, to evaluate") {
  using data::TextFormat;
  folder.write("texts/a.jsonl", "{\"text\": \"a\"}\n");
  const auto format_of_files = [&] {
    config.data.format = TextFormat::kAuto;
    resolve();
    return config.data.format.own;
  };
  config.data.train = {name("texts/a.jsonl"), name("t.jsonl")};
  CHECK(format_of_files() == TextFormat::kAuto);
  config.data.train = {name("t.jsonl"), name("texts/a.jsonl")};
  CHECK(format_of_files() == TextFormat::kMessages);
  config.data.train = {"*.jsonl"};  // next to the configuration
  CHECK(format_of_files() == TextFormat::kMessages);
  config.data.train.clear();
  CHECK(format_of_files() == TextFormat::kAuto);
  config.data.validation = {name("t.jsonl")};
  CHECK(format_of_files() == TextFormat::kMessages);
  config.data.train = {name("texts/a.jsonl")};
  CHECK(format_of_files() == TextFormat::kAuto);  // the training data says it
  config.data.train.clear();
  config.data.validation = {"50%"};
  config.data.sources = {{.path = {name("t.jsonl")}}, {.path = {name("texts/a.jsonl")}}};
  CHECK(format_of_files() == TextFormat::kMessages);
  config.data.sources.clear();
  config.data.train = {name("none.jsonl")};
  CHECK(format_of_files() == TextFormat::kAuto);
}

TEST_CASE_FIXTURE(ChatPaths, "data paths: conversations, and keys that contradict them") {
  config.data.objective = data::Objective::kMaskPad;
  config.places["data.objective"] = "config.yaml:3";
  CHECK(test::error_of([&] { resolve(); })
            .starts_with(name("t.jsonl") +
                         ": its rows are conversations (data.format: messages): config.yaml:3: "
                         "data.objective: expected none with data.format: messages, got mask_pad"));
  config.data.format = data::TextFormat::kAuto;
  config.data.objective = data::Objective::kLm;
  config.data.pack = data::Pack::kStream;
  CHECK(
      test::error_of([&] { resolve(); })
          .ends_with(
              "data.pack: expected examples or documents with data.format: messages, got stream"));
}

TEST_CASE_FIXTURE(ChatPaths, "data paths: a row with the text that is asked for is a text") {
  using data::TextFormat;
  const auto format_after = [&](const std::string& first) {
    write_rows("t.jsonl", first);
    config.data.format = TextFormat::kAuto;
    resolve();
    return config.data.format.own;
  };
  const std::string both = "{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}";
  CHECK(format_after(both) == TextFormat::kAuto);
  config.data.field = "prompt";
  config.places["data.field"] = "config.yaml:2";
  CHECK(format_after("{\"messages\": []}") == TextFormat::kAuto);
}

TEST_CASE_FIXTURE(ChatPaths, "data paths: keys of conversations on rows of text") {
  write_rows("t.jsonl", "{\"text\": \"a\"}");
  const std::string rows =
      ": last has no effect on the rows of " + name("t.jsonl") + ", which are no conversations";
  config.data.chat.train_on = data::TrainOn::kLast;
  config.places["data.train_on"] = "config.yaml:3";
  CHECK(test::error_of([&] { resolve(); }) == "config.yaml:3: data.train_on" + rows);
  config.data.chat.train_on = data::TrainOn::kAssistant;
  config.data.pad = data::PadSide::kLeft;
  CHECK(test::error_of([&] { resolve(); }) ==
        "data.pad: left has no effect with data.pack: stream");
  config.data.pack = data::Pack::kExamples;  // where it has one
  CHECK(test::error_of([&] { resolve(); }) == "");
  config.data.pack.reset();
  write_rows("t.jsonl", "{\"messages\": []}");
  CHECK(test::error_of([&] { resolve(); }) == "");
  CHECK(config.data.format == data::TextFormat::kMessages);
}

TEST_CASE_FIXTURE(ChatPaths,
                  "data paths: a chat template next to the configuration, or by its name") {
  folder.write("chatml", "a file of that name");
  folder.write("t.jinja", "a");
  const auto resolved = [&](const std::string& given) {
    config.data.chat.chat_template = given;
    resolve();
    return config.data.chat.chat_template;
  };
  CHECK(resolved("t.jinja") == name("t.jinja"));
  CHECK(resolved("chatml") == "chatml");
  CHECK(resolved("./chatml") == name("chatml"));
  CHECK(resolved("") == "");
  CHECK(resolved("/none.jinja") == "/none.jinja");  // TrainData refuses it
  folder.write("texts/t.jinja", "b");
  config.places["data.chat_template"] = name("texts/base.yaml") + ":2";  // which is included
  CHECK(resolved("t.jinja") == name("texts/t.jinja"));
  config.places["data.chat_template"] = "--set data.chat_template=t.jinja";
  CHECK(resolved("t.jinja") == name("t.jinja"));
}

}  // namespace
}  // namespace fsdp::tools
