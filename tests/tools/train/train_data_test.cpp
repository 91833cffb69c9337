// The text of a run as batches of ranks.
// Requirements: S3.15.
#include "tools/train/train_data.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "comm/local_transport.h"
#include "tests/support/temp_folder.h"
#include "tools/launch/launch.h"
#include "tools/train/data_paths.h"

namespace fsdp::tools {
namespace {

config::TrainConfig config_of(const test::TempFolder& folder, int64_t batch) {
  config::TrainConfig config;
  config.data.train = {(folder / "train.txt").string()};
  config.data.validation = {(folder / "validation.txt").string()};
  config.data.cache_dir = (folder / "cache").string();
  config.data.sequence_length = 4;
  config.train.batch = batch;
  return config;
}

TEST_CASE("train data: the vocabulary where no text is read") {
  config::TrainConfig config;
  config.model.preset = "gpt2-124m";
  CHECK(vocabulary_of(config) == 50257);  // as published
  config.data.train = {"text.txt"};
  CHECK(vocabulary_of(config) == 257);  // of bytes
  config.data.train.clear();
  config.data.tokenizer = "bytes";
  CHECK(vocabulary_of(config) == 257);
}

TEST_CASE("train data: ranks get disjoint rows that make up the batches of one rank") {
  const test::TempFolder folder;
  folder.write("train.txt", "abcdefghijklmnopqrstuvwxyz0123456789");  // 37 tokens: 9 sequences
  folder.write("validation.txt", "The quick brown fox");              // 20 tokens: 5 sequences
  for (const int world_size : {1, 2, 3}) {
    std::vector<std::vector<int64_t>> samples(static_cast<size_t>(world_size));
    int64_t global_labels = 0;
    comm::run_local_ranks(world_size, [&](comm::Communicator& world) {
      const TrainData data(world, config_of(folder, 4));
      std::vector<int64_t>& mine = samples[static_cast<size_t>(world.rank())];
      for (int64_t step = 0; step < 3; ++step) {
        const Batch batch = data.training({}).get(step);
        CHECK(batch.length == 4);
        CHECK(batch.tokens.size() == static_cast<size_t>(batch.rows * 4));
        mine.insert(mine.end(), batch.samples.begin(), batch.samples.end());
        if (world.rank() == 0) global_labels += batch.global_label_tokens;
      }
      CHECK(data.validation({}).batches == 2);
      CHECK(data.validation({}).get(1).global_label_tokens == 3);
      CHECK(data.training({.shifted_labels = false}).get(0).global_label_tokens == 4 * 4);
      CHECK(data.validation({.shifted_labels = false}).get(1).global_label_tokens == 4);
      CHECK(data.bigram_entropy().has_value());
    });
    std::vector<int64_t> all;
    for (const auto& mine : samples) all.insert(all.end(), mine.begin(), mine.end());
    std::sort(all.begin(), all.end());
    CHECK(all == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
    CHECK(global_labels == 9 * 3);
  }
}

// What TrainData says on `ranks` ranks.
std::string error_on(int ranks, const config::TrainConfig& config) {
  std::string message;
  comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
    try {
      TrainData data(world, config);
      agree(world, [&] { data.check_vocabulary(100); });
    } catch (const AgreedError& error) {
      if (world.rank() == 0) message = error.what();
    }
  });
  return message;
}

TEST_CASE("train data: errors that all ranks agree on") {
  const test::TempFolder folder;
  folder.write("train.txt", "abcdefghijklmnopqrstuvwxyz0123456789");
  folder.write("validation.txt", "The quick brown fox");
  CHECK(test::contains(error_on(3, config_of(folder, 2)), "2 sequences"));
  CHECK(test::contains(error_on(3, config_of(folder, 2)), "3 ranks"));
  CHECK(test::contains(error_on(2, config_of(folder, 2)), "257"));  // against a vocabulary of 100
  CHECK(test::contains(error_on(2, config_of(folder, 2)), "100"));
  config::TrainConfig missing = config_of(folder, 2);
  missing.data.train = {(folder / "missing.txt").string()};
  CHECK(test::contains(error_on(2, missing), "missing.txt"));
  missing.places["data.train"] = "run.yaml:7";
  CHECK(error_on(2, missing) ==
        "run.yaml:7: data.train: " + missing.data.train[0] + ": no such file");
  missing.data.train.clear();
  CHECK(test::contains(error_on(2, missing), "data.train"));
}

// Of a text it hands on one part after the other, each after a pause.
class SlowTokenizer : public data::ByteTokenizer {
 public:
  SlowTokenizer(size_t parts, std::chrono::milliseconds pause) : parts_(parts), pause_(pause) {}
  void encode_to(std::string_view text, data::SpecialTokens special,
                 const UseIds& use) const override {
    if (text.size() < parts_) return ByteTokenizer::encode_to(text, special, use);
    const size_t part = text.size() / parts_;
    for (size_t i = 0; i < parts_; ++i) {
      std::this_thread::sleep_for(pause_);
      ByteTokenizer::encode_to(text.substr(i * part, part), special, use);
    }
  }

