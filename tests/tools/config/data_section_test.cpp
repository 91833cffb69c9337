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
       "data.objective: sft: expected data.pack: examples, got stream: labels belong to rows"},
      {{"data.objective=kaust_compat", "data.pad_to=longest"},
       "data.pad_to: expected length with data.objective: kaust_compat, got longest: its labels "
       "are padded to the length, whatever the rows"},
      {{"data.pad=left"}, "data.pad: left has no effect with data.pack: stream"},
      {{"data.pad_to=length", "data.pack=wikitext_rows"},
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

TEST_CASE("the keys survive being written") {
  const TrainConfig given = parse_config(
      "", "a.yaml",
      {"data.objective=sft", "data.pad=left", "data.pad_to=length", "data.template=squad",
       "data.shuffle_rule=torch", "data.set_epoch=false", "data.validation=5%"});
  CHECK(key_values(parse_config(to_yaml(given), "b.yaml", {})) == key_values(given));
}

}  // namespace
}  // namespace fsdp::config
