// The keys of `data`: what they mean that are left open, other names, and what contradicts.
#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/support/temp_folder.h"
#include "tools/config/config.h"
#include "tools/config/key_values.h"

namespace fsdp::config {
namespace {

DataSection data_of(const std::vector<Override>& overrides) {
  return parse_config("", "a.yaml", overrides).data;
}

std::string refusal(const std::vector<Override>& overrides) {
  return test::error_of([&] { data_of(overrides); });
}

TEST_CASE("what is left open follows from the objective") {
  using data::Pack;
  CHECK(data_of({}).packing() == Pack::kStream);
  CHECK(data_of({"data.objective=sft"}).packing() == Pack::kExamples);
  CHECK(data_of({"data.pack=examples"}).packing() == Pack::kExamples);
  CHECK(data_of({"data.pack=wikitext_rows"}).packing() == Pack::kWikitextRows);
  CHECK(data_of({"data.pack=documents", "data.objective=sft"}).packing() == Pack::kDocuments);
  CHECK(data_of({}).separates_documents());
  CHECK_FALSE(data_of({"data.pack=wikitext_rows"}).separates_documents());
  CHECK(data_of({"data.pack=wikitext_rows", "data.document_separator=true"}).separates_documents());
  CHECK(data_of({"data.objective=sft"}).padded_to() == data::PadTo::kLongest);
  CHECK(data_of({"data.objective=compat_all"}).padded_to() == data::PadTo::kLength);
  CHECK(data_of({"data.objective=sft", "data.pad_to=length"}).padded_to() == data::PadTo::kLength);
}

TEST_CASE("padding is hidden where something could see it") {
  CHECK_FALSE(data_of({}).hides_padding());
  CHECK_FALSE(data_of({"data.objective=sft"}).hides_padding());
  CHECK(data_of({"data.objective=sft", "data.pad=left"}).hides_padding());
  CHECK(data_of({"data.objective=compat_all"}).hides_padding());
  CHECK_FALSE(data_of({"data.objective=sft", "data.pack=documents"}).hides_padding());
}

TEST_CASE("documents that share a sequence: keys, and what contradicts") {
  const DataSection c =
      data_of({"data.pack=documents", "data.pack_window=7", "data.long_rows=fail"});
  CHECK(c.pack_window == 7);
  CHECK(c.long_rows == data::LongRows::kFail);
  CHECK(data_of({"data.pack=documents"}).pack_window == 100'000);
  CHECK(data_of({"data.pack=documents", "data.format=messages"}).is_chat());
  const std::pair<std::vector<Override>, const char*> cases[] = {
      {{"data.pack=documents", "data.objective=compat_all"},
       "data.objective: compat_all: expected data.pack: examples, got documents"},
      {{"data.pack=documents", "data.objective=kaust_compat"},
       "data.objective: kaust_compat: expected data.pack: examples, got documents"},
      {{"data.pack=documents", "data.pad=left"},
       "data.pad: left has no effect with data.pack: documents"},
      {{"data.pack=documents", "data.pad_to=longest"},
       "data.pad_to: longest has no effect with data.pack: documents"},
      {{"data.pack=documents", "data.pack_window=0"}, "data.pack_window: expected"},
      {{"data.pack=documents", "data.long_rows=split"}, "expected one of cut, drop, fail"},
      {{"data.pack_window=7"}, "data.pack_window: 7 has no effect with data.pack: stream"},
      {{"data.pack=documents", "data.document_attention=own"},
       "data.document_attention: own has no effect with data.pack: documents"},
      {{"data.document_attention=own", "data.document_separator=false"},
       "data.document_attention: own: expected data.document_separator: true, got false: nothing "
       "says where a document ends"},
      {{"data.pack=examples", "data.long_rows=drop"},
       "data.long_rows: drop has no effect with data.pack: examples"},
      {{"data.pack=documents", "data.format=synthetic"},
       "data.pack: documents has no effect with data.format: synthetic"}};
  for (const auto& [overrides, expected] : cases) {
    CAPTURE(expected);
    CHECK(test::contains(refusal(overrides), expected));
  }
}

TEST_CASE("a share of the data, and names of the length") {
  CHECK(data_of({"data.validation=12.5%"}).held_out() == 0.125);
  CHECK_FALSE(data_of({"data.validation=a.txt"}).held_out());
  CHECK_FALSE(data_of({"data.validation=[a.txt, b.txt]"}).held_out());
  for (const char* name : {"max_seq_length", "max_length", "MAX_LENGTH"}) {
    CHECK(data_of({std::string("data.") + name + "=512"}).sequence_length == 512);
  }
}

TEST_CASE("several sources with weights: in a file, as --set, written and read back") {
  const char* const yaml =
      "data:\n  sources:\n  - {path: a.jsonl, weight: 2.5}\n  - path: [b.txt, c/*.txt]\n";
  const TrainConfig c = parse_config(yaml, "x.yaml", {});
  REQUIRE(c.data.sources.size() == 2);
  CHECK(c.data.sources[0].path == std::vector<std::string>{"a.jsonl"});
  CHECK(c.data.sources[0].weight == 2.5);
  CHECK(c.data.sources[1].weight == 1);
  CHECK(c.data.training_files() == std::vector<std::string>{"a.jsonl", "b.txt", "c/*.txt"});
  CHECK(test::contains(to_yaml(c),
                       "  sources: [{path: [\"a.jsonl\"], weight: 2.5}, "
                       "{path: [\"b.txt\", \"c/*.txt\"], weight: 1}]\n"));
  const TrainConfig again = parse_config(to_yaml(c), "y.yaml", {});
  CHECK(key_values(again) == key_values(c));
  CHECK(data_of({"data.sources=[{path: a.txt, weight: 3}]"}).sources[0].weight == 3);

  const auto in_file = [](const std::string& sources) {
    const std::string text = "data:\n  sources:\n  - " + sources;
    return test::error_of([&] { parse_config(text, "x.yaml", {}); });
  };
  CHECK(in_file("{path: a, weight: 0}") ==
        "x.yaml:3: data.sources: weight: expected a number from 1e-06 to 1000000, got 0");
  CHECK(in_file("{path: a, weight: -2}") ==
        "x.yaml:3: data.sources: weight: expected a number from 1e-06 to 1000000, got -2");
  CHECK(in_file("{path: a, weight: much}") ==
        "x.yaml:3: data.sources.weight: expected a number, got \"much\"");
  CHECK(in_file("{path: a, weight: .inf}") ==
        "x.yaml:3: data.sources.weight: expected a number, got \".inf\"");
  CHECK(in_file("{weight: 1}") ==
        "x.yaml:3: data.sources: path: expected a file, folder or pattern, got none");
  CHECK(test::contains(in_file("{path: a, wieght: 1}"),
                       "the nearest known key is \"data.sources.weight\""));
  CHECK(in_file("a.txt") ==
        "x.yaml:3: data.sources: expected a list of sections, got one of \"a.txt\"");
}

TEST_CASE("sources, and blocks of fairseq: what contradicts, or would do nothing") {
  const std::pair<std::vector<Override>, const char*> cases[] = {
      {{"data.sources=[{path: a}]", "data.train=b"},
       "data.train: expected nothing beside data.sources, got [\"b\"]; a source is a path with a "
       "weight"},
      {{"data.sources=[{path: a}, {path: b}]", "data.shuffle_rule=torch"},
       "data.shuffle_rule: expected feistel with data.sources, got torch"},
      {{"data.sources=[{path: a}]", "data.subset.n=3"},
       "data.subset.n: 3 has no effect with data.sources"},
      {{"data.sources=[{path: a}]", "data.format=synthetic"},
       "data.sources: [{path: [\"a\"], weight: 1}] has no effect with data.format: synthetic"},
      {{"data.sample_break_mode=eos"},
       "data.sample_break_mode: eos has no effect without data.format: fairseq"},
      {{"data.format=fairseq", "data.bad_rows=skip"},
       "data.bad_rows: skip has no effect with data.format: fairseq and data.sample_break_mode: "
       "none"},
      {{"data.format=fairseq", "data.pad_to=length"},
       "data.pad_to: length has no effect with data.format: fairseq and data.sample_break_mode: "
       "none"},
      {{"data.format=fairseq", "data.sample_break_mode=eos", "data.pad=left"},
       "data.pad: left has no effect with data.format: fairseq"},
      {{"data.sample_break_mode=lines", "data.format=fairseq"},
       "expected one of none, complete, complete_doc, eos, got \"lines\""}};
  for (const auto& [overrides, expected] : cases) {
    CAPTURE(expected);
    CHECK(test::contains(refusal(overrides), expected));
  }
  CHECK(refusal({"data.format=fairseq", "data.sources=[{path: a.bin}, {path: b.bin}]",
                 "data.sample_break_mode=complete", "data.bad_rows=skip", "data.pad_to=length"}) ==
        "");
}

TEST_CASE("keys that contradict each other, or would do nothing") {
  const std::pair<std::vector<Override>, const char*> cases[] = {
      {{"data.objective=sft", "data.pack=stream"},
       "data.objective: sft: expected data.pack: examples or documents, got stream: labels belong"},
      {{"data.objective=kaust_compat", "data.pad_to=longest"},
       "data.pad_to: expected length with data.objective: kaust_compat, got longest: its labels "
       "are padded to the length, whatever the rows"},
      {{"data.format=jsonl", "data.pad=left"},
       "data.pad: left has no effect with data.pack: stream"},
      {{"data.format=jsonl", "data.pad_to=length", "data.pack=wikitext_rows"},
       "data.pad_to: length has no effect with data.pack: wikitext_rows"},
      {{"data.field=f", "data.template=chess"},
       "data.field: \"f\" has no effect with data.template"},
      {{"data.field=f", "data.format=squad"},
       "data.field: \"f\" has no effect with data.format: squad"},
      {{"data.template=chess", "data.format=text"}, "has no effect on files of text"},
      {{"data.set_epoch=false", "data.shuffle=false"},
       "data.set_epoch: false has no effect with data.shuffle: false"},
      {{"data.shuffle_rule=torch", "data.last_batch=pad"},
       "data.last_batch: expected short or drop_last with data.shuffle_rule: torch, got pad"},
      {{"data.shuffle_rule=torch", "fsdp.fixed_order=true", "train.rows_per_pass=1"},
       "data.shuffle_rule: expected feistel with fsdp.fixed_order, got torch"},
      {{"data.validation=100%"}, "data.validation: expected a share between 0% and 100%"},
      {{"data.validation=x%"}, "data.validation: expected a share between 0% and 100%"},
      {{"data.validation=[5%, a.txt]"},
       "data.validation: expected one share or files, got a list of both"},
      {{"data.synthetic_rows=9"},
       "data.synthetic_rows: 9 has no effect without data.format: synthetic"},
      {{"data.format=synthetic", "data.validation=a.txt"},
       "data.validation: expected a share such as 5% with data.format: synthetic, got a.txt"},
      {{"data.format=synthetic", "data.objective=sft"},
       "data.objective: expected lm with data.format: synthetic, got sft"},
      {{"data.format=fairseq", "data.objective=mask_pad"},
       "data.objective: expected lm with data.format: fairseq, got mask_pad"},
      {{"data.format=fairseq", "data.tokenizer=bytes"},
       "data.tokenizer: \"bytes\" has no effect with data.format: fairseq"},
      {{"data.format=synthetic", "train.epochs=2"}, "data.synthetic_rows: train.epochs needs it"},
      {{"data.format=synthetic", "data.validation=5%"},
       "data.synthetic_rows: data.validation: 5% needs it: a share of how many sequences"},
      {{"data.format=synthetic", "data.shuffle=false"},
       "data.shuffle: false has no effect with data.format: synthetic"},
      {{"data.format=synthetic", "data.train=a.txt"}, "has no effect with data.format: synthetic"},
      {{"data.format=synthetic", "sample.tokens=5"},
       "sample.tokens: 5 has no effect with data.format: synthetic"}};
  for (const auto& [overrides, expected] : cases) {
    CAPTURE(expected);
    CHECK(test::contains(refusal(overrides), expected));
  }
  for (const std::vector<Override>& accepted : std::vector<std::vector<Override>>{
           {"data.objective=sft", "data.pad=left", "data.pad_to=length", "data.template=squad"},
           {"data.pack=wikitext_rows", "data.bad_rows=skip", "data.train=a.txt"},
           {"data.shuffle_rule=torch", "data.shuffle=false", "data.last_batch=drop_last"},
           {"data.format=fairseq", "data.train=a.bin", "data.validation=b.bin"},
           {"data.format=synthetic", "data.synthetic_rows=9", "data.validation=10%"}}) {
    CHECK(refusal(accepted) == "");
  }
}

std::string roles_in(const std::string& value) {
  return parse_config("data:\n  roles: " + value, "x.yaml", {}).data.chat.roles.value.dump();
}

std::string kwargs_by(const std::string& value) {
  return data_of({"data.chat_template_kwargs=" + value}).chat.template_kwargs.value.dump();
}

TEST_CASE("a map of the user's words: from YAML and as --set, with the types of YAML 1.2") {
  CHECK(DataSection().chat.template_kwargs.value.dump() == "{}");
  const std::string yaml =
      "data:\n  chat_template_kwargs:\n    enable_thinking: false\n    n: 5\n    text: \"5\"\n"
      "    single: 'true'\n    share: 0.5\n    large: 1e3\n    word: yes\n    empty: ~\n"
      "    list: [1, \"1\", {a: b}]\n    block: |\n      7\n    'quoted key': -1\n";
  CHECK(parse_config(yaml, "x.yaml", {}).data.chat.template_kwargs.value.dump() ==
        R"({"enable_thinking":false,"n":5,"text":"5","single":"true","share":0.5,"large":1000.0,)"
        R"("word":"yes","empty":null,"list":[1,"1",{"a":"b"}],"block":"7\n","quoted key":-1})");
  CHECK(kwargs_by("{enable_thinking: false, n: 5, t: \"5\"}") ==
        R"({"enable_thinking":false,"n":5,"t":"5"})");
  CHECK(kwargs_by(R"({"a":"b","c":[true,null]})") == R"({"a":"b","c":[true,null]})");
  CHECK(kwargs_by("{a: True, b: tRue, c: 007, d: 1.5.2, e: 2026-01-31, f: .5x}") ==
        R"({"a":true,"b":"tRue","c":"007","d":"1.5.2","e":"2026-01-31","f":".5x"})");
  CHECK(kwargs_by("{}") == "{}");
  CHECK(kwargs_by("") == "{}");  // as an empty value is elsewhere
  // The whole map is the value: --set replaces the file's.
  const TrainConfig both =
      parse_config("data: {roles: {bot: user}}", "x.yaml", {"data.roles={tester: tool}"});
  CHECK(both.data.chat.roles.value.dump() == R"({"tester":"tool"})");
  CHECK(roles_in("{bot: assistant, 7: user}") == R"({"bot":"assistant","7":"user"})");
  CHECK(roles_in("") == "{}");
}

TEST_CASE("a map is written so that it reads as itself") {
  const TrainConfig given = parse_config(
      "", "a.yaml",
      {R"(data.chat_template_kwargs={"b": 1, "a": "1", "t": "true", "n": "null", "l": ["", 2.0],)"
       R"( "q": "a \"b\": {c}\n# d", "u": "\u00e9 \u2028", "f": -0.25, "m": {"x": null}})",
       "data.roles={bot: assistant}"});
  const std::string text = to_yaml(given);
  CHECK(test::contains(text, "\n  roles: {\"bot\":\"assistant\"}\n"));
  const TrainConfig again = parse_config(text, "b.yaml", {});
  CHECK(again.data.chat.template_kwargs == given.data.chat.template_kwargs);
  CHECK(again.data.chat.template_kwargs.value.dump() ==
        given.data.chat.template_kwargs.value.dump());  // in this order, too
  CHECK(again.data.chat.roles == given.data.chat.roles);
  CHECK(key_values(again) == key_values(given));
  CHECK(again.notes.empty());
}

TEST_CASE("what is no map is refused") {
  const auto in_file = [](const std::string& value) {
    return test::error_of([&] { roles_in(value); });
  };
  const std::string wanted = "x.yaml:2: data.roles: expected a map such as {a: b}, got ";
  CHECK(in_file("assistant") == wanted + "\"assistant\"");
  CHECK(in_file("[bot, assistant]").starts_with(wanted));
  CHECK(refusal({"data.chat_template_kwargs=enable_thinking"}) ==
        "--set data.chat_template_kwargs=enable_thinking: data.chat_template_kwargs: expected a "
        "map such as {a: b}, got \"enable_thinking\"");
  CHECK(test::contains(refusal({"data.chat_template_kwargs=a: b"}),
                       "expected a map such as {a: b}, got \"a: b\""));
  CHECK(in_file("{bot: assistant").starts_with("x.yaml:2: malformed YAML: "));
}

TEST_CASE("keys of conversations: what is wrong with their values") {
  const std::string role = ": expected system, user, assistant or tool, got ";
  const std::pair<std::vector<Override>, std::string> cases[] = {
      {{"data.roles={bot: asistant}"}, "data.roles: bot" + role + "asistant"},
      {{"data.roles={a: user, bot: 5}"}, "data.roles: bot" + role + "5"},
      {{"data.roles={bot: {a: user}}"}, "data.roles: bot" + role + R"({"a":"user"})"},
      {{"data.roles={bot: null}"}, "data.roles: bot" + role + "null"},
      {{"data.chat_date=2026-02-30"},
       "data.chat_date: expected a date such as 2026-01-31, got \"2026-02-30\""},
      {{"data.chat_date=today"},
       "data.chat_date: expected a date such as 2026-01-31, got \"today\""},
      {{"data.train_on=user"}, "expected one of assistant, last, all, got \"user\""},
      {{"data.special_in_content=text"}, "expected one of as_special, as_text, got \"text\""},
      {{"data.max_untrained_rows=101%"},
       "expected an integer, or a share such as 10%, got \"101%\""},
      {{"data.max_untrained_rows=some"},
       "expected an integer, or a share such as 10%, got \"some\""},
      {{"data.format=messages", "data.objective=mask_pad"},
       "data.objective: expected none with data.format: messages, got mask_pad: data.train_on "
       "names "
       "the trained tokens"},
      {{"data.format=messages", "data.objective=kaust_compat"},
       "data.objective: expected none with data.format: messages, got kaust_compat"},
      {{"data.format=messages", "data.objective=sft", "data.train_on=all"},
       "data.objective: sft: data.train_on: all contradicts it"},
      {{"data.format=messages", "data.pack=stream"},
       "data.pack: expected examples or documents with data.format: messages, got stream"},
      {{"data.format=messages", "data.field=f"},
       "data.field: \"f\" has no effect with data.format: messages"},
      {{"data.format=messages", "data.template=squad"},
       "data.template: \"squad\" has no effect with data.format: messages"},
      {{"data.format=messages", "data.pack=wikitext_rows"},
       "data.pack: expected examples or documents with data.format: messages, got wikitext_rows"}};
  for (const auto& [overrides, expected] : cases) {
    CAPTURE(expected);
    CHECK(test::contains(refusal(overrides), expected));
  }
  for (const std::vector<Override>& accepted : std::vector<std::vector<Override>>{
           {"data.format=messages", "data.objective=sft", "data.train_on=last"},
           {"data.format=messages", "data.objective=lm", "data.pack=examples"},
           {"data.format=messages", "data.train_on=all", "data.pad=left", "data.pad_to=length"},
           {"data.format=messages", "data.bad_rows=skip", "data.max_untrained_rows=0"},
           {"data.roles={bot: assistant, observer: tool, root: system, me: user}"},
           {"data.chat_date=2024-02-29"},
           {"data.pad=left", "data.pad_to=length"},  // which wait for the first row
           {"data.chat_template=no/such/file", "data.train=a.jsonl"}}) {
    CHECK(refusal(accepted) == "");
  }
}

TEST_CASE("keys of conversations have no effect where no row is one") {
  const char* const keys[] = {"data.train_on=last",
                              "data.messages_field=m",
                              "data.roles={bot: user}",
                              "data.chat_template=chatml",
                              "data.chat_template_kwargs={a: 1}",
                              "data.chat_date=2026-01-31",
                              "data.special_in_content=as_text",
                              "data.max_untrained_rows=3"};
  for (const std::string key : keys) {
    CAPTURE(key);
    const std::string name = key.substr(0, key.find('='));
    for (const std::string format : {"jsonl", "alpaca", "text", "fairseq", "synthetic"}) {
      const std::string error = refusal({"data.format=" + format, key});
      CHECK(error.starts_with("--set " + key + ": " + name + ": "));
      CHECK(error.ends_with(" has no effect with data.format: " + format));
    }
    CHECK(refusal({key}) == "");  // the first row may be one
    CHECK(refusal({"data.format=messages", key}) == "");
  }
}

TEST_CASE("rows that are conversations: objective, packing and padding") {
  using data::Objective;
  CHECK(DataSection().chat.train_on == data::TrainOn::kAssistant);
  CHECK_FALSE(data_of({"data.format=jsonl"}).is_chat());
  const DataSection c = data_of({"data.format=messages"});
  CHECK(c.is_chat());
  CHECK(c.packing() == data::Pack::kExamples);
  CHECK(c.pads());
  CHECK(c.padded_to() == data::PadTo::kLongest);
  CHECK(c.objective_of_rows() == Objective::kSft);
  CHECK(data_of({"data.format=messages", "data.train_on=last"}).objective_of_rows() ==
        Objective::kSft);
  CHECK(data_of({"data.format=messages", "data.train_on=all"}).objective_of_rows() ==
        Objective::kLm);
  CHECK(data_of({"data.objective=mask_pad"}).objective_of_rows() == Objective::kMaskPad);
  CHECK(data_of({}).objective_of_rows() == Objective::kLm);
  CHECK_FALSE(c.hides_padding());
  CHECK(data_of({"data.format=messages", "data.pad=left"}).hides_padding());
  const DataSection said = data_of({"data.format=messages", "data.max_untrained_rows=2.5%",
                                    "data.special_in_content=as_text", "data.train_on=LAST"});
  CHECK(said.chat.max_untrained_rows.of(100) == 3);
  CHECK(said.chat.max_untrained_rows.of(0) == 0);
  CHECK(said.chat.max_untrained_rows.text() == "2.5%");
  CHECK(data_of({"data.max_untrained_rows=7"}).chat.max_untrained_rows.of(100) == 7);
  CHECK(data_of({"data.max_untrained_rows=0%"}).chat.max_untrained_rows.of(100) == 0);
  CHECK(DataSection().chat.max_untrained_rows.of(100) == 5);
  CHECK(said.chat.special_in_content == data::SpecialInContent::kAsText);
  CHECK(said.chat.train_on == data::TrainOn::kLast);
}

TEST_CASE("the keys survive being written") {
  const TrainConfig given = parse_config(
      "", "a.yaml",
      {"data.objective=sft", "data.pad=left", "data.pad_to=length", "data.template=squad",
       "data.shuffle_rule=torch", "data.set_epoch=false", "data.validation=5%"});
  CHECK(key_values(parse_config(to_yaml(given), "b.yaml", {})) == key_values(given));
}

}  // namespace
}  // namespace fsdp::config