 private:
  size_t parts_;
  std::chrono::milliseconds pause_;
};

TEST_CASE("train data: ranks wait for one that makes tokens as long as it goes on") {
  const test::TempFolder folder;
  data::TokenSource source = {.files = {folder.write("a.txt", "abcdefgh")}};
  std::vector<std::string> phases(2);
  const auto error_with = [&](const data::Tokenizer& tokenizer) {
    return test::error_of([&] {
      comm::run_local_ranks(2,
                            [&](comm::Communicator& world) {
                              std::string& phase = phases[static_cast<size_t>(world.rank())];
                              data::TokenSource told = source;
                              told.text.progress = world.rings()->progress().get();
                              world.rings()->set_phase({.whole = "before", .innermost = {}});
                              try {
                                open_token_cache(world, (folder / "cache").string(), told,
                                                 tokenizer);
                                phase = world.rings()->phase().whole;
                              } catch (const Error&) {
                                phase = world.rings()->phase().whole;
                                throw;
                              }
                            },
                            {.timeout = std::chrono::milliseconds(500)});
    });
  };
  const std::chrono::milliseconds pause(100);
  CHECK(error_with(SlowTokenizer(8, pause)) == "");
  CHECK(phases == std::vector<std::string>{"before", "before"});
  source.document_separator = false;  // other tokens
  CHECK(test::contains(error_with(SlowTokenizer(1, 15 * pause)), "rank 1 waited 0.5 s for rank 0"));
  CHECK(phases == std::vector<std::string>{"tokenising", "tokenising"});
}

// deepseek-llm-7b has 100,015 tokens and 102,400 rows.
TEST_CASE("train data: a table that is far larger or smaller than the tokenizer is a note") {
  const data::ByteTokenizer tokenizer;  // of another name than "bytes", as one of a folder
  const auto note = [&](int64_t rows) {
    return check_vocabulary("here", "a.json", tokenizer, rows);
  };
  CHECK(note(257) == "");
  CHECK(note(1024) == "");
  CHECK(note(1025) ==
        "the tokenizer a.json has 257 tokens, the model's table 1025 rows: more than padding "
        "explains; check that the tokenizer belongs to the model");
  CHECK(
      note(256) ==
      "the tokenizer a.json has 257 tokens, the model 256: a text with a token from 256 (\"\") on "
      "is an error");
  CHECK(test::error_of([&] { check_vocabulary("here", "bytes", tokenizer, 256); }) ==
        "here: vocabulary mismatch: its tokenizer bytes has 257 tokens, the model 256 "
        "(model.vocab_size)");
  CHECK(fits_bytes(257));
  CHECK(fits_bytes(1024));
  CHECK_FALSE(fits_bytes(256));
  CHECK_FALSE(fits_bytes(1025));
}

TEST_CASE("train data: ranks whose text differs are refused") {
  const test::TempFolder one, other;
  for (const auto& [folder, text] :
       {std::pair{&one, "abcdefghijklmnopqrs"}, {&other, "abcdefghi"}}) {
    folder->write("train.txt", text);
    folder->write("validation.txt", "The quick brown fox");
    comm::run_local_ranks(1, [&](comm::Communicator& alone) {
      TrainData(alone, config_of(*folder, 4));  // makes its cache
    });
  }
  comm::run_local_ranks(3, [&](comm::Communicator& world) {
    const config::TrainConfig config = config_of(world.rank() == 2 ? other : one, 4);
    const std::string message = test::error_of([&] { TrainData(world, config); });
    CHECK(
        test::contains(message, "the ranks have different tokens: rank 2 has 10, rank 0 has 20;"));
  });
}

TEST_CASE("train data: a model of another vocabulary is refused, a padded one is not") {
  const test::TempFolder folder;
  folder.write("train.txt", "abcdefghijklmnopqrstuvwxyz0123456789");
  folder.write("validation.txt", "The quick brown fox");
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config_of(folder, 2));
    CHECK(data.sequences() == 9);
    CHECK(data.check_vocabulary(257) == "");
    CHECK(data.check_vocabulary(1024) == "");
    for (const int64_t vocabulary : {256, 1025, 50257}) {
      CHECK(test::error_of([&] { data.check_vocabulary(vocabulary); }) ==
            fmt::format("data.train ({}): vocabulary mismatch: its tokenizer bytes has 257 tokens, "
                        "the model {} (model.vocab_size)",
                        (folder / "train.txt").string(), vocabulary));
    }
  });
  config::TrainConfig short_validation = config_of(folder, 2);
  short_validation.data.sequence_length = 21;
  CHECK(error_on(2, short_validation) ==
        fmt::format("data.validation ({}) has 20 tokens, fewer than one sequence of 21 "
                    "(data.sequence_length)",
                    (folder / "validation.txt").string()));
}

