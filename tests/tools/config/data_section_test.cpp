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