TEST_CASE("train data: the tokenizer is the given one, the model folder's, or bytes") {
  const test::TempFolder folder;
  folder.write("train.txt", "The quick brown fox jumps over the lazy dog");
  folder.write("validation.txt", "The quick brown fox");
  const std::filesystem::path qwen = test::fixture_path("tokenizers/qwen2");
  config::TrainConfig config = config_of(folder, 4);
  const auto name = [&] {
    std::string out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      out = data.tokenizer_name();
      CHECK(data.tokenizer().vocab_size() == (out == "bytes" ? 257 : 1205));
    });
    return out;
  };
  CHECK(name() == "bytes");
  config.model.path = folder.path().string();  // without a tokenizer.json
  CHECK(name() == "bytes");
  config.model.path = qwen.string();
  CHECK(name() == (qwen / "tokenizer.json").string());
  config.data.tokenizer = "bytes";
  CHECK(name() == "bytes");
  config.model.path = "";
  config.data.tokenizer = qwen.string();
  CHECK(name() == qwen.string());
}

// The texts of a run with these options of data.
struct Texts {
  test::TempFolder folder;
  config::TrainConfig config;

  Texts() {
    std::filesystem::create_directory(folder / "texts");
    config.data.cache_dir = (folder / "cache").string();
    config.data.sequence_length = 2;
    config.data.document_separator = false;
  }
  std::string name(const char* file) { return (folder / file).string(); }
  void find() { find_texts(config, folder / "config.yaml"); }
  std::string refusal() {
    const std::string error = test::error_of([&] {
      find();
      comm::run_local_ranks(1, [&](comm::Communicator& world) { TrainData data(world, config); });
    });
    return error;
  }
};

TEST_CASE_FIXTURE(Texts, "train data: the files that were found are named") {
  folder.write("texts/b.jsonl", "{\"text\": \"bb\"}\n");
  folder.write("texts/a.jsonl", "{\"text\": \"aa\"}\n");
  folder.write("texts/c.txt", "cc");
  config.data.train = {name("texts/a.jsonl"), name("texts/b.jsonl"), name("texts/c.txt")};
  config.data.validation = config.data.train;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    CHECK(data.sequences() == 3);
    CHECK(data.remarks().at(0) == fmt::format("data.train: 3 files: {}, {}, {}",
                                              name("texts/a.jsonl"), name("texts/b.jsonl"),
                                              name("texts/c.txt")));
    CHECK(data.remarks().size() == 2);
  });
}

TEST_CASE_FIXTURE(Texts, "train data: folders and patterns without what is asked for") {
  const std::string place = name("run.yaml") + ":3";
  config.places["data.train"] = place;
  config.data.train = {"texts"};
  CHECK(refusal() == place + ": data.train: " + name("texts") +
                         ": no file in this folder ends with .jsonl, .json, .ndjson, .jsonlines, "
                         ".csv, .tsv or .txt");
  config.data.train = {"texts/*.csv"};
  CHECK(refusal() == place + ": data.train: texts/*.csv: no file matches this pattern");
  config.data.train = {"**/a.txt"};
  CHECK(test::contains(refusal(), place + ": data.train: **/a.txt: expected a pattern without"));
  folder.write("texts/a.txt", "aa");
  config.data.train = {"texts"};
  config.data.field = "story";
  CHECK(refusal() == "data.field: it has no effect on files of text");
  config.data.field = "text";
  config.data.bad_rows = data::BadRows::kSkip;
  config.places["data.bad_rows"] = "run.yaml:4";
  CHECK(refusal() == "run.yaml:4: data.bad_rows: it has no effect on files of text");
  config.data.bad_rows = data::BadRows::kFail;
  CHECK(refusal() == "");
}

TEST_CASE_FIXTURE(Texts, "train data: a subset of the validation rows") {
  std::string rows;
  for (int i = 0; i < 10; ++i) rows += fmt::format("{{\"text\": \"{}{}\"}}\n", i, i);
  config.data.train = {folder.write("train.jsonl", rows).string()};
  config.data.validation = {folder.write("validation.jsonl", rows).string()};
  config.data.validation_subset.n = 3;
  config.train.batch = 3;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    CHECK((data.sequences() == 10 && data.validation_sequences() == 3));
    for (size_t row = 0; row < 3; ++row)
      CHECK(data.validation({}).get(0).tokens[2 * row] == "560"[row]);
    CHECK(data.remarks()[1].find("; 3 of the rows, by seed 42") != std::string::npos);
  });
  config.data.validation_subset.n = 11;
  CHECK(refusal() == fmt::format("data.validation_subset.n: expected 1 to 10, the rows of {}, "
                                 "got 11",
                                 name("validation.jsonl")));
}

TEST_CASE_FIXTURE(Texts, "train data: a subset of the training rows, skipped rows of both texts") {
  std::string rows = "{\n";
  for (int i = 0; i < 10; ++i) rows += fmt::format("{{\"text\": \"{}{}\"}}\n", i, i);
  config.data.train = {folder.write("train.jsonl", rows).string()};
  config.data.validation = {
      folder.write("validation.jsonl", "{\"text\": \"aaaa\"}\n{\"b\": 1}\n").string()};
  CHECK(test::contains(refusal(), "train.jsonl:1: malformed JSON"));
  config.data.bad_rows = data::BadRows::kSkip;
  config.data.subset = {.n = 3, .seed = 42};
  config.data.shuffle = false;
  config.train.batch = 3;
  for (int run = 0; run < 2; ++run) {  // that makes the caches, and that finds them
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      CHECK(data.sequences() == 3);
      CHECK(data.validation_sequences() == 2);  // all of it
      // numpy: default_rng(42).permutation(10) begins with 5, 6, 0
      const Batch batch = data.training({}).get(0);
      for (size_t row = 0; row < batch.samples.size(); ++row) {
        const auto sample = static_cast<size_t>(batch.samples[row]);
        CHECK(batch.tokens[2 * row] == "560"[sample]);
      }
      const std::vector<data::SkippedRow> skipped = data.skipped_rows();
      REQUIRE(skipped.size() == 2);
      CHECK(skipped[1] ==
            data::SkippedRow{name("validation.jsonl"), 2, "no field \"text\" (fields: b)"});
      const std::vector<std::string> remarks = data.remarks();
      REQUIRE(remarks.size() == 3);
      CHECK(remarks[0] ==
            fmt::format("data.train: {}; 3 of the rows, by seed 42", name("train.jsonl")));
      CHECK(remarks[2].starts_with(
          fmt::format("note: data.bad_rows: 2 rows are skipped and listed in skipped_rows.jsonl; "
                      "the first is {}:1: malformed JSON",
                      name("train.jsonl"))));
    });
  }
}

std::string question(int i) {
  return fmt::format("{{\"question\": \"q{}\", \"answers\": [{{\"text\": \"{}\"}}]}}", i,
                     std::string(static_cast<size_t>(i % 4 + 1), 'a'));
}

TEST_CASE_FIXTURE(Texts, "train data: supervised fine-tuning on questions, the same on any ranks") {
  std::string questions;
  for (int i = 0; i < 11; ++i) questions += (i == 0 ? "" : ", ") + question(i);
  config.data.train = {folder
                           .write("t.json",
                                  "{\"data\": [{\"paragraphs\": [{\"context\": \"c\", "
                                  "\"qas\": [" +
                                      questions + "]}]}]}")
                           .string()};
  config.data.validation = config.data.train;
  config.data.format = data::TextFormat::kSquad;
  config.data.objective = data::Objective::kSft;
  config.data.document_separator = std::nullopt;
  config.data.sequence_length = 40;  // Question: q10 Context: c Answer: aaa and end-of-text: 37
  config.train.batch = 4;
  std::vector<Batch> whole;
  for (const int ranks : {1, 2, 3}) {
    for (const data::PadSide side : {data::PadSide::kRight, data::PadSide::kLeft}) {
      config.data.pad = side;
      comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
        const TrainData data(world, config);
        CHECK(data.sequences() == 11);
        CHECK(data.steps_per_epoch() == 3);
        CHECK_FALSE(data.bigram_entropy());
        for (int64_t step = 0; step < 3; ++step) {
          const Batch batch = data.training({}).get(step);
          CHECK(batch.mask.empty() == (side == data::PadSide::kRight || batch.rows == 0));
          int64_t labels = 0;
          for (const int32_t label : batch.targets) {
            CHECK((label == -100 || label == ' ' || label == 'a' || label == 256));
            labels += label != -100;
          }
          int64_t expected = 0;
          for (const int64_t sample : batch.samples) expected += sample % 4 + 3;
          CHECK(labels == expected);  // a blank, the answer, end-of-text
          if (ranks == 1 && side == data::PadSide::kRight) {
            CHECK(batch.global_label_tokens == labels);
            whole.push_back(batch);
          }
          const Batch& single = whole[static_cast<size_t>(step)];
          CHECK(batch.global_label_tokens == single.global_label_tokens);
          CHECK(batch.length == single.length);
        }
        const std::vector<std::string> remarks = data.remarks();
        CHECK(remarks[0].ends_with("t.json; 11 rows, 0 of them cut to 40 tokens"));
        CHECK(remarks[2] == fmt::format("data.objective: sft; rows are padded on the {} to the "
                                        "longest of a batch, with token 256",
                                        side == data::PadSide::kLeft ? "left" : "right"));
      });
    }
  }
}

TEST_CASE_FIXTURE(Texts, "train data: answers are asked for, templates fill fields") {
  const std::string rows = folder.write("r.jsonl", "{\"q\": \"1+1\", \"a\": \"2\"}\n").string();
  config.data.train = {rows};
  config.data.objective = data::Objective::kSft;
  config.train.batch = 1;
  config.places["data.objective"] = "run.yaml:4";
  CHECK(refusal() ==
        "run.yaml:4: data.objective: sft: expected rows with an answer (data.format: alpaca or "
        "squad, or a data.template with {>answer}), got rows of one text");
  config.data.row_template = folder.write("own.template", "{q}={a}\n").string();
  CHECK(test::contains(refusal(), "got data.template: " + config.data.row_template + " without"));
  folder.write("own.template", "{q}{>cue}={>answer}{a}\n");
  config.data.sequence_length = 6;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    const Batch batch = data.training({}).get(0);
    CHECK(batch.tokens == std::vector<int32_t>{'1', '+', '1', '=', '2'});
    CHECK(batch.targets == std::vector<int32_t>{-100, -100, -100, '2', -100});
    CHECK(data.labelled_rows(0).labels == std::vector<int32_t>{-100, -100, -100, -100, '2'});
  });
  config.data.row_template = "no.such";
  CHECK(test::contains(refusal(), "data.template: expected alpaca, "));
  config.data.objective = data::Objective::kLm;
  config.data.row_template = "alpaca";
  config.data.train = {folder.write("a.txt", "text").string()};
  CHECK(refusal() == "data.template: it has no effect on files of text");
}

TEST_CASE_FIXTURE(Texts, "train data: lines as rows, and rows of wikitext") {
  config.data.train = {folder.write("a.txt", "abcdef\n\nghi\n j\n").string()};
  config.data.shuffle = false;
  config.train.batch = 1;
  config.data.pack = data::Pack::kExamples;
  config.data.sequence_length = 4;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    CHECK(data.sequences() == 3);
    CHECK(data.training({}).get(0).tokens == std::vector<int32_t>{'a', 'b', 'c', 'd'});
    CHECK(data.training({}).get(2).tokens == std::vector<int32_t>{' ', 'j'});
  });
  config.data.pack = data::Pack::kWikitextRows;
  config.data.sequence_length = 3;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const TrainData data(world, config);
    CHECK(data.sequences() == 3);  // abc ghi " j\n"
    CHECK(data.training({}).get(1).tokens == std::vector<int32_t>{'g', 'h', 'i'});
    CHECK(data.remarks()[0].ends_with(
        "a.txt; 4 rows, 2 of them cut to 3 tokens; 3 sequences, 0 tokens dropped"));
  });
}

TEST_CASE_FIXTURE(Texts, "train data: a share that is held out") {
  std::string rows;
  for (int i = 0; i < 40; ++i) rows += fmt::format("{{\"text\": \"{}\"}}\n", i + 10);
  config.data.train = {folder.write("r.jsonl", rows).string()};
  config.data.validation = {"10%"};
  config.train.batch = 3;
  find();
  for (const data::Pack pack : {data::Pack::kStream, data::Pack::kExamples}) {
    config.data.pack = pack;
    std::set<std::vector<int32_t>> seen, held_out;
    comm::run_local_ranks(2, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      CHECK(data.sequences() == 36);
      CHECK(data.validation_sequences() == 4);
      CHECK(data.validation_hash() == data.hashes().at("tokens of data.train"));
      CHECK(data.validation_hash().ends_with(" without 10%"));
      CHECK(data.remarks()[1] == "data.validation: 10%: 4 of 40 sequences, which are not trained");
      const auto add = [&](const Batch& batch, std::set<std::vector<int32_t>>& to) {
        for (int64_t row = 0; row < batch.rows; ++row) {
          const auto begin = batch.tokens.begin() + row * batch.length;
          to.emplace(begin, begin + batch.length);
        }
      };
      if (world.rank() != 0) return;
      const TrainData& all = data;
      for (int64_t step = 0; step < 12; ++step) add(all.training({}).get(step), seen);
      for (int64_t i = 0; i < 2; ++i) add(all.validation({}).get(i), held_out);
    });
    for (const auto& row : held_out) CHECK_FALSE(seen.contains(row));
    const bool last = held_out.contains({'4', '9'}) || held_out.contains({'4', '8'});
    if (pack == data::Pack::kStream) CHECK(last);
  }
  config.data.validation = {"99.9%"};
  CHECK(refusal() == "data.validation: 99.9%: expected data of more than 40 rows, got 40");
}

TEST_CASE("train data: random tokens need no files, and are the same on any number of ranks") {
  config::TrainConfig config;
  config.data.format = data::TextFormat::kSynthetic;
  config.data.sequence_length = 8;
  config.model.model_type = "llama";
  config.model.hidden_size = 8;
  config.model.layers = config.model.heads = 1;
  config.model.vocab_size = 32000;
  config.train.steps = 5;
  config.train.batch = 6;
  std::vector<std::vector<int32_t>> whole;
  for (const int ranks : {1, 2}) {
    comm::run_local_ranks(ranks, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      CHECK(data.sequences() == 30);
      CHECK(data.vocabulary() == 257);  // of a model that does not say its own
      CHECK(data.check_vocabulary(32000) == "");
      CHECK(data.remarks()[0] == "data.format: synthetic: 30 sequences of random tokens");
      CHECK(data.skipped_rows().empty());
      const Batch batch = data.training({}).get(2);
      CHECK(*std::max_element(batch.tokens.begin(), batch.tokens.end()) > 10000);
      CHECK(*std::max_element(batch.tokens.begin(), batch.tokens.end()) < 32000);
      if (ranks == 1) {
        for (int64_t row = 0; row < 6; ++row) {
          const auto begin = batch.tokens.begin() + row * 8;
          whole.emplace_back(begin, begin + 8);
        }
      }
      for (int64_t row = 0; row < batch.rows; ++row) {
        const auto& expected = whole[static_cast<size_t>(world.rank() + row * ranks)];
        CHECK(std::equal(expected.begin(), expected.end(), batch.tokens.begin() + row * 8));
      }
    });
  }
}

// A run that goes on for more steps sees what a run of so many steps has seen.
TEST_CASE("train data: random tokens of a step are the same, however many steps there are") {
  config::TrainConfig config;
  config.data.format = data::TextFormat::kSynthetic;
  config.data.sequence_length = 8;
  config.model.model_type = "llama";
  config.model.hidden_size = 8;
  config.model.layers = config.model.heads = 1;
  config.train.batch = 6;
  comm::run_local_ranks(1, [&](comm::Communicator& world) {
    const auto of_steps = [&](int64_t steps) {
      config.train.steps = steps;
      return std::make_unique<TrainData>(world, config);
    };
    const auto few = of_steps(5), more = of_steps(50);
    CHECK(few->hashes() == more->hashes());
    std::set<std::vector<int32_t>> seen;
    for (int64_t step = 0; step < 5; ++step) {
      const Batch batch = few->training({}).get(step);
      CHECK(batch.tokens == more->training({}).get(step).tokens);
      seen.insert(batch.tokens);
    }
    CHECK(seen.size() == 5);
    config.data.synthetic_rows = 9;
    CHECK(of_steps(5)->hashes() != few->hashes());
  });
}

TEST_CASE("train data: hashes are of the tokens, not of the file") {
  const test::TempFolder folder;
  const auto hashes = [&](const char* name, const char* text) {
    config::TrainConfig config;
    config.data.train = {folder.write(name, text).string()};
    config.data.cache_dir = (folder / "cache").string();
    config.data.sequence_length = 4;
    std::map<std::string, std::string> out;
    comm::run_local_ranks(1, [&](comm::Communicator& world) {
      const TrainData data(world, config);
      out = data.hashes();
      CHECK(data.steps_per_epoch() == 1);
    });
    return out;
  };
  const auto first = hashes("a.txt", "some text");
  CHECK(hashes("b.txt", "some text") == first);
  const auto other = hashes("a.txt", "some more");
  CHECK(other.at("tokens of data.train") != first.at("tokens of data.train"));
  CHECK(other.at("tokenizer") == first.at("tokenizer"));
}

}  // namespace
}  // namespace fsdp::tools
